import { describe, expect, it } from "vitest";

import type { LinkCapacity, Series } from "../../api/types";
import { reservedBps, slotLength, slotsOf, timelineOf, usedBps } from "./slots";

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
    const shown = timelineOf(capacity, series, 100, [
      [0, 10_000],
      [10_000, 20_000],
    ]);
    expect(shown.map(({ reserved, used }) => [reserved, used])).toEqual([
      [0, 0.3],
      [0.6, null],
    ]);
    expect(timelineOf(undefined, undefined, 100, [[0, 10]])[0]).toMatchObject({
      reserved: null,
      used: null,
    });
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
