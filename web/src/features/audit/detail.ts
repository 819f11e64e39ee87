/** The detail of an audit record in words: names carry their units, and values are written as people read them. Pure. */
import { formatBytes, formatRate } from "../../shared/units";

type Detail = Record<string, unknown>;

/** Later than this, in microseconds, is a moment; less is a length of time. */
const MOMENT_US = 1e15;
const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "short", timeStyle: "medium" });

/** Names of units, and what a number of them looks like. */
const UNITS: [ending: string, words: (value: number) => string][] = [
  ["_bps", formatRate],
  ["_bytes", formatBytes],
  ["_us", (value) => (value > MOMENT_US ? CLOCK.format(value / 1000) : `${value} µs`)],
  ["_ms", (value) => `${value} ms`],
  ["_s", (value) => `${value} s`],
];
/** Large integers come as text, and members of an enumeration as their full names. */
const NUMBER = /^-?\d+$/;
const MEMBER = /^[A-Z]+(_[A-Z0-9]+)+$/;

function valueWords(name: string, value: unknown): string {
  if (value === null || value === undefined || value === "") return "none";
  const unit = UNITS.find(([ending]) => name.endsWith(ending));
  if (typeof value === "number") return unit ? unit[1](value) : String(value);
  if (typeof value === "string") {
    if (unit && NUMBER.test(value)) return unit[1](Number(value));
    return MEMBER.test(value) ? value.toLowerCase().replaceAll("_", " ") : value;
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value))
    return value.length === 0 ? "none" : value.map((one) => valueWords(name, one)).join(", ");
  return `(${listed(value as Detail)})`;
}

const nameWords = (name: string): string => name.replace(/_(bps|bytes|us|ms|s)$/, "").replaceAll("_", " ");

function listed(detail: Detail): string {
  return Object.entries(detail)
    .map(([name, value]) => `${nameWords(name)} ${valueWords(name, value)}`)
    .join("; ");
}

const isDetail = (value: unknown): value is Detail =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** What is another than before: "target 4.00 Mb/s, was 2.00 Mb/s". */
function changed(before: Detail, after: Detail): string {
  return Object.entries(after)
    .filter(([name, value]) => name !== "revision" && JSON.stringify(value) !== JSON.stringify(before[name]))
    .map(
      ([name, value]) =>
        `${nameWords(name)} ${valueWords(name, value)}, was ${valueWords(name, before[name])}`,
    )
    .join("; ");
}

/** "granted 60.0 Mb/s; path a:to-b, b:to-c"; empty where nothing is told. */
export function detailWords(detail: Detail): string {
  const { before, after, ...rest } = detail;
  if (!isDetail(after)) return listed(detail);
  const told = isDetail(before) ? changed(before, after) : listed(after);
  return [told, listed(rest)].filter(Boolean).join("; ");
}
