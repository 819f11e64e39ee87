import { describe, expect, it } from "vitest";

import type { Flow } from "../../api/types";
import { node } from "../../shared/samples";
import { matching, type Rule, within } from "./match";

const NODES = [node("a", { addresses: ["10.0.0.1/32"] }), node("b", { addresses: ["10.1.0.0/24"] })];
const flow = (change: object = {}) =>
  ({
    protocol: "tcp",
    source_address: "10.0.0.1",
    source_port: 40_000,
    destination_address: "10.1.0.7",
    destination_port: 5001,
    dscp: 0,
    ended: false,
    ...change,
  }) as Flow;
const RULE: Rule = {
  source: "a",
  destination: "b",
  protocol: "tcp",
  sourcePort: null,
  destinationPort: 5001,
  dscp: null,
};

describe("what a rule would match", () => {
  it("knows what lies in a prefix", () => {
    expect(within("10.1.0.7", "10.1.0.0/24")).toBe(true);
    expect(within("10.1.1.7", "10.1.0.0/24")).toBe(false);
    expect(within("200.1.1.7", "0.0.0.0/0")).toBe(true);
    expect(within("10.0.0.1", "10.0.0.1")).toBe(true);
    expect(within("fd00::1", "fd00::1/128")).toBe(true);
    expect(within("fd00::9", "fd00::1/64")).toBe(true);
    expect(within("fd00:0:0:1::9", "fd00::1/64")).toBe(false);
    expect(within("10.0.0.1", "fd00::/8")).toBe(false);
    expect(within("::ffff:10.0.0.1", "10.0.0.0/8")).toBe(true);
    expect(within("300.1.1.1", "10.0.0.0/8")).toBe(false);
    expect(within("10.0.0.1", "alpha")).toBe(false);
  });

  it("is what runs between its ends with its protocol and ports", () => {
    const flows = [
      flow(),
      flow({ destination_port: 5002 }),
      flow({ protocol: "udp" }),
      flow({ ended: true }),
      flow({ source_address: "10.0.0.2" }),
      flow({ destination_address: "10.2.0.7" }),
    ];
    expect(matching(RULE, flows, NODES).flows).toEqual([flows[0]]);
    expect(matching({ ...RULE, destinationPort: null, protocol: null }, flows, NODES).flows).toHaveLength(3);
    expect(matching({ ...RULE, sourcePort: 1 }, flows, NODES).flows).toHaveLength(0);
    expect(matching({ ...RULE, source: "c" }, flows, NODES).flows).toHaveLength(0);
  });

  it("tells code points apart, and says when it cannot know", () => {
    const [plain, premium, silent] = [flow(), flow({ dscp: 46 }), flow({ dscp: null })];
    const rule = { ...RULE, dscp: 46 };
    expect(matching(rule, [plain, premium], NODES)).toEqual({ flows: [premium], possible: false });
    expect(matching(rule, [plain, premium, silent], NODES)).toEqual({
      flows: [premium, silent],
      possible: true,
    });
    expect(matching({ ...RULE, dscp: 0 }, [plain, premium], NODES).flows).toEqual([plain]);
    expect(matching(RULE, [plain, silent], NODES)).toEqual({ flows: [plain, silent], possible: false });
  });
});
