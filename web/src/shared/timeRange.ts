/** The time range of every page, in its address: a length that ends now, or two fixed times. Pure. */

export interface RangeSearch {
  range?: Preset;
  /** RFC 3339; both or none. */
  from?: string;
  until?: string;
}

export interface TimeRange {
  fromMs: number;
  untilMs: number;
  /** Whether it ends now, and so moves on. */
  live: boolean;
  label: string;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

export const PRESETS = [
  { value: "5m", label: "5 minutes", ms: 5 * MINUTE_MS },
  { value: "15m", label: "15 minutes", ms: 15 * MINUTE_MS },
  { value: "1h", label: "1 hour", ms: HOUR_MS },
  { value: "6h", label: "6 hours", ms: 6 * HOUR_MS },
  { value: "24h", label: "24 hours", ms: 24 * HOUR_MS },
  { value: "7d", label: "7 days", ms: 168 * HOUR_MS },
] as const;
export type Preset = (typeof PRESETS)[number]["value"];
export const DEFAULT_PRESET: Preset = "5m";

/** Longer than the archive answers for. */
const LONGEST_MS = 31 * 24 * HOUR_MS;
/** As many points as a wide screen can show of a chart: a day has one for each minute. */
const POINTS = 1500;
const STEPS_MS = [
  1000,
  2000,
  5000,
  10_000,
  30_000,
  MINUTE_MS,
  5 * MINUTE_MS,
  15 * MINUTE_MS,
  HOUR_MS,
  6 * HOUR_MS,
];

const presetOf = (value: unknown) => PRESETS.find((preset) => preset.value === value);

/** What an address says, without what makes no sense: such an address shows the default range. */
export function parseRange(search: Record<string, unknown>): RangeSearch {
  const { from, until } = search;
  if (typeof from === "string" && typeof until === "string") {
    const length = Date.parse(until) - Date.parse(from);
    if (length > 0 && length <= LONGEST_MS) return { from, until };
  }
  const preset = presetOf(search.range);
  return preset && preset.value !== DEFAULT_PRESET ? { range: preset.value } : {};
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });

export function resolveRange(search: RangeSearch, nowMs: number): TimeRange {
  if (search.from && search.until) {
    const [fromMs, untilMs] = [Date.parse(search.from), Date.parse(search.until)];
    return { fromMs, untilMs, live: false, label: `${CLOCK.format(fromMs)} to ${CLOCK.format(untilMs)}` };
  }
  const preset = presetOf(search.range) ?? PRESETS[0];
  return { fromMs: nowMs - preset.ms, untilMs: nowMs, live: true, label: `last ${preset.label}` };
}

/** Length of the archive's steps for a chart of this length, milliseconds. */
export function stepFor(lengthMs: number): number {
  return STEPS_MS.find((step) => lengthMs / step <= POINTS) ?? STEPS_MS[STEPS_MS.length - 1] ?? HOUR_MS;
}

/** How often a chart of this length is worth fetching anew, milliseconds; false: it does not change. */
export function refetchEvery(range: TimeRange): number | false {
  return range.live ? Math.max(5000, stepFor(range.untilMs - range.fromMs)) : false;
}
