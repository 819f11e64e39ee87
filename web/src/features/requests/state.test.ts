import { expect, it } from "vitest";

import { request } from "../../shared/samples";
import { stateOf, whyOf } from "./state";

it("says that no flow matches, and which would", () => {
  const quiet = request({
    state: "NO_MATCHING_FLOW",
    enforcement: "ENFORCED",
    warning: "no flow matches: tcp from 10.0.0.1/32 to 10.0.0.2/32",
  });
  expect(stateOf(quiet)).toEqual({ tone: "busy", text: "no matching flow" });
  expect(whyOf(quiet)).toMatch(/^no flow matches: tcp/);
  expect(whyOf(request({ reason: "waiting for a" }))).toBe("waiting for a");
});

it("shows no enforcement of what is over", () => {
  const over = request({ state: "RELEASED", lifecycle: "RELEASED", enforcement: "ENDED" });
  expect(stateOf(over)).toEqual({ tone: "off", text: "released" });
});
