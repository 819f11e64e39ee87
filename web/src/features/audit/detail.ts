/** The detail of an audit record in words: names carry their units, and values are written as people read them. Pure. */
import { formatBytes, formatRate } from "../../shared/units";

/** Later than this, in microseconds, is a moment; less is a length of time. */
const MOMENT_US = 1e15;
const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "short", timeStyle: "medium" });

function valueWords(name: string, value: unknown): string {
  if (value === null || value === undefined || value === "") return "none";
  if (typeof value === "number") {
    if (name.endsWith("_bps")) return formatRate(value);
    if (name.endsWith("_bytes")) return formatBytes(value);
    if (name.endsWith("_us")) return value > MOMENT_US ? CLOCK.format(value / 1000) : `${value} µs`;
    if (name.endsWith("_ms")) return `${value} ms`;
    if (name.endsWith("_s")) return `${value} s`;
    return String(value);
  }
  if (typeof value === "string") return value;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value))
    return value.length === 0 ? "none" : value.map((one) => valueWords(name, one)).join(", ");
  return `(${detailWords(value as Record<string, unknown>)})`;
}

const nameWords = (name: string): string => name.replace(/_(bps|bytes|us|ms|s)$/, "").replaceAll("_", " ");

/** "granted 60.0 Mb/s; path a:to-b, b:to-c"; empty where nothing is told. */
export function detailWords(detail: Record<string, unknown>): string {
  return Object.entries(detail)
    .map(([name, value]) => `${nameWords(name)} ${valueWords(name, value)}`)
    .join("; ");
}
