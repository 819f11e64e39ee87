/** Form values -> body of POST /v1/rate-requests. Pure. */
import type { RateRequestBody, ServiceType } from "../../api/types";

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

const numberOrNull = (value: number | string): number | null => (value === "" ? null : Number(value));

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
