/** Which flows a rule would match, as the classifier decides it. Pure. */
import ipaddr from "ipaddr.js";

import type { Flow, NetworkNode } from "../../api/types";

export interface Rule {
  source: string;
  destination: string;
  protocol: "tcp" | "udp" | null;
  sourcePort: number | null;
  destinationPort: number | null;
  dscp: number | null;
}

/** Whether an address lies in a prefix ("10.0.0.0/24", "fd00::/64", or one address); of IPv4 in IPv6 it is IPv4's. */
export function within(address: string, prefix: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const one = ipaddr.process(address);
  if (ipaddr.isValidCIDR(prefix)) {
    const net = ipaddr.parseCIDR(prefix);
    return one.kind() === net[0].kind() && one.match(net);
  }
  return ipaddr.isValid(prefix) && one.toNormalizedString() === ipaddr.process(prefix).toNormalizedString();
}

const ofNode = (address: string, node: NetworkNode | undefined): boolean =>
  (node?.addresses ?? []).some((prefix) => within(address, prefix));

export interface Matched {
  flows: Flow[];
  /** Some of them could match only: their nodes do not tell the code point. */
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
      (rule.destinationPort === null || flow.destination_port === rule.destinationPort) &&
      (rule.dscp === null || flow.dscp === null || flow.dscp === rule.dscp),
  );
  return { flows: found, possible: rule.dscp !== null && found.some((flow) => flow.dscp === null) };
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
