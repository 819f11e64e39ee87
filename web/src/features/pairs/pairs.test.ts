import { describe, expect, it } from "vitest";

import type { PairGroup, PairSeries } from "../../api/types";
import {
  chartStep,
  destinationsText,
  figuresOf,
  pairsOf,
  pairText,
  plotted,
  sourcesText,
  wholeStep,
} from "./pairs";

const group = (change: Partial<PairGroup>): PairGroup => ({
  id: "branches",
  revision: 1,
  description: "",
  source_nodes: [],
  destination_nodes: [],
  pairs: [],
  owner: "ann",
  ...change,
});
const at = (minute: number) => new Date(minute * 60_000).toISOString();
const series = (change: Partial<PairSeries>): PairSeries => ({
  source_node: null,
  destination_node: null,
  unit: "us",
  at: [],
  mean: [],
  minimum: [],
  maximum: [],
  count: [],
  p50: [],
  p95: [],
  pairs: [],
  ...change,
});
const range = (minutes: number) => ({ fromMs: 0, untilMs: minutes * 60_000, live: true, label: "" });

describe("the pairs of a group", () => {
  it("are read one a line and written so", () => {
    expect(pairsOf("a,b\n\n  c\td \n")).toEqual([
      { source_node: "a", destination_node: "b" },
      { source_node: "c", destination_node: "d" },
    ]);
    expect(pairsOf("")).toEqual([]);
    expect(pairsOf("a")).toBeNull();
    expect(pairsOf("a b c")).toBeNull();
    expect(pairsOf("a,")).toBeNull();
    expect(pairsOf("a, b")).toEqual([{ source_node: "a", destination_node: "b" }]);
    expect(pairText({ source_node: "a", destination_node: "b" })).toBe("a,b");
  });

  it("are of any node where nothing is named, unless single pairs are", () => {
    expect(sourcesText(group({}))).toBe("any node");
    expect(sourcesText(group({ destination_nodes: ["b"] }))).toBe("any node");
    expect(destinationsText(group({ destination_nodes: ["b"] }))).toBe("b");
    expect(sourcesText(group({ pairs: [{ source_node: "a", destination_node: "b" }] }))).toBe("–");
    expect(sourcesText(group({ source_nodes: ["a", "b", "c", "d", "e", "f", "g"] }))).toBe(
      "a, b, c, d, e and 2 more",
    );
  });
});

describe("the series of a group", () => {
  it("has steps of whole minutes", () => {
    expect(chartStep(range(5))).toBe(60_000);
    expect(chartStep(range(7 * 1440)) % 60_000).toBe(0);
    expect(wholeStep(range(4.5))).toBe(300_000);
    expect(wholeStep(range(7 * 1440))).toBe(86_400_000);
  });

  it("is mean, median and percentile, with a gap where minutes are missing", () => {
    const told = series({ at: [at(0), at(1), at(9)], mean: [1, 2, 3], p50: [4, 5, 6], p95: [7, 8, 9] });
    expect(plotted(told, 60_000)).toEqual([
      [0, 60, 135, 540],
      [1, 2, null, 3],
      [4, 5, null, 6],
      [7, 8, null, 9],
    ]);
    expect(plotted(undefined, 60_000)).toEqual([[], [], [], []]);
  });

  it("weighs a pair's means by their results", () => {
    const told = series({
      source_node: "a",
      destination_node: "b",
      at: [at(0), at(1)],
      mean: [10, 40],
      minimum: [1, 2],
      maximum: [50, 60],
      count: [2, 1],
    });
    expect(figuresOf(told)).toEqual({
      source: "a",
      destination: "b",
      mean: 20,
      minimum: 1,
      maximum: 60,
      count: 3,
      last: at(1),
    });
    expect(figuresOf(series({ source_node: "a", destination_node: "b" }))).toBeNull();
    expect(figuresOf(series({ at: [at(0)], mean: [1], count: [1] }))).toBeNull();
  });
});
