/** The state of a request in a word. Pure. */
import type { RateRequest } from "../../api/types";
import type { Tone } from "../../shared/State";

const OPEN: RateRequest["lifecycle"][] = ["HELD", "RESERVED", "ACTIVE"];

export const isOpen = (request: RateRequest): boolean => OPEN.includes(request.lifecycle);

export function stateOf(request: RateRequest): { tone: Tone; text: string } {
  if (!isOpen(request)) return { tone: "off", text: request.lifecycle.toLowerCase() };
  if (request.lifecycle === "HELD") return { tone: "busy", text: "held" };
  if (request.lifecycle === "RESERVED") return { tone: "busy", text: "reserved" };
  if (request.service_state === "PREEMPTED") return { tone: "bad", text: "pre-empted" };
  if (request.enforcement === "FAILED") return { tone: "bad", text: "not enforced" };
  if (request.enforcement === "ENFORCED")
    return request.service_state === "DEGRADED"
      ? { tone: "busy", text: "enforced, degraded" }
      : { tone: "good", text: "enforced" };
  return { tone: "busy", text: "pending" };
}

/** What the sender's kernel has for an open request, bit/s; null: nothing yet. */
export function kernelRate(request: RateRequest): number | null {
  const rate = Math.max(0, ...request.confirmations.map((confirmation) => confirmation.kernel_rate_bps));
  return isOpen(request) && rate > 0 ? rate : null;
}
