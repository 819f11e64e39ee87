import { describe, expect, it } from "vitest";

import type { NetworkNode, OverlayEvent, OverlayTracedPath } from "../../api/types";
import { AT, link, node } from "../../shared/samples";
import { overlayStates } from "../map/linkLabel";
import { figuresOf, marksOf, overlayLinks, overlayNodes, pathState, subjectOf, wordsOf } from "./words";

function reporting(id: string, alive: boolean, stale = false): NetworkNode {
  return node(id, {
    overlay: { member: true, prefixes: [] },
    state: {
      enforcement: "enforce",
      agent_version: "1",
      capabilities: [],
      faults: [],
      room: [],
      overlay: {
        links: [
          {
            link_id: `${id}:to-b`,
            alive,
            rtt_ms: 20,
            exchange_loss: 0.01,
            failures: 3,
            forwarded_packets: 7,
            forwarded_bytes: 700,
          },
        ],
        entered_packets: 0,
        transit_packets: 0,
        left_packets: 0,
        detour_packets: 0,
        refused_packets: 0,
      },
      reported_at: AT,
      stale,
    },
  });
}

function event(change: Partial<OverlayEvent>): OverlayEvent {
  return {
    at: AT,
    node: "a",
    kind: "link-failed",
    link_id: null,
    owner: null,
    colour: null,
    flow_classes: [],
    rtt_ms: 20,
    exchange_loss: 0,
    interface_down: false,
    ...change,
  };
}

function path(change: Partial<OverlayTracedPath>, quality: Partial<OverlayTracedPath["quality"]> = {}) {
  return {
    colour: 0,
    choice: true,
    hops: [],
    outcome: "arrives",
    detours: false,
    planned_link_ids: [],
    capacity_bps: 0,
    quality: {
      alive: true,
      taken_by: [],
      left_by: [],
      rtt_ms: null,
      exchange_loss: null,
      load: null,
      ...quality,
    },
    why: [],
    ...change,
  } satisfies OverlayTracedPath;
}

describe("overlay links", () => {
  it("are those that nodes report now", () => {
    const nodes = [reporting("a", false), reporting("c", true, true), node("d")];
    expect(overlayLinks(nodes, [link()])).toEqual([
      { id: "a:to-b", from: "a", to: "b", alive: false, rttMs: 20, loss: 0.01, failures: 3, packets: 7 },
    ]);
    expect([...overlayStates(nodes)]).toEqual([["a:to-b", false]]);
  });

  it("are missing where an overlay node does not report", () => {
    const silent = { ...reporting("e", true), state: null };
    const found = overlayNodes([reporting("a", true), reporting("c", true, true), silent, node("d")]);
    expect(found.members.map(({ id }) => id)).toEqual(["a", "c", "e"]);
    expect(found.silent).toEqual(["c", "e"]);
  });
});

describe("what happened", () => {
  it("is of a link, a path or a node", () => {
    const down = event({ link_id: "a:to-b", interface_down: true });
    expect(`${subjectOf(down)} ${wordsOf(down)}`).toBe("a:to-b failed, its interface is down");
    const left = event({ kind: "path-left", owner: "b", colour: 1, flow_classes: ["voice", "data"] });
    expect(`${subjectOf(left)} ${wordsOf(left)}`).toBe(
      "path 1 to b is worse than another: flows leave it (voice, data)",
    );
    expect(subjectOf(event({ kind: "started" }))).toBe("a");
  });

  it("stands on charts, the oldest first", () => {
    const later = event({ kind: "link-returned", link_id: "a:to-b", at: "2030-01-01T00:00:02Z" });
    const marks = marksOf([later, event({ link_id: "a:to-b" })]);
    expect(marks.map(({ atS, tone }) => [atS - Date.parse(AT) / 1000, tone])).toEqual([
      [0, "bad"],
      [2, "good"],
    ]);
  });
});

describe("a traced path", () => {
  it("says the worst of itself in a word", () => {
    expect(pathState(path({ outcome: "circles" })).text).toBe("circles");
    expect(pathState(path({ outcome: "no-table" })).text).toBe("ends");
    expect(pathState(path({ detours: true }, { alive: false })).text).toBe("failed");
    expect(pathState(path({ detours: true })).text).toBe("detour");
    expect(pathState(path({}, { left_by: ["voice"], taken_by: ["data"] })).text).toBe("worse");
    expect(pathState(path({}, { taken_by: ["voice", "data"] })).text).toBe("taken by voice, data");
    expect(pathState(path({}, { rtt_ms: 20 })).text).toBe("stands by");
    // In the past nobody knows which flows took it.
    expect(pathState(path({})).text).toBe("alive");
    expect(pathState(path({ choice: false })).text).toBe("default");
  });

  it("has figures only where somebody probes it", () => {
    expect(figuresOf(path({}))).toBe("");
    expect(figuresOf(path({}, { rtt_ms: 20, exchange_loss: 0.013, load: 0.5 }))).toBe(
      "20.0 ms RTT, 1.3 % round-trip loss, 50 % of its capacity in use by this node",
    );
  });
});
