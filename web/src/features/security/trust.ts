/** Keys and certificates from the authority's audit: the newest of each, and how old they are. Pure. */
import type { AuditRecord, Identity, NewEnrolment, NodeKey, RecordChecks } from "../../api/types";

export interface Held {
  subject: string;
  /** Milliseconds since the epoch. */
  since: number;
  expires: number | null;
  /** Generation of a key, serial number of a certificate. */
  number: string;
  revoked: boolean;
}

const timeMs = (value: unknown): number | null =>
  typeof value === "number" && value > 0 ? value / 1000 : null;

function newest(audit: AuditRecord[], made: string, ended: string | null): Held[] {
  const found = new Map<string, Held>();
  const over = new Set<string>();
  // The newest first: what was revoked after it was made is revoked.
  for (const { action, subject, at, detail } of audit) {
    if (ended && action === ended && !found.has(subject)) over.add(subject);
    if (action !== made || found.has(subject)) continue;
    const number = detail.serial ?? detail.generation ?? "";
    found.set(subject, {
      subject,
      since: Date.parse(at),
      expires: timeMs(detail.expires_at_us) ?? timeMs(detail.not_after_us),
      number: typeof number === "string" || typeof number === "number" ? String(number) : "",
      revoked: over.has(subject),
    });
  }
  return [...found.values()].sort((a, b) => a.subject.localeCompare(b.subject));
}

export const keysOf = (audit: AuditRecord[]): Held[] => newest(audit, "key.create", null);
export const certificatesOf = (audit: AuditRecord[]): Held[] =>
  newest(audit, "certificate.issue", "certificate.revoke");

const REFUSED = ["next-hop.report", "next-hop.report-refused", "certificate.revoke"];
/** What the authority heard of signals that did not verify, and whom it believes no more. */
export const refusalsOf = (audit: AuditRecord[]): AuditRecord[] =>
  audit.filter(({ action }) => REFUSED.includes(action));

export interface RefusedSignals {
  node: string;
  reason: string;
  count: number;
}

/** What was wrong with signals, in words; the nodes tell it by these names. */
const REASONS: Record<string, string> = {
  bad_tag: "tag does not verify: forged, or signed with another key",
  replayed: "sequence number was accepted before",
  too_old: "sequence number is below the replay window",
  unknown_epoch: "no key for this epoch",
  unauthorised: "sender has no authorisation: best effort",
  bad_version: "unsupported version",
  duplicate: "two signals in one packet",
  fragment: "carried in an IP fragment",
  truncated: "packet ends before its headers",
  bad_header: "inconsistent lengths in the headers",
  bad_option: "option extends past the header",
  bad_signal_length: "wrong length for a signal",
  bad_reserved: "reserved bit set",
  bad_status: "unknown status",
  not_shim: "datagram on the signalling port is not a signal",
  bad_shim: "wrong version or length of the UDP shim",
  no_room: "no room in the table of flows: dropped",
  unkept: "flow of this node without room in the table of flows: asks later",
  over_budget: "not verified: too many of the same sender failed before",
};
export const reasonWords = (reason: string): string => REASONS[reason] ?? reason.replaceAll("_", " ");

const RECORD_REASONS: Record<string, string> = {
  unsigned: "without its node's code",
  "unreadable-code": "with a code that is none",
  "another-node": "written in another node's name",
  "unknown-key": "key ended, or its node is revoked",
  "wrong-code": "altered, or not written by its node",
};
export const recordReasonWords = (reason: string): string => RECORD_REASONS[reason] ?? reason;

/** What the gateway found of the records that nodes write, as a sentence. */
export function recordsInWords({ authentication, good, items }: RecordChecks): string {
  if (authentication === "off") return "Records of nodes are not checked.";
  const refused = items.reduce((total, { count }) => total + count, 0);
  const what = authentication === "require" ? "dropped" : "accepted all the same";
  return `${String(good)} authentic records since the gateway started; ${String(refused)} were not, and were ${what}.`;
}

/** Refused signals of every node, the most frequent first. */
export const refusedSignalsOf = (nodes: NodeKey[]): RefusedSignals[] =>
  nodes
    .flatMap(({ node, refused_signals }) => refused_signals.map((one) => ({ node, ...one })))
    .sort((a, b) => b.count - a.count || a.node.localeCompare(b.node));

/** A node: what the authority gave it, and what its agent says. */
export interface TrustedNode {
  node: string;
  state: Identity["state"] | "not enrolled";
  identity: Identity | null;
  keys: NodeKey | null;
}

/** Nodes that have a certificate, or whose agents are heard of, by name. */
export function nodesOf(identities: Identity[], keys: NodeKey[]): TrustedNode[] {
  const found = new Map<string, TrustedNode>();
  for (const key of keys)
    found.set(key.node, { node: key.node, state: "not enrolled", identity: null, keys: key });
  for (const identity of identities) {
    const [kind, node = ""] = identity.identity.split("/");
    if (kind !== "node") continue;
    found.set(node, { node, state: identity.state, identity, keys: found.get(node)?.keys ?? null });
  }
  return [...found.values()].sort((a, b) => a.node.localeCompare(b.node));
}

/** What is run on a node with the token and the authority's certificate in two files beside it. */
export const commandOf = ({ identity, authority_url }: NewEnrolment): string =>
  [
    `chart-agent --node ${identity.replace("node/", "")} --state-dir /var/lib/chart --cgroup /sys/fs/cgroup`,
    `--authority ${authority_url} --authority-ca authority-ca.pem --enrolment-token-file token`,
  ].join(" ");

/** Pairs of elements across a border as text: sender and receiver, a pair in each line. */
export const pairsText = (pairs: readonly (readonly string[])[]): string =>
  pairs.map((pair) => pair.join(" ")).join("\n");

/** Pairs from such text; null when a line has not two names. */
export function pairsOf(text: string): [string, string][] | null {
  const lines = text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
  const pairs = lines.map((line) => line.split(/\s+/));
  return pairs.every((pair): pair is [string, string] => pair.length === 2) ? pairs : null;
}
