import { describe, expect, it } from "vitest";

import { formatAge, formatBytes, formatMs, formatRate, formatShare } from "./units";

describe("units", () => {
  it.each([
    [0, "0 b/s"],
    [82_000, "82.0 kb/s"],
    [999_999, "1.00 Mb/s"],
    [94_100_000, "94.1 Mb/s"],
    [4_290_772_992_000, "4.29 Tb/s"],
    [null, "–"],
  ])("formats the rate %s", (bps, text) => {
    expect(formatRate(bps)).toBe(text);
  });

  it("formats shares, times and sizes", () => {
    expect(formatShare(0.05, 1)).toBe("5.0 %");
    expect(formatShare(undefined)).toBe("–");
    expect(formatMs(100_400)).toBe("100 ms");
    expect(formatMs(2_250)).toBe("2.25 ms");
    expect(formatBytes(1500)).toBe("1.5 kB");
  });

  it("says how old something is", () => {
    const now = Date.parse("2030-01-01T00:01:30Z");
    expect(formatAge("2030-01-01T00:01:00Z", now)).toBe("30 s ago");
    expect(formatAge("2030-01-01T00:00:00Z", now)).toBe("1 min ago");
    expect(formatAge(null, now)).toBe("never");
  });
});
