import { describe, expect, it } from "vitest";

import type { AuditRecord, Identity, NewEnrolment, NodeKey, RecordChecks } from "../../api/types";
import {
  certificatesOf,
  commandOf,
  keysOf,
  nodesOf,
  pairsOf,
  pairsText,
  reasonWords,
  recordReasonWords,
  recordsInWords,
  refusalsOf,
  refusedSignalsOf,
} from "./trust";

const record = (second: number, action: string, subject: string, detail: Record<string, unknown> = {}) =>
  ({ id: `${second}`, at: new Date(second * 1000).toISOString(), action, subject, detail }) as AuditRecord;

describe("keys and certificates from the audit", () => {
  const audit = [
    record(9, "certificate.revoke", "node/b"),
    record(8, "key.create", "a b", { generation: 3, expires_at_us: 20_000_000 }),
    record(7, "certificate.issue", "node/b", { serial: "2", not_after_us: 99_000_000 }),
    record(6, "certificate.revoke", "node/a"),
    record(6.5, "certificate.issue", "node/a", { serial: "4" }),
    record(5, "key.create", "a b", { generation: 2, expires_at_us: 10_000_000 }),
    record(4, "next-hop.report-refused", "unknown"),
  ].sort((a, b) => b.at.localeCompare(a.at));

  it("keeps the newest of each with its age and end", () => {
    expect(keysOf(audit)).toEqual([
      { subject: "a b", since: 8000, expires: 20_000, number: "3", revoked: false },
    ]);
  });

  it("knows what was revoked since, and what was issued anew after that", () => {
    expect(certificatesOf(audit).map(({ subject, revoked }) => [subject, revoked])).toEqual([
      ["node/a", false],
      ["node/b", true],
    ]);
  });

  it("lists what was refused", () => {
    expect(refusalsOf(audit).map(({ action }) => action)).toEqual([
      "certificate.revoke",
      "certificate.revoke",
      "next-hop.report-refused",
    ]);
  });
});

describe("records of nodes", () => {
  const refusal = (count: number) => ({ count }) as RecordChecks["items"][number];
  const said = (authentication: RecordChecks["authentication"], counts: number[]) =>
    recordsInWords({ authentication, since: null, good: 40, items: counts.map(refusal) });

  it("says what became of those that are not authentic", () => {
    expect(said("off", [])).toBe("Records of nodes are not checked.");
    expect(said("require", [2, 1])).toContain("40 authentic");
    expect(said("require", [2, 1])).toContain("3 were not, and were dropped");
    expect(said("observe", [1])).toContain("accepted all the same");
  });

  it("has words for a reason, and passes on one that it does not know", () => {
    expect(recordReasonWords("unsigned")).toBe("without its node's code");
    expect(recordReasonWords("new")).toBe("new");
  });
});

describe("refused signals", () => {
  const said = (node: string, refused_signals: NodeKey["refused_signals"]) =>
    ({ node, refused_signals }) as NodeKey;

  it("lists every node's reasons, the most frequent first", () => {
    const nodes = [
      said("a", [{ reason: "bad_tag", count: 2 }]),
      said("b", []),
      said("c", [
        { reason: "bad_tag", count: 2 },
        { reason: "replayed", count: 9 },
      ]),
    ];
    expect(refusedSignalsOf(nodes).map(({ node, reason }) => `${node} ${reason}`)).toEqual([
      "c replayed",
      "a bad_tag",
      "c bad_tag",
    ]);
  });

  it("has words for a reason, and passes on one that it does not know", () => {
    expect(reasonWords("replayed")).toBe("sequence number was accepted before");
    expect(reasonWords("some_new_thing")).toBe("some new thing");
  });
});

describe("nodes", () => {
  const identity = (name: string, state: Identity["state"]) => ({ identity: name, state }) as Identity;
  const keys = (node: string) => ({ node, key_epoch: 3 }) as NodeKey;

  it("has each node that is enrolled or heard of once, and no service", () => {
    const identities = [
      identity("node/b", "enrolled"),
      identity("node/a", "revoked"),
      identity("service/x", "enrolled"),
    ];
    const found = nodesOf(identities, [keys("b"), keys("c")]);
    expect(found.map((one) => [one.node, one.state, one.keys?.key_epoch ?? null])).toEqual([
      ["a", "revoked", null],
      ["b", "enrolled", 3],
      ["c", "not enrolled", 3],
    ]);
  });

  it("are enrolled by a command that names the authority", () => {
    const made = { identity: "node/alpha", authority_url: "https://a.example:18443" } as NewEnrolment;
    expect(commandOf(made)).toContain("chart-agent --node alpha ");
    expect(commandOf(made)).toContain("--authority https://a.example:18443 --authority-ca ");
  });
});

describe("pairs across a border", () => {
  it("are read as they are written", () => {
    const pairs: [string, string][] = [
      ["edge", "border@b.example"],
      ["border@b.example", "edge"],
    ];
    expect(pairsOf(pairsText(pairs))).toEqual(pairs);
    expect(pairsOf(" \n")).toEqual([]);
    expect(pairsOf("edge")).toBeNull();
  });
});
