/** What the forms that ask for a rate share: checks, limits of fields, and their values as the body of a request. Pure. */
import { ApiError } from "../../api/client";
import type { RateRequest, RateRequestBody, ServiceType } from "../../api/types";

export interface FormValues {
  source: string;
  destination: string;
  service: ServiceType;
  rateMbit: number | string;
  minimumMbit: number | string;
  maximumMbit: number | string;
  protocol: "tcp" | "udp" | "any";
  sourcePort: number | string;
  destinationPort: number | string;
  dscp: number | string;
  cgroup: number | string;
  background: boolean;
  priority: number | string;
  delayPriority: number | string;
  burstTolerance: number | string;
  /** Local time as the browser's field has it; empty: now. */
  start: string;
  durationMin: number | string;
  hold: boolean;
  callbackUrl: string;
  avoid: string[];
  /** "name=value". */
  tags: string[];
  description: string;
}

const NEW: FormValues = {
  source: "",
  destination: "",
  service: "variable",
  rateMbit: 10,
  minimumMbit: "",
  maximumMbit: "",
  protocol: "tcp",
  sourcePort: "",
  destinationPort: "",
  dscp: "",
  cgroup: "",
  background: false,
  priority: 0,
  delayPriority: 0,
  burstTolerance: 0,
  start: "",
  durationMin: 60,
  hold: false,
  callbackUrl: "",
  avoid: [],
  tags: [],
  description: "",
};

/** What the form begins with: what another request asked for, but from now on, or nothing much. */
export function valuesLike(asked: RateRequest["request"] | undefined): FormValues {
  if (!asked) return NEW;
  const { source, destination, service, protocol, priority, description } = asked;
  const mbit = (bps: number | null) => (bps === null ? "" : bps / 1e6);
  return {
    ...NEW,
    source,
    destination,
    service,
    rateMbit: asked.guaranteed_bps / 1e6,
    minimumMbit: mbit(asked.minimum_bps),
    maximumMbit: mbit(asked.maximum_bps),
    protocol: protocol ?? "any",
    sourcePort: asked.source_port ?? "",
    destinationPort: asked.destination_port ?? "",
    dscp: asked.dscp ?? "",
    background: asked.traffic_class === "background",
    priority,
    delayPriority: asked.delay_priority,
    burstTolerance: asked.burst_tolerance,
    durationMin: asked.duration_s ? asked.duration_s / 60 : NEW.durationMin,
    callbackUrl: asked.callback_url ?? "",
    avoid: asked.avoid,
    tags: Object.entries(asked.tags).map(([name, value]) => `${name}=${value}`),
    description,
  };
}

export const numberOrNull = (value: number | string): number | null => (value === "" ? null : Number(value));

export const SERVICES: ServiceType[] = ["guaranteed", "variable", "available", "maximum"];

/** Whether a service guarantees a rate, and whether it has an upper bound of its own. */
export const guarantees = (service: ServiceType) => service === "guaranteed" || service === "variable";
export const bounded = (service: ServiceType) => service !== "guaranteed";

/** A form's check of its two ends: what is wrong with the field, or null. */
export const CHECK_ENDS = {
  source: (value: string) => (value ? null : "Select the sending node"),
  destination: (value: string, { source }: { source: string }) =>
    !value ? "Select the receiving node" : value === source ? "Select a node other than the sender" : null,
};

/** What the form of a request checks itself; everything else is for the gateway to say. */
export const CHECK_REQUEST = {
  ...CHECK_ENDS,
  maximumMbit: (value: number | string, { service }: FormValues) =>
    service === "maximum" && value === "" ? "Set the maximum rate: the service needs one" : null,
  tags: (value: string[]) => (value.every((tag) => /^[^=]+=/.test(tag)) ? null : "Write name=value"),
};

/** Field of the REST body -> fields of forms that state it, the first that a form has. */
export const FORM_FIELDS: Record<string, string[]> = {
  source: ["source"],
  destination: ["destination"],
  protocol: ["protocol"],
  source_port: ["sourcePort"],
  destination_port: ["destinationPort"],
  dscp: ["dscp"],
  cgroup_id: ["cgroup"],
  service: ["service"],
  guaranteed_bps: ["rateMbit"],
  minimum_bps: ["minimumMbit", "rateMbit"],
  maximum_bps: ["maximumMbit", "rateMbit"],
  priority: ["priority"],
  delay_priority: ["delayPriority"],
  burst_tolerance: ["burstTolerance"],
  start: ["start"],
  // An end is stated as a duration.
  end: ["durationMin"],
  duration_s: ["durationMin"],
  traffic_class: ["background"],
  hold: ["hold"],
  callback_url: ["callbackUrl"],
  avoid: ["avoid"],
  tags: ["tags"],
  description: ["description"],
};

/** The field of a form with these values that a refusal is about; null when it names none of them. */
export function refusedField<Values extends object>(error: Error, values: Values): keyof Values | null {
  const field = error instanceof ApiError ? (error.problem.field ?? "").split(/[.[]/)[0] : "";
  const found = FORM_FIELDS[field ?? ""]?.find((name) => name in values);
  return found === undefined ? null : (found as keyof Values);
}

/** Limits of the kit's NumberInput. */
export const PORT = { min: 1, max: 65_535, allowDecimal: false } as const;
export const PRIORITY = { min: 0, max: 255, allowDecimal: false } as const;
export const MEGABITS = { suffix: " Mb/s", min: 0, decimalScale: 3 } as const;

const bps = (megabits: number | string) => {
  const value = numberOrNull(megabits);
  return value === null ? null : Math.round(value * 1e6);
};

/** The body of a request; what a service or a class does not take is left out of it. */
export function toBody(
  stated: Partial<FormValues> & Pick<FormValues, "source" | "destination">,
): RateRequestBody {
  const values = { ...NEW, ...stated };
  const minutes = numberOrNull(values.durationMin);
  const guaranteed = guarantees(values.service);
  const background = guaranteed && values.background;
  return {
    source: values.source,
    destination: values.destination,
    protocol: values.protocol === "any" ? null : values.protocol,
    source_port: numberOrNull(values.sourcePort),
    destination_port: numberOrNull(values.destinationPort),
    dscp: numberOrNull(values.dscp),
    cgroup_id: numberOrNull(values.cgroup),
    service: values.service,
    guaranteed_bps: guaranteed ? (bps(values.rateMbit) ?? 0) : 0,
    minimum_bps: guaranteed ? bps(values.minimumMbit) : null,
    maximum_bps: bounded(values.service) ? bps(values.maximumMbit) : null,
    priority: background ? 0 : (numberOrNull(values.priority) ?? 0),
    delay_priority: numberOrNull(values.delayPriority) ?? 0,
    burst_tolerance: numberOrNull(values.burstTolerance) ?? 0,
    traffic_class: background ? "background" : "foreground",
    start: values.start === "" ? null : new Date(values.start).toISOString(),
    duration_s: minutes === null ? null : Math.round(minutes * 60),
    hold: values.hold,
    callback_url: values.callbackUrl === "" ? null : values.callbackUrl,
    avoid: values.avoid,
    tags: Object.fromEntries(
      values.tags.map((tag) => [tag.slice(0, tag.indexOf("=")), tag.slice(tag.indexOf("=") + 1)]),
    ),
    description: values.description,
  };
}
