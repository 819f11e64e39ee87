import { expect, it } from "vitest";

import { request } from "../shared/samples";
import { keepNewest, meanOfSeries } from "./useLive";

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

it("keeps what the stream said while an older answer was on its way", () => {
  const enforced = request({ revision: 3, enforcement: "ENFORCED" });
  const younger = request({ id: "r2", revision: 1, created_at: "2030-01-01T00:00:01Z" });
  const late = { items: [request({ revision: 2 })], next_cursor: null };
  expect(keepNewest(undefined, late)).toBe(late);
  expect(keepNewest({ items: [younger, enforced] }, late).items).toEqual([younger, enforced]);
  expect(keepNewest({ items: [request({ revision: 1 })] }, late).items).toEqual(late.items);
});
