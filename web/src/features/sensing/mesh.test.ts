import { describe, expect, it } from "vitest";

import type { CoveredPair } from "../../api/types";
import { cellKey, cellWords, coverageMatrix, freshShare, sensorsOf, sensorText } from "./mesh";

const PAIR: CoveredPair = {
  source_node: "a",
  destination_node: "b",
  sensor: "ping",
  metric: "rtt_us",
  period_ms: 10_000,
  value: 1,
  unit: "us",
  measured_at: "2026-03-01T09:30:00Z",
  fresh: true,
  error: "",
};

describe("sensors of a mesh", () => {
  it("read as they are written", () => {
    const text = "ping=10,count=5\npathchirp=300";
    const sensors = sensorsOf(text) ?? [];
    expect(sensors).toEqual([
      { sensor: "ping", period_ms: 10_000, parameters: { count: "5" } },
      { sensor: "pathchirp", period_ms: 300_000, parameters: {} },
    ]);
    expect(sensors.map((one) => sensorText({ ...one, parameters: one.parameters ?? {} })).join("\n")).toBe(
      text,
    );
  });

  it.each(["", "ping", "ping=0", "host=10", "ping=10,count"])("do not read: %s", (text) => {
    expect(sensorsOf(text)).toBeNull();
  });
});

describe("coverage", () => {
  it("is a matrix of pairs with all their sensors", () => {
    const stale = { ...PAIR, sensor: "pathchirp", fresh: false, measured_at: null };
    const matrix = coverageMatrix({ mesh: "m", pairs: 1, fresh: 0, items: [PAIR, stale] });
    expect(matrix.nodes).toEqual(["a", "b"]);
    const pair = matrix.cells.get(cellKey("a", "b")) ?? [];
    expect(freshShare(pair)).toBe(0.5);
    expect(cellWords(pair, Date.parse("2026-03-01T09:30:07Z"))).toBe(
      "ping 7 s old, pathchirp never measured",
    );
  });

  it("tells why a run failed", () => {
    expect(cellWords([{ ...PAIR, error: "unreachable", fresh: false }], 0)).toBe("ping failed (unreachable)");
  });
});
