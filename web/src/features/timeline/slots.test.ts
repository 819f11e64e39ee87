import { describe, expect, it } from "vitest";

import type { LinkCapacity, Series } from "../../api/types";
import { request } from "../../shared/samples";
import { grantedBps, reservedBps, reservedOf, slotLength, slotsOf, timelineOf, usedBps } from "./slots";

const at = (second: number) => new Date(second * 1000).toISOString();
const capacity = {
  steps: [
    { start: at(0), committed_bps: 0 },
    { start: at(10), committed_bps: 60 },
    { start: at(20), committed_bps: 10 },
  ],
} as LinkCapacity;
const series = {
  points: [
    { at: at(1), value: 20 },
    { at: at(2), value: 40 },
    { at: at(12), value: null },
  ],
} as Series;

describe("the timeline of a link", () => {
  it("takes the greatest reservation of a slot, also of a step that began before", () => {
    expect(reservedBps(capacity, 0, 5000)).toBe(0);
    expect(reservedBps(capacity, 5000, 15_000)).toBe(60);
    expect(reservedBps(capacity, 12_000, 13_000)).toBe(60);
    expect(reservedBps(capacity, 30_000, 40_000)).toBe(10);
    expect(reservedBps({ steps: [] } as unknown as LinkCapacity, 0, 1)).toBeNull();
  });

  it("takes the mean of what was sent, and nothing where nothing was heard", () => {
    expect(usedBps(series, 0, 10_000)).toBe(30);
    expect(usedBps(series, 10_000, 20_000)).toBeNull();
  });

  it("shows both as shares of the capacity", () => {
    const known = { capacity, requests: undefined, nowMs: 0, used: series };
    const shown = timelineOf({ id: "a:to-b", capacity_bps: 100 }, known, [
      [0, 10_000],
      [10_000, 20_000],
    ]);
    expect(shown.map(({ reserved, used }) => [reserved, used])).toEqual([
      [0, 0.3],
      [0.6, null],
    ]);
    const nothing = { capacity: undefined, requests: undefined, nowMs: 0, used: undefined };
    expect(timelineOf({ id: "a:to-b", capacity_bps: 100 }, nothing, [[0, 10]])[0]).toMatchObject({
      reserved: null,
      used: null,
    });
  });

  it("knows what was reserved before now from what requests had", () => {
    const had = (start: number, end: number | null, change: object = {}) =>
      request({ start: at(start), end: end === null ? null : at(end), granted_bps: 60, ...change });
    const requests = [
      had(0, 10),
      had(12, null, { lifecycle: "RELEASED", updated_at: at(14), granted_bps: 20 }),
      had(13, null, { granted_bps: 5 }),
      had(0, null, { path: ["b:to-a"] }),
    ];
    const greatest = (from: number, until: number) =>
      grantedBps(requests, "a:to-b", from * 1000, until * 1000);
    expect([greatest(0, 5), greatest(10, 12), greatest(10, 20), greatest(14, 20)]).toEqual([60, 0, 25, 5]);
    // A slot that the present divides: what was, and what the ledger says of the rest.
    const known = { capacity, requests, nowMs: 15_000 };
    expect(reservedOf(known, "a:to-b", [14_000, 16_000])).toBe(60);
    expect(reservedOf(known, "a:to-b", [10_000, 15_000])).toBe(25);
    expect(reservedOf(known, "a:to-b", [20_000, 30_000])).toBe(10);
  });

  it("has slots that people count in, and that stay where they are", () => {
    expect([5, 15, 60, 360, 1440].map((minutes) => slotLength(minutes * 60_000) / 60_000)).toEqual([
      1 / 6,
      0.5,
      2,
      10,
      30,
    ]);
    const now = slotsOf(1_000_003, 1_300_003);
    expect(now[0]).toEqual([1_000_000, 1_010_000]);
    expect(now.at(-1)).toEqual([1_300_000, 1_310_000]);
    expect(slotsOf(1_004_000, 1_304_000)).toEqual(now);
  });
});
