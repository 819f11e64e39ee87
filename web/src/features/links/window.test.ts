import { describe, expect, it } from "vitest";

import { append, columns, join, probeGap, rowsOfSeries, SENSED_GAP_S, WINDOW_S } from "./window";

const point = (at: string, value: number) => ({ at, value, minimum: value, maximum: value, count: 1 });

describe("window of samples", () => {
  it("keeps time rising and forgets what is too old", () => {
    const rows = append([{ at: 0, values: [1] }], [{ at: WINDOW_S, values: [2] }], WINDOW_S + 10);
    expect(rows).toEqual([{ at: WINDOW_S, values: [2] }]);
    expect(append(rows, [{ at: WINDOW_S - 1, values: [3] }], WINDOW_S + 10)).toEqual(rows);
  });

  it("draws a silence as a gap", () => {
    const [times, values] = columns(
      [
        { at: 1, values: [10] },
        { at: 2, values: [11] },
        { at: 9, values: [12] },
      ],
      1,
    );
    expect(times).toHaveLength(4);
    expect(values).toEqual([10, 11, null, 12]);
  });

  it("joins series by time", () => {
    const rows = rowsOfSeries([
      { unit: "bps", points: [point("1970-01-01T00:00:01Z", 5)] },
      {
        unit: "bps",
        points: [point("1970-01-01T00:00:01Z", 6), point("1970-01-01T00:00:02Z", 7)],
      },
    ]);
    expect(rows).toEqual([
      { at: 1, values: [5, 6] },
      { at: 2, values: [null, 7] },
    ]);
  });

  it("goes on live where the archive ends", () => {
    const row = (at: number) => ({ at, values: [at] });
    expect(join([row(1), row(2), row(3)], [row(2.5), row(4)]).map(({ at }) => at)).toEqual([1, 2, 2.5, 4]);
    expect(join([row(1)], [])).toEqual([row(1)]);
  });

  it("takes a silence for an outage by how far probes usually are apart", () => {
    expect(probeGap([])).toBe(SENSED_GAP_S);
    expect(probeGap([0, 2, 4, 40])).toBe(SENSED_GAP_S);
    expect(probeGap([0, 60, 120, 900])).toBe(150);
  });
});
