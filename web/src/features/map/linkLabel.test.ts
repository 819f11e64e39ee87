import { describe, expect, it } from "vitest";

import { AT, link, node, NOW } from "../../shared/samples";
import { linkLabel, linkStyle, LOAD_STALE_MS, loadIsStale, nodeStatus } from "./linkLabel";

const LATER = Date.parse(AT) + LOAD_STALE_MS + 1;

describe("what the map writes on a link", () => {
  it("says utilisation, rate, loss and round-trip time", () => {
    expect(linkLabel(link(), NOW)).toBe("25 % · 25.0 Mb/s\n5.0 % loss · 100 ms RTT");
  });

  it("claims no load once the agent is silent", () => {
    expect(loadIsStale(link(), Date.parse(AT) + LOAD_STALE_MS)).toBe(false);
    expect(loadIsStale(link(), LATER)).toBe(true);
    expect(linkLabel(link(), LATER)).toBe("no load report\n5.0 % loss · 100 ms RTT");
    expect(linkLabel(link({ load: null, measured: null }), NOW)).toBe("no load report");
  });
});

describe("how the map draws a link", () => {
  const withUtilisation = (utilisation: number) => {
    const one = link();
    return link({ load: one.load && { ...one.load, utilisation } });
  };

  it("grows wider with utilisation, to a limit, and changes colour when nearly full", () => {
    expect(linkStyle(withUtilisation(0), NOW).width).toBeLessThan(linkStyle(withUtilisation(0.5), NOW).width);
    expect(linkStyle(withUtilisation(3), NOW).width).toBe(linkStyle(withUtilisation(1), NOW).width);
    const colors = [0.1, 0.6, 0.9, 0.99].map((share) => linkStyle(withUtilisation(share), NOW).color);
    expect(new Set(colors).size).toBe(4);
  });

  it("is dashed and grey when nothing is known", () => {
    expect(linkStyle(withUtilisation(0.99), LATER)).toEqual({ color: "#868e96", width: 2, dashed: true });
  });
});

describe("what the map says of a node", () => {
  const state = {
    enforcement: "enforce" as const,
    agent_version: "1",
    capabilities: [],
    faults: [] as string[],
    reported_at: AT,
    stale: false,
  };
  it.each([
    [null, "no agent"],
    [state, "enforce"],
    [{ ...state, enforcement: "off" as const }, "off"],
    [{ ...state, faults: ["no map"] }, "degraded"],
    [{ ...state, faults: ["no map"], stale: true }, "agent not reporting"],
  ])("case %#", (given, text) => {
    expect(nodeStatus(node("a", { state: given as ReturnType<typeof node>["state"] })).text).toBe(text);
  });
});
