import { expect, it } from "vitest";

import { detailWords } from "./detail";

it("writes values with the units that their names carry", () => {
  expect(
    detailWords({
      granted_bps: 60_000_000,
      queue_bytes: 2000,
      interval_us: 100,
      period_ms: 5,
      for_s: 60,
      epoch: 3,
    }),
  ).toBe("granted 60.0 Mb/s; queue 2.0 kB; interval 100 µs; period 5 ms; for 60 s; epoch 3");
});

it("writes moments as the clock has them", () => {
  expect(detailWords({ expires_at_us: Date.UTC(2030, 5, 1, 12) * 1000 })).toMatch(/^expires at 01\/06\/2030/);
});

it("says what there is not, and what is within something else", () => {
  expect(detailWords({})).toBe("");
  expect(detailWords({ reason: "", path: [], tags: { team: "a" }, hold: false, links: ["x", "y"] })).toBe(
    "reason none; path none; tags (team a); hold no; links x, y",
  );
});

it("says of a change what is another than before, and of something new what it is", () => {
  const before = { target_bps: "2000000", controller: "TUNNEL_CONTROLLER_PI", revision: 1 };
  const after = { ...before, target_bps: "4000000", revision: 2 };
  expect(detailWords({ before, after })).toBe("target 4.00 Mb/s, was 2.00 Mb/s");
  expect(detailWords({ before: null, after })).toBe(
    "target 4.00 Mb/s; controller tunnel controller pi; revision 2",
  );
});
