/** Why a request gets what it gets, from the match to the wire, with the first cause of a shortfall. Pure. */
import type { Confirmation, Link, RateRequest } from "../../api/types";
import { formatRate } from "../../shared/units";

export interface Explanation {
  match: string;
  bottleneck: string | null;
  kernelBps: number | null;
  measuredBps: number | null;
  /** null: it gets what it asked for. */
  cause: string | null;
}

/** Payload over a whole packet, and a little less: what counts as getting its rate. */
const GOOD_SHARE = 0.9;

export function matchWords({ request: asked }: RateRequest): string {
  const end = (prefixes: string[], text: string, port: number | null) =>
    `${prefixes.join(" or ") || text}${port ? ` port ${port}` : ""}`;
  const from = `from ${end(asked.source_prefixes, asked.source, asked.source_port)}`;
  const to = `to ${end(asked.destination_prefixes, asked.destination, asked.destination_port)}`;
  return [
    asked.protocol ?? "any protocol",
    from,
    to,
    ...(asked.dscp === null ? [] : [`DSCP ${asked.dscp}`]),
    ...(asked.cgroup_id === null ? [] : [`sockets of cgroup ${asked.cgroup_id}`]),
  ].join(", ");
}

const allows = (link: Link) => link.rate?.available_bps ?? link.capacity_bps * link.admission_share;

/** The status that the sending node reported: its kernel paces the flow. */
export function sender(request: RateRequest): Confirmation | undefined {
  const first = request.path[0]?.split(":")[0];
  return request.confirmations.find(({ node }) => node === first);
}

function unconfirmed(request: RateRequest): string {
  const failed = request.confirmations.find(({ state }) => state === "FAILED");
  if (failed) return `${failed.node}: ${failed.reason}`;
  const said = new Set(request.confirmations.map(({ node }) => node));
  const silent = request.confirming_nodes.filter((node) => !said.has(node));
  if (silent.length > 0) return `no report from ${silent.join(", ")}`;
  const watching = request.confirmations.filter(({ state }) => state === "OBSERVED").map(({ node }) => node);
  return watching.length > 0 ? `${watching.join(", ")} in mode observe` : "not every node has confirmed";
}

function firstCause(request: RateRequest, path: Link[], measuredBps: number | null): string | null {
  const why = request.reason ? `: ${request.reason}` : "";
  if (request.lifecycle !== "ACTIVE") return `the request is ${request.lifecycle.toLowerCase()}${why}`;
  const asked = request.request.guaranteed_bps;
  if (request.granted_bps < asked)
    return `admitted ${formatRate(request.granted_bps)} of ${formatRate(asked)}: ${request.reason || "links are full"}`;
  if (request.service_state !== "GRANTED")
    return `the service is ${request.service_state.toLowerCase()}${why}`;
  if (request.enforcement !== "ENFORCED") return `not enforced: ${unconfirmed(request)}`;
  if (request.state === "OFF_PATH") return request.warning;
  const known = sender(request);
  if (!known) return null;
  if (known.matching_flows === 0) return `no flow on ${known.node} matches: ${matchWords(request)}`;
  const without = path.filter((link) => link.rate === null).map(({ id }) => id);
  if (without.length > 0 && request.request.service !== "guaranteed")
    return `no valid link rate for ${without.join(", ")}: is the allocator running?`;
  if (known.kernel_rate_bps < request.granted_bps)
    return `the kernel of ${known.node} enforces ${formatRate(known.kernel_rate_bps)}, less than granted`;
  // What it was promised; without a promise, what it may send.
  const owedBps = Math.min(request.granted_bps || Infinity, known.kernel_rate_bps);
  if (measuredBps === null || measuredBps >= GOOD_SHARE * owedBps) return null;
  const dropping = path.find((link) => (link.load?.dropped_packets ?? 0) > 0);
  if (dropping)
    return `${dropping.id} drops packets: ${dropping.load?.dropped_packets ?? 0} in its last report`;
  return `it sends ${formatRate(measuredBps)} of its rate of ${formatRate(known.kernel_rate_bps)}: limited by the application, the receive window or loss outside the path's links`;
}

/** `measuredBps`: what it really sends; null: not known. */
export function explain(request: RateRequest, links: Link[], measuredBps: number | null): Explanation {
  const path = request.path.flatMap((id) => links.find((link) => link.id === id) ?? []);
  const narrow = path.reduce<Link | null>(
    (least, link) => (least === null || allows(link) < allows(least) ? link : least),
    null,
  );
  return {
    match: matchWords(request),
    bottleneck: narrow?.id ?? null,
    kernelBps: sender(request)?.kernel_rate_bps ?? null,
    measuredBps,
    cause: firstCause(request, path, measuredBps),
  };
}
