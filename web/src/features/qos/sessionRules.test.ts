import { describe, expect, it } from "vitest";

import type { SessionRule } from "../../api/types";
import {
  asks,
  faults,
  isExpedited,
  NOTHING,
  selectorsOf,
  selectorText,
  tagsOf,
  tagTexts,
  whichNodes,
  withExpedited,
} from "./sessionRules";

const RULE: SessionRule = {
  id: "telephony",
  revision: 4,
  name: "Telephony",
  session_class: "voice",
  selectors: [{ ...NOTHING, protocol: "udp", dscp: 46 }],
  service: "guaranteed",
  guaranteed_bps: 82_000,
  available_bps: 0,
  delay_class: 2,
  priority: 0,
  burst_tolerance: 7,
  nodes: ["alpha"],
  node_tags: { site: "lab" },
  enabled: false,
  authorised: false,
  built_in: true,
  expedited: false,
  sessions: 0,
  expedited_sessions: 0,
  reported_by: [],
};

describe("session rules", () => {
  it("are written and read in the words of the shell", () => {
    const text = "protocol=udp,dscp=46\nremote-ports=16384-32767,local=10.0.0.0/8";
    const read = selectorsOf(text);
    expect(read?.[0]).toEqual({ ...NOTHING, protocol: "udp", dscp: 46 });
    expect(read?.map(selectorText).join("\n")).toBe(text);
    for (const wrong of ["", "udp", "protocol=", "dscp=EF", "protocol=udp\nport=5"])
      expect(selectorsOf(wrong)).toBeNull();
    expect(tagsOf([...tagTexts({ site: "lab" }), "broken"])).toEqual({ site: "lab" });
  });

  it("are told in words", () => {
    expect(asks(RULE)).toBe("guaranteed 82.0 kb/s");
    expect(whichNodes(RULE)).toBe("alpha, site=lab");
    expect(whichNodes({ ...RULE, nodes: [], node_tags: {} })).toBe("all");
    expect(faults(RULE)).toBeNull();
    const report = {
      node: "alpha",
      current: true,
      asks: true,
      sessions: 1,
      expedited_sessions: 0,
      guaranteed_bps: 1,
    };
    expect(
      faults({
        ...RULE,
        reported_by: [
          { ...report, fault: "no room" },
          { ...report, fault: "" },
        ],
      }),
    ).toBe("alpha: no room");
  });

  it("are expedited by one switch, and lose only their precedence by it", () => {
    const on = withExpedited(RULE, true);
    expect(on).toMatchObject({ enabled: true, authorised: true, delay_class: 6, burst_tolerance: 3 });
    expect(on).not.toHaveProperty("revision");
    const shown = { ...RULE, ...on, expedited: true } as SessionRule;
    expect(isExpedited(shown)).toBe(true);
    expect(isExpedited({ ...shown, enabled: false })).toBe(false);
    expect(withExpedited(shown, false)).toMatchObject({
      enabled: true,
      delay_class: 3,
      guaranteed_bps: 82_000,
    });
  });
});
