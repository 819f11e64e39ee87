import { expect, it } from "vitest";

import { findingWords, subjectWords } from "./words";

const alert = { subject: "a,b,loss_ratio", value: 0.1, threshold: 0.02 };

it("names metric and path, and writes a limit with the metric's unit", () => {
  expect(subjectWords(alert.subject)).toBe("a → b, Round-trip loss");
  const summary = "loss_ratio from a to b: p50 is 0.1 ratio, above 0.02 ratio";
  expect(findingWords({ ...alert, summary })).toBe("10.0 %, above 2.0 %");
});

it("knows the share of runs that got nothing from a value", () => {
  const summary = "rtt_us from a to b: loss_ratio is 0.5, above 0.1";
  expect(findingWords({ subject: "a,b,rtt_us", value: 0.5, threshold: 0.1, summary })).toBe(
    "50.0 % lost, above 10.0 % lost",
  );
});

it("leaves other words as they are", () => {
  const summary = "loss_ratio from a to b: was never measured";
  expect(findingWords({ ...alert, summary })).toBe("was never measured");
  expect(subjectWords("link,x")).toBe("link, x");
});
