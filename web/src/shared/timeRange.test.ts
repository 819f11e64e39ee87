import { describe, expect, it } from "vitest";

import { parseRange, PRESETS, refetchEvery, resolveRange, stepFor } from "./timeRange";

const NOW = Date.parse("2030-01-01T12:00:00Z");
const [FROM, UNTIL] = ["2030-01-01T10:00:00.000Z", "2030-01-01T11:00:00.000Z"];

describe("the time range in the address", () => {
  it("takes a length or two times, and nothing else", () => {
    expect(parseRange({ range: "1h", other: 1 })).toEqual({ range: "1h" });
    expect(parseRange({ from: FROM, until: UNTIL, range: "1h" })).toEqual({ from: FROM, until: UNTIL });
    expect(parseRange({ range: "5m" })).toEqual({});
    for (const wrong of [
      { range: "2 years" },
      { range: 5 },
      { from: UNTIL, until: FROM },
      { from: FROM },
      { from: "yesterday", until: UNTIL },
      { from: "1990-01-01T00:00:00Z", until: UNTIL },
    ])
      expect(parseRange(wrong)).toEqual({});
  });

  it("ends now, or where it is fixed", () => {
    expect(resolveRange({}, NOW)).toMatchObject({ fromMs: NOW - 300_000, untilMs: NOW, live: true });
    expect(resolveRange({ range: "24h" }, NOW).fromMs).toBe(NOW - 86_400_000);
    const fixed = resolveRange({ from: FROM, until: UNTIL }, NOW);
    expect(fixed).toMatchObject({ fromMs: Date.parse(FROM), untilMs: Date.parse(UNTIL), live: false });
    expect(refetchEvery(fixed)).toBe(false);
  });

  it("asks for no more points than a screen shows", () => {
    for (const { ms } of PRESETS) {
      expect(ms / stepFor(ms)).toBeLessThanOrEqual(1500);
      expect(ms / stepFor(ms)).toBeGreaterThan(100);
    }
  });
});
