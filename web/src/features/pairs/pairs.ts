/** Groups of pairs: their pairs as text, and their series as columns. Pure. */
import type uPlot from "uplot";

import type { PairGroup, PairGroupBody, PairSeries } from "../../api/types";
import { stepFor, type TimeRange } from "../../shared/timeRange";
import { columns } from "../links/window";

type Pair = NonNullable<PairGroupBody["pairs"]>[number];

const MINUTE_MS = 60_000;
const DAY_MS = 1440 * MINUTE_MS;
/** Steps that are missing: more of them are a silence. */
const STEPS_MISSED = 2.5;

export const pairText = ({ source_node, destination_node }: Pair): string =>
  `${source_node},${destination_node}`;

/** One pair a line, two nodes with a comma or a space between them; null: a line does not read so. */
export function pairsOf(text: string): Pair[] | null {
  const found: Pair[] = [];
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const [source_node, destination_node, ...more] = line.trim().split(/\s*,\s*|\s+/);
    if (!source_node || !destination_node || more.length > 0) return null;
    found.push({ source_node, destination_node });
  }
  return found;
}

const SHOWN = 5;
const some = (names: string[], none: string) =>
  names.length === 0
    ? none
    : names.slice(0, SHOWN).join(", ") + (names.length > SHOWN ? ` and ${names.length - SHOWN} more` : "");

/** With single pairs alone, neither sources nor destinations mean anything. */
const crossed = ({ source_nodes, destination_nodes, pairs }: PairGroup): boolean =>
  source_nodes.length > 0 || destination_nodes.length > 0 || pairs.length === 0;

export const sourcesText = (group: PairGroup): string =>
  some(group.source_nodes, crossed(group) ? "any node" : "–");
export const destinationsText = (group: PairGroup): string =>
  some(group.destination_nodes, crossed(group) ? "any node" : "–");

/** Length of the steps of a group's chart: whole minutes, since these are the roll-ups; milliseconds. */
export const chartStep = ({ fromMs, untilMs }: TimeRange): number =>
  Math.max(MINUTE_MS, stepFor(untilMs - fromMs));

/** One step for the whole range, or days where that is longer; milliseconds. */
export const wholeStep = ({ fromMs, untilMs }: TimeRange): number =>
  Math.min(DAY_MS, Math.ceil((untilMs - fromMs) / MINUTE_MS) * MINUTE_MS);

/** Mean of all results, then median and 95th percentile of the pairs' means; a silence is a gap. */
export function plotted(series: PairSeries | undefined, stepMs: number): uPlot.AlignedData {
  const rows = (series?.at ?? []).map((at, place) => ({
    at: Date.parse(at) / 1000,
    values: [series?.mean[place] ?? null, series?.p50[place] ?? null, series?.p95[place] ?? null],
  }));
  return columns(rows, 3, (stepMs / 1000) * STEPS_MISSED);
}

export interface PairFigures {
  source: string;
  destination: string;
  /** Over all results of the range. */
  mean: number;
  minimum: number;
  maximum: number;
  count: number;
  /** Start of the last step with results. */
  last: string;
}

/** A pair's figures over its steps; null: no results. */
export function figuresOf(series: PairSeries): PairFigures | null {
  const { source_node, destination_node, at, mean, minimum, maximum, count } = series;
  const total = count.reduce((sum, one) => sum + one, 0);
  const last = at.at(-1);
  if (!source_node || !destination_node || last === undefined || total === 0) return null;
  return {
    source: source_node,
    destination: destination_node,
    mean: mean.reduce((sum, one, place) => sum + one * (count[place] ?? 0), 0) / total,
    minimum: Math.min(...minimum),
    maximum: Math.max(...maximum),
    count: total,
    last,
  };
}
