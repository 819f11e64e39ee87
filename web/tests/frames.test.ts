import { describe, expect, it } from "vitest";

import { scriptTimes, type TraceEvent } from "./frames";

const MAIN = { pid: 1, tid: 1 };
const event = (name: string, atMs: number, durMs?: number, more: Partial<TraceEvent> = {}): TraceEvent => ({
  name,
  ph: durMs === undefined ? "I" : "X",
  ts: atMs * 1000,
  ...(durMs === undefined ? {} : { dur: durMs * 1000 }),
  ...MAIN,
  ...more,
});
const frame = (atMs: number) => event("BeginMainThreadFrame", atMs);

describe("script time of frames", () => {
  it("adds up what ran between two frames, and what is within something else once", () => {
    const times = scriptTimes([
      frame(0),
      event("TimerFire", 1, 4),
      event("FunctionCall", 2, 3),
      event("FunctionCall", 8, 2),
      frame(16),
      event("FireAnimationFrame", 17, 5),
      frame(33),
    ]);
    expect(times).toEqual([6, 5]);
  });

  it("leaves out other threads, what is no script, and what no frame followed", () => {
    const times = scriptTimes([
      event("FunctionCall", -5, 3),
      frame(0),
      event("FunctionCall", 1, 9, { tid: 2 }),
      event("Paint", 2, 9),
      frame(16),
      event("FunctionCall", 20, 7),
    ]);
    expect(times).toEqual([0]);
  });

  it("has none without frames", () => {
    expect(scriptTimes([event("FunctionCall", 1, 2)])).toEqual([]);
  });
});
