import { describe, expect, it } from "vitest";

import type { Estimate } from "../../api/types";
import { badness, cellColor, isMeasured, matrixOf, METRICS, metricOf, pair } from "./matrix";

const estimate = (source: string, destination: string, value: number, method = "measured") =>
  ({ source_node: source, destination_node: destination, value, method }) as Estimate;

describe("the all-pairs matrix", () => {
  const matrix = matrixOf([estimate("b", "a", 1000), estimate("a", "b", 100_000, "landmark")]);

  it("has nodes in order and a cell per estimate", () => {
    expect(matrix.nodes).toEqual(["a", "b"]);
    expect(matrix.cells.get(pair("a", "b"))?.value).toBe(100_000);
    expect(matrix.cells.get(pair("a", "a"))).toBeUndefined();
    expect([...matrix.cells.values()].map(isMeasured)).toEqual([true, false]);
  });

  it("shows the nodes that most is known of when there are too many", () => {
    const estimates = [
      estimate("a", "b", 1),
      estimate("b", "c", 1),
      estimate("c", "d", 1),
      estimate("b", "d", 1),
    ];
    expect(matrixOf(estimates, 2).nodes).toEqual(["b", "c"]);
    expect(matrixOf([], 2)).toMatchObject({ nodes: [], low: Infinity });
  });

  it("colours from good to bad, over orders of magnitude", () => {
    expect(badness(1000, matrix, true)).toBe(0);
    expect(badness(10_000, matrix, true)).toBeCloseTo(0.5);
    expect(badness(100_000, matrix, false)).toBe(0);
    expect(badness(5, { ...matrix, low: 5, high: 5 }, true)).toBe(0);
    expect(badness(0.05, { ...matrix, low: 0, high: 0.1 }, true)).toBe(0.5);
    expect(cellColor(0)).not.toBe(cellColor(1));
    expect(cellColor(NaN)).toMatch(/gray/);
  });

  it("falls back to a metric that there is", () => {
    expect(metricOf("nonsense")).toBe(METRICS[0]);
    expect(metricOf("loss_ratio").format(0.05)).toBe("5.0 %");
  });
});
