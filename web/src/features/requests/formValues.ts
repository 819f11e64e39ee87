/** What the forms that ask for a rate share: checks, limits of fields, and their values as the body of a request. Pure. */
import { ApiError } from "../../api/client";
import type { RateRequest, RateRequestBody, ServiceType } from "../../api/types";

export interface FormValues {
  source: string;
  destination: string;
  service: ServiceType;
  rateMbit: number | string;
  protocol: "tcp" | "udp";
  destinationPort: number | string;
  priority: number | string;
  durationMin: number | string;
  description: string;
}

const NEW: FormValues = {
  source: "",
  destination: "",
  service: "variable",
  rateMbit: 10,
  protocol: "tcp",
  destinationPort: "",
  priority: 0,
  durationMin: 60,
  description: "",
};

/** What the form begins with: what another request asked for, or nothing much. */
export function valuesLike(asked: RateRequest["request"] | undefined): FormValues {
  if (!asked) return NEW;
  const { source, destination, service, protocol, priority, description } = asked;
  return {
    source,
    destination,
    service,
    rateMbit: asked.guaranteed_bps / 1e6,
    protocol: protocol ?? NEW.protocol,
    destinationPort: asked.destination_port ?? "",
    priority,
    durationMin: asked.duration_s ? asked.duration_s / 60 : NEW.durationMin,
    description,
  };
}

export const numberOrNull = (value: number | string): number | null => (value === "" ? null : Number(value));

export const SERVICES: ServiceType[] = ["guaranteed", "variable", "available", "maximum"];

/** A form's check of its two ends: what is wrong with the field, or null. */
export const CHECK_ENDS = {
  source: (value: string) => (value ? null : "Select the sending node"),
  destination: (value: string, { source }: { source: string }) =>
    !value ? "Select the receiving node" : value === source ? "Select a node other than the sender" : null,
};

/** Field of the REST body -> field of a form. */
const FORM_FIELDS: Record<string, string> = {
  source: "source",
  destination: "destination",
  guaranteed_bps: "rateMbit",
  minimum_bps: "rateMbit",
  source_port: "sourcePort",
  destination_port: "destinationPort",
  dscp: "dscp",
  protocol: "protocol",
  priority: "priority",
  duration_s: "durationMin",
  end: "durationMin",
};

/** The field of a form with these values that a refusal is about; null when it names none of them. */
export function refusedField<Values extends object>(error: Error, values: Values): keyof Values | null {
  const named = error instanceof ApiError ? FORM_FIELDS[error.problem.field ?? ""] : undefined;
  return named !== undefined && named in values ? (named as keyof Values) : null;
}

/** Limits of the kit's NumberInput. */
export const PORT = { min: 1, max: 65_535, allowDecimal: false } as const;
export const PRIORITY = { min: 0, max: 255, allowDecimal: false } as const;
export const MEGABITS = { suffix: " Mb/s", min: 0, decimalScale: 3 } as const;

export function toBody(values: FormValues): RateRequestBody {
  const minutes = numberOrNull(values.durationMin);
  return {
    source: values.source,
    destination: values.destination,
    protocol: values.protocol,
    source_port: null,
    destination_port: numberOrNull(values.destinationPort),
    service: values.service,
    guaranteed_bps:
      values.service === "available" ? 0 : Math.round((numberOrNull(values.rateMbit) ?? 0) * 1e6),
    minimum_bps: null,
    priority: numberOrNull(values.priority) ?? 0,
    delay_priority: 0,
    burst_tolerance: 3,
    traffic_class: "foreground",
    hold: false,
    duration_s: minutes === null ? null : Math.round(minutes * 60),
    description: values.description,
  };
}
