/** All pairs of one metric as a matrix, and how its cells are shown. Pure. */
import type { Estimate } from "../../api/types";
import { formatMs, formatRate, formatShare } from "../../shared/units";

export interface Metric {
  id: string;
  label: string;
  /** Where there is little room. */
  short: string;
  format: (value: number | null) => string;
  /** Whether more is worse. */
  rising: boolean;
}

export const METRICS: Metric[] = [
  { id: "rtt_us", label: "Round-trip time", short: "RTT", format: formatMs, rising: true },
  {
    id: "loss_ratio",
    label: "Round-trip loss",
    short: "Loss",
    format: (value) => formatShare(value, 1),
    rising: true,
  },
  {
    id: "available_bandwidth_bps",
    label: "Available bandwidth",
    short: "Available",
    format: formatRate,
    rising: false,
  },
  { id: "capacity_bps", label: "Capacity", short: "Capacity", format: formatRate, rising: false },
];

export const metricOf = (id: string | undefined): Metric =>
  METRICS.find((metric) => metric.id === id) ?? (METRICS[0] as Metric);

export interface Matrix {
  nodes: string[];
  cells: Map<string, Estimate>;
  low: number;
  high: number;
}

export const pair = (source: string, destination: string) => `${source},${destination}`;

/** At most `most` nodes, those of the most estimates first, in the order of their names. */
export function matrixOf(estimates: Estimate[], most = 40): Matrix {
  const known = new Map<string, number>();
  for (const { source_node, destination_node } of estimates)
    for (const node of [source_node, destination_node]) known.set(node, (known.get(node) ?? 0) + 1);
  const nodes = [...known]
    .sort(([a, n], [b, m]) => m - n || a.localeCompare(b))
    .slice(0, most)
    .map(([node]) => node)
    .sort();
  const shown = new Set(nodes);
  const cells = new Map<string, Estimate>();
  let [low, high] = [Infinity, -Infinity];
  for (const one of estimates) {
    if (!shown.has(one.source_node) || !shown.has(one.destination_node)) continue;
    cells.set(pair(one.source_node, one.destination_node), one);
    low = Math.min(low, one.value);
    high = Math.max(high, one.value);
  }
  return { nodes, cells, low, high };
}

export const isMeasured = (estimate: Estimate): boolean => estimate.method === "measured";

/** 0 good to 1 bad. Round trips and rates differ by orders of magnitude: the scale is logarithmic where it can be. */
export function badness(value: number, { low, high }: Matrix, rising: boolean): number {
  if (high <= low) return 0;
  const place = low > 0 ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return rising ? place : 1 - place;
}

/** Light enough that dark ink reads on every one of them, in both themes. */
const SCALE = ["cyan-1", "green-1", "yellow-1", "orange-2", "red-2"].map(
  (name) => `var(--mantine-color-${name})`,
);

export function cellColor(badnessOfCell: number): string {
  const index = Math.min(SCALE.length - 1, Math.max(0, Math.floor(badnessOfCell * SCALE.length)));
  return SCALE[index] ?? "var(--mantine-color-gray-1)";
}

export const intervalOf = (estimate: Estimate, { format }: Metric): string =>
  `${format(estimate.interval_low)} to ${format(estimate.interval_high)}`;
