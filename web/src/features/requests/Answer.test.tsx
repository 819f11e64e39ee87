import { screen } from "@testing-library/react";
import { expect, it } from "vitest";

import type { Preview } from "../../api/types";
import { link, renderInApp } from "../../shared/samples";
import { acceptedWords, Answer } from "./Answer";

const AT = "2030-01-01T10:00:00Z";
const ANSWER: Preview = {
  granted: false,
  granted_bps: 0,
  path: ["a:to-b"],
  bottleneck_link_id: "a:to-b",
  floor_bps: 1_000_000,
  ceiling_bps: 40_000_000,
  preempts: 0,
  waits_until: null,
  windows: [{ start: AT, end: "2030-01-01T11:00:00Z", free_bps: 90_000_000 }],
  refusal: {
    type: "about:blank",
    title: "Refused",
    status: 409,
    detail: "The path is full.",
    suggestions: ["Wait."],
  },
};

it("says why something is refused, what would do, and when", () => {
  renderInApp(<Answer answer={ANSWER} links={[link()]} testId="answer" />);
  const said = screen.getByTestId("answer");
  for (const words of [
    "This would be refused",
    "The path is full.",
    "Between 1.00 Mb/s and 40.0 Mb/s would be accepted.",
    "90.0 Mb/s free.",
  ])
    expect(said).toHaveTextContent(words);
  expect(said).not.toHaveTextContent("Wait.");
});

it("passes on what is suggested where no rate at all would do", () => {
  renderInApp(
    <Answer answer={{ ...ANSWER, floor_bps: null, ceiling_bps: null }} links={[link()]} testId="answer" />,
  );
  expect(screen.getByTestId("answer")).toHaveTextContent("Wait.");
});

it("says over which way something is granted, and who pays for it", () => {
  const granted = { ...ANSWER, granted: true, granted_bps: 5_000_000, preempts: 2, refusal: null };
  renderInApp(<Answer answer={granted} links={[link()]} testId="answer" />);
  const said = screen.getByTestId("answer");
  expect(said).toHaveTextContent(
    "5.00 Mb/s guaranteed over a → b; 2 requests of lower priority would be pre-empted.",
  );
  expect(said).not.toHaveTextContent("Possible from");
});

it("says until when a rate drains on the path", () => {
  const granted = { ...ANSWER, granted: true, granted_bps: 5_000_000, waits_until: AT, refusal: null };
  renderInApp(<Answer answer={granted} links={[link()]} testId="answer" />);
  expect(screen.getByTestId("answer")).toHaveTextContent(
    `in force at ${new Date(AT).toLocaleTimeString("en-GB")} at the latest`,
  );
});

it("has words for one limit alone, and none for none", () => {
  expect(acceptedWords({ ...ANSWER, floor_bps: null })).toBe("Up to 40.0 Mb/s would be accepted.");
  expect(acceptedWords({ ...ANSWER, ceiling_bps: null })).toBe("At least 1.00 Mb/s would be accepted.");
  expect(acceptedWords({ ...ANSWER, floor_bps: null, ceiling_bps: null })).toBeNull();
});
