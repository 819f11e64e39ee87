import { expect, it } from "vitest";

import { meanOfSeries } from "./useLive";

const point = (value: number | null, count: number) => ({
  at: "2030-01-01T00:00:00Z",
  value,
  minimum: value,
  maximum: value,
  count,
});

it("weights every step by the values behind it", () => {
  expect(meanOfSeries({ unit: "ratio", points: [point(0.1, 1), point(0, 3), point(null, 9)] })).toBeCloseTo(
    0.025,
  );
  expect(meanOfSeries({ unit: "ratio", points: [] })).toBeNull();
});
