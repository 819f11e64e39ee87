import { readFileSync } from "node:fs";

import { expect, it } from "vitest";

import { ApiError } from "../../api/client";
import { request } from "../../shared/samples";
import { CHECK_ENDS, FORM_FIELDS, type FormValues, refusedField, toBody, valuesLike } from "./formValues";
import { MORE } from "./MoreOptions";

const values: FormValues = {
  ...valuesLike(undefined),
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
  expect(refusedField(refusal("tags.site"), values)).toBe("tags");
  expect(refusedField(refusal("maximum_bps"), { rateMbit: 1 })).toBe("rateMbit");
  expect(refusedField(refusal("dscp"), { rateMbit: 1 })).toBeNull();
  expect(refusedField(new Error("no"), values)).toBeNull();
});

it("begins like another request, or with nothing chosen", () => {
  expect(valuesLike(undefined)).toMatchObject({ source: "", destination: "", rateMbit: 10 });
  const asked = {
    ...request().request,
    guaranteed_bps: 60_000_000,
    minimum_bps: null,
    maximum_bps: null,
    destination_port: 5201,
    source_port: null,
    protocol: null,
    dscp: 0,
    priority: 3,
    delay_priority: 128,
    burst_tolerance: 1,
    traffic_class: "background" as const,
    callback_url: null,
    avoid: ["c"],
    tags: { site: "lab" },
    duration_s: null,
  };
  expect(valuesLike(asked)).toMatchObject({
    source: "a",
    destination: "b",
    rateMbit: 60,
    destinationPort: 5201,
    durationMin: 60,
    protocol: "any",
    dscp: 0,
    delayPriority: 128,
    background: true,
    avoid: ["c"],
    tags: ["site=lab"],
    maximumMbit: "",
    description: "copy",
  });
});

/** The fields of the body of a rate request, by the gateway's own document. */
function fieldsOfBody(): string[] {
  const document = JSON.parse(readFileSync("openapi.json", "utf8")) as {
    components: { schemas: Record<string, { properties: object }> };
  };
  return Object.keys(document.components.schemas.RateRequestBody?.properties ?? {});
}

it("reaches every field that the gateway takes", () => {
  expect(Object.keys(FORM_FIELDS).sort()).toEqual(fieldsOfBody().sort());
  const known = Object.keys(valuesLike(undefined));
  for (const names of Object.values(FORM_FIELDS)) expect(known).toContain(names[0]);
  for (const name of MORE) expect(known).toContain(name);
});

it("sends what was filled in, every field of it", () => {
  const filled: FormValues = {
    ...values,
    service: "variable",
    minimumMbit: 10,
    maximumMbit: 80,
    protocol: "udp",
    sourcePort: 5000,
    destinationPort: 5201,
    dscp: 46,
    cgroup: 77,
    delayPriority: 200,
    burstTolerance: 1,
    start: "2030-01-02T03:04",
    hold: true,
    callbackUrl: "https://app.example/chart",
    avoid: ["bravo"],
    tags: ["site=lab", "of=a=b"],
    description: "copy",
  };
  const body = toBody(filled);
  // An end is stated as a duration.
  expect(Object.keys(body).sort()).toEqual(
    fieldsOfBody()
      .filter((name) => name !== "end")
      .sort(),
  );
  expect(body).toMatchObject({
    minimum_bps: 10_000_000,
    maximum_bps: 80_000_000,
    protocol: "udp",
    dscp: 46,
    cgroup_id: 77,
    delay_priority: 200,
    burst_tolerance: 1,
    hold: true,
    avoid: ["bravo"],
    tags: { site: "lab", of: "a=b" },
  });
  expect(new Date(body.start ?? "").getTime()).toBe(new Date(2030, 0, 2, 3, 4).getTime());
  expect(Object.values(body).every((value) => value !== null && value !== "")).toBe(true);
});

it("asks for nothing that the gateway must refuse", () => {
  const maximum = toBody({
    ...values,
    service: "maximum",
    maximumMbit: 40,
    minimumMbit: 1,
    background: true,
  });
  expect(maximum).toMatchObject({
    guaranteed_bps: 0,
    minimum_bps: null,
    maximum_bps: 40_000_000,
    traffic_class: "foreground",
  });
  expect(toBody({ ...values, maximumMbit: 1 }).maximum_bps).toBeNull();
  const background = toBody({ ...values, background: true, priority: 9 });
  expect(background).toMatchObject({ traffic_class: "background", priority: 0 });
});
