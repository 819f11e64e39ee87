import { describe, expect, it } from "vitest";

import type { Series } from "../api/types";
import { plot } from "./useSeries";

const series = (...seconds: number[]): Series => ({
  unit: "us",
  points: seconds.map((second) => ({
    at: new Date(second * 1000).toISOString(),
    value: second,
    minimum: second,
    maximum: second,
    count: 1,
  })),
});
const gaps = ([times, values]: ReturnType<typeof plot>) =>
  [...times].filter((_, index) => values?.[index] === null).length;

describe("history as columns", () => {
  it("goes on between probes that are some seconds apart, though steps are shorter", () => {
    expect(gaps(plot([series(0, 2, 4, 14, 16)], 1000, "measurement"))).toBe(0);
    expect(gaps(plot([series(0, 2, 4, 24, 26)], 1000, "measurement"))).toBe(1);
  });

  it("knows probes that come once a minute from an outage", () => {
    expect(gaps(plot([series(0, 60, 120, 180)], 1000, "measurement"))).toBe(0);
    expect(gaps(plot([series(0, 60, 120, 600, 660)], 1000, "measurement"))).toBe(1);
  });

  it("draws a gap in what is reported all the time after a few steps", () => {
    expect(gaps(plot([series(0, 1, 2, 8, 9)], 1000, "link"))).toBe(1);
    expect(gaps(plot([series(0, 60, 120, 180)], 60_000, "link"))).toBe(0);
  });

  it("takes a step without a value for no step", () => {
    const holes = series(0, 2, 4);
    holes.points.splice(1, 0, {
      at: new Date(1000).toISOString(),
      value: null,
      minimum: null,
      maximum: null,
      count: 0,
    });
    expect(gaps(plot([holes], 1000, "measurement"))).toBe(0);
  });

  it("lets series that were heard at other times go on beside each other", () => {
    const [times, kernel, sent] = plot([series(0, 30), series(10, 20)], 1000, "grant");
    expect(times).toEqual([0, 10, 20, 30]);
    expect(kernel).toEqual([0, 10, 20, 30]);
    expect(sent).toEqual([null, 10, 20, null]);
  });
});
