import { describe, expect, it } from "vitest";

import type { Alert, NetworkNode, Tunnel } from "../../api/types";
import { AT, link, node, NOW, request } from "../../shared/samples";
import { troubles } from "./troubles";

const NOTHING = { nodes: [], links: [], requests: [], alerts: [], tunnels: [] };
const state = (change: object) =>
  ({
    enforcement: "enforce",
    faults: [],
    stale: false,
    reported_at: AT,
    ...change,
  }) as unknown as NonNullable<NetworkNode["state"]>;

describe("what is wrong now", () => {
  it("is nothing while all is well", () => {
    const well = {
      ...NOTHING,
      nodes: [node("a", { state: state({}) })],
      links: [link()],
      requests: [request()],
    };
    expect(troubles(well, NOW)).toEqual([]);
  });

  it("names what is silent, full, degraded, not enforced and alarming, the worst first", () => {
    const found = troubles(
      {
        nodes: [
          node("a", { state: state({ faults: ["no trinity"] }) }),
          node("b", { state: state({ stale: true }) }),
        ],
        links: [
          link({ id: "silent", load: null }),
          link({ id: "full", load: { ...link().load, utilisation: 0.99 } as never }),
        ],
        requests: [
          request({ state: "FAILED", enforcement: "FAILED", reason: "no agent" }),
          request({ lifecycle: "RELEASED" }),
        ],
        alerts: [
          { id: "x", rule: "slow", subject: "a,b,rtt_us", summary: "slow path", resolved_at: null } as Alert,
          { id: "y", rule: "old", summary: "", resolved_at: AT } as Alert,
        ],
        tunnels: [
          {
            id: "t",
            target_bps: 100,
            rate_bps: 50,
            reason: "",
            state: null,
            decision: null,
          } as unknown as Tunnel,
          {
            id: "u",
            target_bps: 100,
            rate_bps: 95,
            reason: "",
            state: null,
            decision: null,
          } as unknown as Tunnel,
        ],
      },
      NOW,
    );
    expect(found.map(({ id, severity }) => `${severity} ${id}`)).toEqual([
      "bad alert x",
      "bad node b",
      "bad silent silent",
      "bad request r1",
      "busy fault a 0",
      "busy full full",
      "busy tunnel t",
    ]);
  });
});
