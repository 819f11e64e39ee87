import { expect, it } from "vitest";

import { ApiError } from "../../api/client";
import { request } from "../../shared/samples";
import { CHECK_ENDS, type FormValues, refusedField, toBody, valuesLike } from "./formValues";

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

it("says which end is missing or the same as the other", () => {
  expect(CHECK_ENDS.source("")).toBe("Select the sending node");
  expect(CHECK_ENDS.destination("", values)).toBe("Select the receiving node");
  expect(CHECK_ENDS.destination("alpha", values)).toBe("Select a node other than the sender");
  expect([CHECK_ENDS.source("alpha"), CHECK_ENDS.destination("delta", values)]).toEqual([null, null]);
});

it("finds the field that a refusal is about, if the form has it", () => {
  const refusal = (field: string) =>
    new ApiError({ type: "about:blank", title: "", status: 422, detail: "no", field });
  expect(refusedField(refusal("guaranteed_bps"), values)).toBe("rateMbit");
  expect(refusedField(refusal("dscp"), values)).toBeNull();
  expect(refusedField(new Error("no"), values)).toBeNull();
});

it("begins like another request, or with nothing chosen", () => {
  expect(valuesLike(undefined)).toMatchObject({ source: "", destination: "", rateMbit: 10 });
  const asked = {
    ...request().request,
    guaranteed_bps: 60_000_000,
    destination_port: 5201,
    duration_s: null,
  };
  expect(valuesLike(asked)).toMatchObject({
    source: "a",
    destination: "b",
    rateMbit: 60,
    destinationPort: 5201,
    durationMin: 60,
    description: "copy",
  });
});
