/** The samples of the last minutes of one link, with gaps where nothing was heard. Pure. */
import type uPlot from "uplot";

import type { LinkLoad, Series } from "../../api/types";

export const WINDOW_S = 300;
/** Longer silence than this is drawn as a gap. */
export const GAP_S = 3;

/** Sensing runs come every few seconds or minutes; a silence up to this is none in any case. */
export const SENSED_GAP_S = 15;
/** So many usual distances between two probes without one are a silence. */
const PROBES_MISSED = 2.5;

export interface Row {
  /** Seconds since the epoch. */
  at: number;
  values: (number | null)[];
}

export const LOAD_METRICS = ["sent_bps", "explicit_rate_bps", "legacy_bps", "queue_bytes"] as const;

export function rowOfLoad(load: LinkLoad): Row {
  return { at: Date.parse(load.at) / 1000, values: LOAD_METRICS.map((metric) => load[metric]) };
}

/** Rows of several series that were fetched for the same steps. */
export function rowsOfSeries(series: Series[]): Row[] {
  const rows = new Map<number, (number | null)[]>();
  series.forEach((one, index) => {
    for (const point of one.points) {
      const at = Date.parse(point.at) / 1000;
      const values = rows.get(at) ?? series.map(() => null);
      values[index] = point.value;
      rows.set(at, values);
    }
  });
  return [...rows].sort(([a], [b]) => a - b).map(([at, values]) => ({ at, values }));
}

/** Appends newer rows, forgets what left the window, and keeps time strictly rising. */
export function append(rows: Row[], newer: Row[], nowS: number): Row[] {
  const result = rows.filter((row) => row.at >= nowS - WINDOW_S);
  for (const row of newer) {
    const last = result.at(-1);
    if (last && row.at <= last.at) continue;
    if (row.at >= nowS - WINDOW_S) result.push(row);
  }
  return result;
}

/** Archived rows up to the first live one, then the live ones. */
export function join(archived: Row[], live: Row[]): Row[] {
  const first = live[0]?.at ?? Infinity;
  return [...archived.filter((row) => row.at < first), ...live];
}

/** Column arrays for the chart; a null row is put into every silence longer than `gapS`. */
export function columns(rows: Row[], width: number, gapS = GAP_S): uPlot.AlignedData {
  const times: number[] = [];
  const values: (number | null)[][] = Array.from({ length: width }, () => []);
  let previous: number | null = null;
  for (const row of rows) {
    if (previous !== null && row.at - previous > gapS) {
      times.push(previous + gapS / 2);
      for (const column of values) column.push(null);
    }
    times.push(row.at);
    values.forEach((column, index) => column.push(row.values[index] ?? null));
    previous = row.at;
  }
  return [times, ...values];
}

/** The silence between probes that is an outage: longer than what lies between two of them most of the time, seconds. */
export function probeGap(times: number[], leastS = SENSED_GAP_S): number {
  const apart = times.slice(1).map((at, index) => at - (times[index] ?? at));
  apart.sort((a, b) => a - b);
  return Math.max(leastS, PROBES_MISSED * (apart[Math.floor(apart.length / 2)] ?? 0));
}

interface Known {
  at: number;
  value: number;
}

/** Values at other times than their own: on the line between two of them, null outside and in a silence. */
function onto(points: Known[], axis: number[], gapS: number): (number | null)[] {
  let next = 0;
  return axis.map((at) => {
    while ((points[next]?.at ?? Infinity) < at) next += 1;
    const [before, after] = [points[next - 1], points[next]];
    if (after?.at === at) return after.value;
    if (!before || !after || after.at - before.at > gapS) return null;
    return before.value + ((after.value - before.value) * (at - before.at)) / (after.at - before.at);
  });
}

/** Columns of series that were heard at times of their own; `gapOf`: a longer silence than this is a gap, seconds. */
export function aligned(series: Series[], gapOf: (times: number[]) => number): uPlot.AlignedData {
  const known = series.map(({ points }) =>
    points.flatMap(({ at, value }): Known[] =>
      value === null ? [] : [{ at: Date.parse(at) / 1000, value }],
    ),
  );
  const gaps = known.map((points) => gapOf(points.map(({ at }) => at)));
  const times = new Set<number>();
  known.forEach((points, index) => {
    const gapS = gaps[index] ?? 0;
    points.forEach(({ at }, place) => {
      times.add(at);
      // A moment without a value, or the line would go on.
      if ((points[place + 1]?.at ?? at) - at > gapS) times.add(at + gapS / 2);
    });
  });
  const axis = [...times].sort((a, b) => a - b);
  return [axis, ...known.map((points, index) => onto(points, axis, gaps[index] ?? 0))];
}
