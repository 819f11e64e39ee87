/** Tunnel ends and proxied traffic of nodes as rows, and back into what is stated of a node. */
import type { NetworkNode, NodeBody, ProxiedTraffic, TunnelEnd } from "../../api/types";

export interface EndRow {
  node: NetworkNode;
  end: TunnelEnd;
}

export interface ProxiedRow {
  node: NetworkNode;
  proxied: ProxiedTraffic;
}

export const endRows = (nodes: NetworkNode[]): EndRow[] =>
  nodes.flatMap((node) => node.tunnel_ends.map((end) => ({ node, end })));

export const proxiedRows = (nodes: NetworkNode[]): ProxiedRow[] =>
  nodes
    .filter(({ proxied_traffic }) => proxied_traffic.interfaces?.length)
    .map((node) => ({ node, proxied: node.proxied_traffic }));

/** What a node is registered with; its ends and proxied traffic stay unless they are stated. */
export const kept = ({
  description,
  addresses,
  sensor_pod_target,
  tags,
  map_position,
}: NetworkNode): NodeBody => ({
  description,
  addresses,
  sensor_pod_target,
  tags,
  map_position,
});

export const withEnd = (node: NetworkNode, end: TunnelEnd): NodeBody => ({
  ...kept(node),
  tunnel_ends: [...node.tunnel_ends.filter(({ tunnel }) => tunnel !== end.tunnel), end],
});

export const withoutEnd = (node: NetworkNode, tunnel: string): NodeBody => ({
  ...kept(node),
  tunnel_ends: node.tunnel_ends.filter((one) => one.tunnel !== tunnel),
});

export const withProxied = (node: NetworkNode, proxied: ProxiedTraffic): NodeBody => ({
  ...kept(node),
  proxied_traffic: proxied,
});

/** Words of a list, separated by blanks, commas or lines. */
export const wordsOf = (text: string): string[] => text.split(/[\s,]+/).filter(Boolean);

/** Classes from lines NAME=WEIGHT:SELECTOR; null when one does not read so. */
export function classesOf(text: string): TunnelEnd["classes"] | null {
  const lines = text.split(/\s+/).filter(Boolean);
  const read = lines.map((line) => /^([^=:]+)=(\d+):(.+)$/.exec(line));
  if (read.some((found) => found === null)) return null;
  return read.map((found) => ({
    name: found?.[1] ?? "",
    weight: Number(found?.[2]),
    selector: found?.[3] ?? "",
  }));
}

export const classesText = (classes: TunnelEnd["classes"] = []): string =>
  classes.map(({ name, weight, selector }) => `${name}=${weight}:${selector}`).join("\n");

/** Applications from lines NAME=FILE ARGUMENT, with "off " before one that is asked nothing; null when one does not read so. */
export function applicationsOf(
  text: string,
  before: TunnelEnd["applications"] = [],
): NonNullable<TunnelEnd["applications"]> | null {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean);
  const read = lines.map((line) => /^(off )?([\w.-]{1,31})=([\w-][\w.+-]*\.so)(?:\s+(.*))?$/.exec(line));
  if (read.some((found) => found === null)) return null;
  return read.map((found) => {
    const name = found?.[2] ?? "";
    return {
      name,
      file: found?.[3] ?? "",
      argument: found?.[4] ?? "",
      limit_ms: before.find((one) => one.name === name)?.limit_ms ?? 20,
      on: !found?.[1],
    };
  });
}

export const applicationsText = (applications: TunnelEnd["applications"] = []): string =>
  applications
    .map(({ name, file, argument, on }) => `${on ? "" : "off "}${name}=${file} ${argument}`.trim())
    .join("\n");
