import { expect, it } from "vitest";

import { type FormValues, toBody } from "./formValues";

const values: FormValues = {
  source: "alpha",
  destination: "delta",
  service: "guaranteed",
  rateMbit: 60,
  protocol: "tcp",
  destinationPort: "",
  priority: 5,
  durationMin: 1.5,
  description: "",
};

it("turns megabits and minutes into bits and seconds", () => {
  expect(toBody(values)).toMatchObject({
    guaranteed_bps: 60_000_000,
    duration_s: 90,
    destination_port: null,
    priority: 5,
  });
});

it("asks for no guarantee with the available service", () => {
  expect(toBody({ ...values, service: "available" }).guaranteed_bps).toBe(0);
});
