/** Time in slots, and what was reserved and used of a link in each. Pure. */
import type { LinkCapacity, Series } from "../../api/types";

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
  capacity: LinkCapacity | undefined,
  series: Series | undefined,
  capacityBps: number,
  edges: [number, number][],
): Slot[] {
  const share = (bps: number | null | undefined) =>
    bps === null || bps === undefined || capacityBps === 0 ? null : bps / capacityBps;
  return edges.map(([fromMs, untilMs]) => ({
    fromMs,
    untilMs,
    reserved: share(capacity && reservedBps(capacity, fromMs, untilMs)),
    used: share(series && usedBps(series, fromMs, untilMs)),
  }));
}
