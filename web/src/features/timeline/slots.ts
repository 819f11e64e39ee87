/** Time in slots, and what was reserved and used of a link in each. Pure. */
import type { LinkCapacity, RateRequest, Series } from "../../api/types";

export interface Slot {
  fromMs: number;
  untilMs: number;
  /** Greatest share of the link's capacity that was committed; null: not known. */
  reserved: number | null;
  /** Mean share that was sent; null: nothing was heard, or it is still to come. */
  used: number | null;
}

const [SECOND_MS, MINUTE_MS, HOUR_MS] = [1000, 60_000, 3_600_000];
/** Lengths of slots that people count in. */
const LENGTHS_MS = [
  ...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * SECOND_MS),
  ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE_MS),
  ...[1, 2, 4, 6, 12, 24].map((hours) => hours * HOUR_MS),
];
/** As many as a row has room for. */
const MOST = 48;

export const slotLength = (lengthMs: number): number =>
  LENGTHS_MS.find((slot) => lengthMs / slot <= MOST) ?? 24 * HOUR_MS;

/** Edges of the slots of a time; they stand where the clock puts them, so that they stay while time goes on. */
export function slotsOf(fromMs: number, untilMs: number): [number, number][] {
  const length = slotLength(untilMs - fromMs);
  const first = Math.floor(fromMs / length);
  return Array.from({ length: Math.ceil(untilMs / length) - first }, (_, index) => [
    (first + index) * length,
    (first + index + 1) * length,
  ]);
}

/** The greatest rate that was committed between two times; a step holds until the next one. */
export function reservedBps(capacity: LinkCapacity, fromMs: number, untilMs: number): number | null {
  let greatest: number | null = null;
  capacity.steps.forEach((step, index) => {
    const next = capacity.steps[index + 1];
    const [start, end] = [Date.parse(step.start), next ? Date.parse(next.start) : Infinity];
    if (start < untilMs && end > fromMs) greatest = Math.max(greatest ?? 0, step.committed_bps);
  });
  return greatest;
}

/** Until when a request had its rate; what is over was given back when it last changed. */
function endOf(request: RateRequest): number {
  const stated = request.end ? Date.parse(request.end) : Infinity;
  const open = ["HELD", "RESERVED", "ACTIVE"].includes(request.lifecycle);
  return open ? stated : Math.min(stated, Date.parse(request.updated_at));
}

/** The greatest sum of the rates that requests had on a link between two times, with what they are granted now. */
export function grantedBps(requests: RateRequest[], linkId: string, fromMs: number, untilMs: number): number {
  const held = requests
    .filter(({ path }) => path.includes(linkId))
    .map((request) => ({ from: Date.parse(request.start), until: endOf(request), bps: request.granted_bps }))
    .filter(({ from, until }) => from < untilMs && until > fromMs);
  // It can only rise where one of them begins.
  const moments = [fromMs, ...held.map(({ from }) => from).filter((from) => from > fromMs)];
  const at = (moment: number) =>
    held.reduce((sum, { from, until, bps }) => (from <= moment && until > moment ? sum + bps : sum), 0);
  return Math.max(...moments.map(at));
}

/** What was reserved of a link in a slot: until now as requests had it, from now on as the ledger has it. */
export function reservedOf(
  known: { capacity: LinkCapacity | undefined; requests: RateRequest[] | undefined; nowMs: number },
  linkId: string,
  [fromMs, untilMs]: [number, number],
): number | null {
  const { capacity, requests, nowMs } = known;
  const past =
    requests && fromMs < nowMs ? grantedBps(requests, linkId, fromMs, Math.min(untilMs, nowMs)) : null;
  const ahead = capacity && untilMs > nowMs ? reservedBps(capacity, Math.max(fromMs, nowMs), untilMs) : null;
  return past === null || ahead === null ? (past ?? ahead) : Math.max(past, ahead);
}

/** The mean of a series between two times; null without values. */
export function usedBps(series: Series, fromMs: number, untilMs: number): number | null {
  let [sum, count] = [0, 0];
  for (const { at, value } of series.points) {
    const moment = Date.parse(at);
    if (value === null || moment < fromMs || moment >= untilMs) continue;
    sum += value;
    count += 1;
  }
  return count === 0 ? null : sum / count;
}

export function timelineOf(
  link: { id: string; capacity_bps: number },
  known: Parameters<typeof reservedOf>[0] & { used: Series | undefined },
  edges: [number, number][],
): Slot[] {
  const share = (bps: number | null | undefined) =>
    bps === null || bps === undefined || link.capacity_bps === 0 ? null : bps / link.capacity_bps;
  return edges.map(([fromMs, untilMs]) => ({
    fromMs,
    untilMs,
    reserved: share(reservedOf(known, link.id, [fromMs, untilMs])),
    used: share(known.used && usedBps(known.used, fromMs, untilMs)),
  }));
}
