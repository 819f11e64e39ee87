import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { inTurn } from "./inTurn";

describe("inTurn", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  it("does one piece in a task, in the order asked for, without what was taken back", () => {
    const done: string[] = [];
    const note = (name: string) => inTurn(() => done.push(name));
    note("a");
    const takeBack = note("b");
    note("c");
    expect(done).toEqual([]);
    takeBack();
    vi.advanceTimersToNextTimer();
    expect(done).toEqual(["a"]);
    vi.advanceTimersToNextTimer();
    expect(done).toEqual(["a", "c"]);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("goes on after a piece that failed", () => {
    const done: string[] = [];
    inTurn(() => {
      throw new Error("no canvas");
    });
    inTurn(() => done.push("next"));
    expect(() => vi.advanceTimersToNextTimer()).toThrow("no canvas");
    vi.advanceTimersToNextTimer();
    expect(done).toEqual(["next"]);
  });
});
