/** var/web/report.json from what the browser tests noted: `node tests/report.mjs FOLDER`. A figure without a value fails. */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

const folder = process.argv[2];
if (!folder) throw new Error("say which folder: node tests/report.mjs FOLDER");

/** Name, unit, goal, how many values at least, and what is made of them. */
const FIGURES = [
  ["axe_violations", "violations", "<= 0", 30, (values) => values.reduce((sum, value) => sum + value, 0)],
  ["lcp_ms", "ms", "<= 2500", 5, median],
  ["inp_ms", "ms", "<= 200", 5, median],
  ["cls", "score", "<= 0.1", 5, median],
  ["frame_script_p95_ms", "ms", "<= 16", 5, median],
  ["impairment_visible_ms", "ms", "<= 2000", 5, median],
  ["request_enforced_ms", "ms", "<= 1000", 5, median],
  ["bundle_kb", "kB", "<= 300", 1, median],
  // A day of a busy network in one chart: from the address to the drawn chart, and the longest stall with a pointer on it.
  ["day_chart_shown_ms", "ms", "<= 2500", 1, median],
  ["day_longest_task_ms", "ms", "<= 200", 1, median],
];

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length % 2
    ? sorted[(sorted.length - 1) / 2]
    : (sorted[sorted.length / 2 - 1] + sorted[sorted.length / 2]) / 2;
}

function noted(name) {
  const path = join(folder, "parts", `${name}.jsonl`);
  if (!existsSync(path)) return [];
  return readFileSync(path, "utf8")
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line).value);
}

let failed = false;
const figures = FIGURES.map(([name, unit, goal, least, make]) => {
  const values = noted(name);
  const value = values.length >= least ? make(values) : null;
  const met = value !== null && value <= Number(goal.slice(3));
  failed ||= !met;
  const words =
    value === null ? `not measured: ${values.length} of at least ${least} values` : `${value} ${unit}`;
  console.log(`${name.padEnd(24)} ${words.padEnd(24)} goal ${goal}${met ? "" : "   MISSED"}`);
  return { name, value, unit, goal, peer: null };
});
writeFileSync(
  join(folder, "report.json"),
  `${JSON.stringify({ command: "make web-test", figures }, null, 1)}\n`,
);
process.exitCode = failed ? 1 : 0;
