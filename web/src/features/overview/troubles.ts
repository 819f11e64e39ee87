/** What is wrong now, worst first, each with the page that shows it. Pure. */
import type { Alert, Link, NetworkNode, RateRequest, Tunnel } from "../../api/types";
import { formatAge, formatRate, formatShare } from "../../shared/units";
import { findingWords, subjectWords } from "../alerts/words";
import { loadIsStale } from "../map/linkLabel";
import { stateOf } from "../requests/state";

export interface Trouble {
  id: string;
  severity: "bad" | "busy";
  title: string;
  detail: string;
  /** Address of the page that shows it. */
  to: string;
}

interface Known {
  nodes: NetworkNode[];
  links: Link[];
  requests: RateRequest[];
  alerts: Alert[];
  tunnels: Tunnel[];
}

/** A link this full has no room for what comes next. */
const FULL = 0.98;
/** A tunnel this far below its target does not reach it. */
const SHORT = 0.9;

function ofNode(node: NetworkNode): Trouble[] {
  const base = { id: `node ${node.id}`, to: "/network" };
  if (!node.state)
    return [
      {
        ...base,
        severity: "busy",
        title: `No agent on ${node.id}`,
        detail: "No report has arrived from this node.",
      },
    ];
  if (node.state.stale)
    return [
      {
        ...base,
        severity: "bad",
        title: `The agent of ${node.id} is not reporting`,
        detail: `Last report ${formatAge(node.state.reported_at)}. Its flows use the default congestion control.`,
      },
    ];
  return node.state.faults.map((fault, index) => ({
    ...base,
    id: `fault ${node.id} ${index}`,
    severity: "busy" as const,
    title: `${node.id} is degraded`,
    detail: fault,
  }));
}

function ofLink(link: Link, now: number): Trouble[] {
  const base = { to: `/links/${encodeURIComponent(link.id)}` };
  if (loadIsStale(link, now))
    return [
      {
        ...base,
        id: `silent ${link.id}`,
        severity: "bad",
        title: `No load report for ${link.id}`,
        detail: link.load
          ? `Last report ${formatAge(link.load.at, now)}.`
          : "No agent has reported its load.",
      },
    ];
  if ((link.load?.utilisation ?? 0) < FULL) return [];
  return [
    {
      ...base,
      id: `full ${link.id}`,
      severity: "busy",
      title: `${link.id} is saturated`,
      detail: `${formatShare(link.load?.utilisation)} of ${formatRate(link.capacity_bps)}, ${link.load?.dropped_packets ?? 0} packets dropped in its last report.`,
    },
  ];
}

function ofRequest(request: RateRequest): Trouble[] {
  const { tone, text } = stateOf(request);
  if (tone !== "bad") return [];
  return [
    {
      id: `request ${request.id}`,
      severity: "bad",
      title: `${request.request.description || request.id}: ${text}`,
      detail: request.reason || "No reason reported.",
      to: `/requests/${encodeURIComponent(request.id)}`,
    },
  ];
}

function ofTunnel(tunnel: Tunnel): Trouble[] {
  const short =
    tunnel.target_bps > 0 && tunnel.rate_bps < SHORT * tunnel.target_bps && !tunnel.decision?.starved;
  const reason = tunnel.reason || tunnel.state?.last_error;
  if (!short && !reason) return [];
  return [
    {
      id: `tunnel ${tunnel.id}`,
      severity: "busy",
      title: `Tunnel ${tunnel.id} ${short ? "does not reach its target" : "differs from its configuration"}`,
      detail: reason || `${formatRate(tunnel.rate_bps)} of ${formatRate(tunnel.target_bps)}.`,
      to: `/tunnels/${encodeURIComponent(tunnel.id)}`,
    },
  ];
}

export function troubles({ nodes, links, requests, alerts, tunnels }: Known, now: number): Trouble[] {
  const found = [
    ...alerts
      .filter((alert) => alert.resolved_at === null)
      .map((alert) => ({
        id: `alert ${alert.id}`,
        severity: "bad" as const,
        title: `${alert.rule}: ${subjectWords(alert.subject)}`,
        detail: findingWords(alert),
        to: "/alerts",
      })),
    ...nodes.flatMap(ofNode),
    ...links.flatMap((link) => ofLink(link, now)),
    ...requests.flatMap(ofRequest),
    ...tunnels.flatMap(ofTunnel),
  ];
  return found.sort((a, b) => Number(a.severity === "busy") - Number(b.severity === "busy"));
}
