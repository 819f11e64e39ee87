/** The state of a request in a word. Pure. */
import type { RateRequest } from "../../api/types";
import type { Tone } from "../../shared/State";

const OPEN: RateRequest["lifecycle"][] = ["HELD", "RESERVED", "ACTIVE"];

export const isOpen = (request: RateRequest): boolean => OPEN.includes(request.lifecycle);

const STATES: Record<RateRequest["state"], { tone: Tone; text: string }> = {
  HELD: { tone: "busy", text: "held" },
  RESERVED: { tone: "busy", text: "reserved" },
  PENDING: { tone: "busy", text: "pending" },
  ENFORCED: { tone: "good", text: "enforced" },
  NO_MATCHING_FLOW: { tone: "busy", text: "no matching flow" },
  OFF_PATH: { tone: "bad", text: "off its path" },
  DEGRADED: { tone: "busy", text: "degraded" },
  PREEMPTED: { tone: "bad", text: "pre-empted" },
  FAILED: { tone: "bad", text: "not enforced" },
  RELEASED: { tone: "off", text: "released" },
  EXPIRED: { tone: "off", text: "expired" },
  CANCELLED: { tone: "off", text: "cancelled" },
};

export const stateOf = (request: RateRequest): { tone: Tone; text: string } => STATES[request.state];

/** Why it is in its state: what the nodes say, or that no flow matches. */
export const whyOf = (request: RateRequest): string => request.reason || request.warning;

/** What the sender's kernel has for an open request, bit/s; null: nothing yet. */
export function kernelRate(request: RateRequest): number | null {
  const rate = Math.max(0, ...request.confirmations.map((confirmation) => confirmation.kernel_rate_bps));
  return isOpen(request) && rate > 0 ? rate : null;
}
