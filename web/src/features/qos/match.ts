/** Which flows a rule would match, as the classifier decides it. Pure. */
import type { Flow, NetworkNode } from "../../api/types";

export interface Rule {
  source: string;
  destination: string;
  protocol: "tcp" | "udp" | null;
  sourcePort: number | null;
  destinationPort: number | null;
  dscp: number | null;
}

/** IPv4 "a.b.c.d" as a number; null when it is none. */
function ipv4(text: string): number | null {
  const parts = text.split(".").map(Number);
  if (parts.length !== 4 || parts.some((part) => !Number.isInteger(part) || part < 0 || part > 255))
    return null;
  return parts.reduce((sum, part) => sum * 256 + part, 0);
}

/** Whether an address lies in a prefix ("10.0.0.0/24", or one address). */
export function within(address: string, prefix: string): boolean {
  const [base = "", length] = prefix.split("/");
  const [one, net] = [ipv4(address), ipv4(base)];
  if (one === null || net === null) return address === base;
  const size = 2 ** (32 - Number(length ?? 32));
  return Math.floor(one / size) === Math.floor(net / size);
}

const ofNode = (address: string, node: NetworkNode | undefined): boolean =>
  (node?.addresses ?? []).some((prefix) => within(address, prefix));

export interface Matched {
  flows: Flow[];
  /** The flows are those that could match: what they carry of it is not in the records. */
  possible: boolean;
}

export function matching(rule: Rule, flows: Flow[], nodes: NetworkNode[]): Matched {
  const find = (id: string) => nodes.find((node) => node.id === id);
  const [source, destination] = [find(rule.source), find(rule.destination)];
  const found = flows.filter(
    (flow) =>
      !flow.ended &&
      ofNode(flow.source_address, source) &&
      ofNode(flow.destination_address, destination) &&
      (rule.protocol === null || flow.protocol === rule.protocol) &&
      (rule.sourcePort === null || flow.source_port === rule.sourcePort) &&
      (rule.destinationPort === null || flow.destination_port === rule.destinationPort),
  );
  return { flows: found, possible: rule.dscp !== null };
}

/** Differentiated services code points by name (RFC 4594). */
export const DSCP = [
  { value: "46", label: "EF (46), telephony" },
  { value: "34", label: "AF41 (34), conferencing" },
  { value: "26", label: "AF31 (26), streaming" },
  { value: "18", label: "AF21 (18), transactions" },
  { value: "10", label: "AF11 (10), bulk data" },
  { value: "8", label: "CS1 (8), lower effort" },
  { value: "0", label: "default (0)" },
];
