/** What the browser tests share: signing in, axe, and the REST interface and the lab beside the page. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { appendFileSync, mkdirSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

import AxeBuilder from "@axe-core/playwright";
import { expect, type Locator, type Page } from "@playwright/test";

export const BAD_LINK = "bravo:to-charlie";
export const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const CHART = resolve(ROOT, ".venv/bin/chart");
export const PYTHON = resolve(ROOT, ".venv/bin/python");
const BULK = resolve(ROOT, "build/lab/bulk");

export async function signIn(page: Page, path = "/"): Promise<void> {
  await page.goto(path);
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  await expect(page.getByTestId("connection")).toHaveText("live");
}

/** Signs in without the page; for tests that are about something else. */
export async function enter(page: Page): Promise<void> {
  const answer = await page.request.post("/auth/dev-login", { data: { role: "operator" } });
  expect(answer.ok(), await answer.text()).toBe(true);
}

/** Folder of what `make web-test` gathers for its report; elsewhere nothing is noted. */
const PARTS = process.env.CHART_WEB_PARTS;

/** Notes a measured value; the report has the median of what was noted under a name. */
export function note(name: string, value: number, about = ""): void {
  console.log(`    ${name}: ${value}${about ? ` (${about})` : ""}`);
  if (!PARTS) return;
  mkdirSync(PARTS, { recursive: true });
  appendFileSync(join(PARTS, `${name}.jsonl`), `${JSON.stringify({ value, about })}\n`);
}

/** axe finds nothing. `about`: which page and theme, for the report. */
export async function expectAccessible(page: Page, about = ""): Promise<void> {
  const { violations } = await new AxeBuilder({ page })
    .withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"])
    .analyze();
  if (about) note("axe_violations", violations.length, about);
  // Soft: one page's violation does not keep the others from being looked at.
  expect
    .soft(
      violations.map(({ id, nodes }) => [id, nodes.map((node) => node.target)]),
      about,
    )
    .toEqual([]);
}

/** Chooses alpha and delta as the ends in a form. */
export async function chooseEnds(page: Page, form: Locator): Promise<void> {
  await form.getByRole("combobox", { name: "Sender" }).click();
  await page.getByRole("option", { name: "alpha" }).click();
  await form.getByRole("combobox", { name: "Receiver" }).click();
  await page.getByRole("option", { name: "delta" }).click();
}

/** Fills in the form for a rate from alpha to delta; the preview says what would come of it. */
export async function fillForm(page: Page, megabits: number, port: number, description: string) {
  await page.getByRole("link", { name: "Rate requests" }).click();
  await page.getByRole("button", { name: "New request" }).click();
  const form = page.getByRole("dialog");
  await chooseEnds(page, form);
  await form.getByLabel("Guaranteed rate", { exact: true }).fill(String(megabits));
  await form.getByLabel("Receiver's port").fill(String(port));
  await form.getByLabel("Description").fill(description);
  return form;
}

export async function ask(page: Page, megabits: number, port: number, description: string) {
  const form = await fillForm(page, megabits, port, description);
  await expect(form.getByTestId("preview")).toContainText("would be granted");
  await form.getByRole("button", { name: "Request this rate" }).click();
  const row = page.getByRole("row", { name: description }).first();
  await expect(row).toContainText("enforced");
  return row;
}

/** Releases whatever is still granted, so that one test's failure is not the next one's. */
export async function releaseAll(page: Page): Promise<void> {
  const answer = await page.request.get("/v1/rate-requests?lifecycle=ACTIVE");
  if (!answer.ok()) return;
  const { items } = (await answer.json()) as { items: { id: string }[] };
  for (const { id } of items) await page.request.post(`/v1/rate-requests/${id}/release`);
}

/** Changes a part of a node (overlay, tunnel_ends); the rest of it stays. */
export async function changeNode(page: Page, id: string, part: object): Promise<void> {
  const known = (await (await page.request.get(`/v1/nodes/${id}`)).json()) as Record<string, unknown>;
  const { description, addresses, sensor_pod_target, tags, map_position } = known;
  const kept = { description, addresses, sensor_pod_target, tags, map_position };
  const answer = await page.request.put(`/v1/nodes/${id}`, { data: { ...kept, ...part } });
  expect(answer.ok(), await answer.text()).toBe(true);
}

/** Runs `chart lab` with these arguments and returns what it printed. */
export function lab(...words: string[]): string {
  return execFileSync(CHART, ["lab", ...words], { cwd: ROOT, encoding: "utf8", timeout: 60_000 });
}

/** The address of a node itself. */
function address(node: string): string {
  const told = lab("exec", node, "--", "ip", "-4", "-o", "addr", "show", "dev", "lo", "scope", "global");
  const found = /inet ([\d.]+)/.exec(told)?.[1];
  if (!found) throw new Error(`${node} has no address: ${told}`);
  return found;
}

/**
 * Bulk data from alpha to delta: `work` begins when it is connected. Flows to a port with a grant are CHART's, others the
 * default's.
 */
export async function withTraffic(
  { port, seconds }: { port: number; seconds: number },
  work: () => Promise<void>,
): Promise<void> {
  const [source, destination] = [address("alpha"), address("delta")];
  const ends: ChildProcess[] = [];
  const start = (node: string, ...words: string[]) => {
    const child = spawn(CHART, ["lab", "exec", node, "--", BULK, ...words], {
      cwd: ROOT,
      stdio: ["ignore", "ignore", "pipe"],
      detached: true,
    });
    ends.push(child);
    return child;
  };
  try {
    await told(start("delta", "receive", "--listen", `${destination}:${port}`), "listening");
    const connect = ["--connect", `${destination}:${port}`, "--bind", source];
    await told(start("alpha", "send", ...connect, "--duration-s", String(seconds)), "connected");
    await work();
  } finally {
    for (const { pid, exitCode } of ends) if (pid && exitCode === null) stop(pid);
  }
}

/**
 * An elastic tunnel from alpha to delta with bulk data in it: `work` begins once it has reported. Its target is stated as an
 * operator would.
 */
export async function withTunnel(
  page: Page,
  name: string,
  targetBps: number,
  work: () => Promise<void>,
): Promise<void> {
  const [source, destination] = [address("alpha"), address("delta")];
  const inside = "192.0.2.1";
  const ends: ChildProcess[] = [];
  const start = (node: string, ...words: string[]) => {
    const child = spawn(CHART, ["lab", "exec", node, "--", ...words], {
      cwd: ROOT,
      stdio: ["ignore", "ignore", "pipe"],
      detached: true,
    });
    // Read, or a full pipe would stop it.
    child.stderr.resume();
    ends.push(child);
    return child;
  };
  const run = (node: string, ...words: string[]) => lab("exec", node, "--", ...words);
  run("delta", "ip", "address", "add", `${inside}/32`, "dev", "lo");
  try {
    // The nodes' own programs run the ends, with the certificates of their nodes.
    const end = { tunnel: name, interface: "itm-pictures", address: destination };
    await changeNode(page, "delta", { tunnel_ends: [{ ...end, role: "destination", peer_node: "alpha" }] });
    const led = { prefixes: [`${inside}/32`] };
    await changeNode(page, "alpha", {
      tunnel_ends: [{ ...end, role: "origin", peer_node: "delta", ...led }],
    });
    const stated = await page.request.put(`/v1/tunnels/${name}`, {
      data: { controller: "pi", target_bps: targetBps, capacity_bps: 100_000_000 },
    });
    expect(stated.ok(), await stated.text()).toBe(true);
    await expect
      .poll(async () => (await page.request.get(`/v1/tunnels/${name}`)).text(), { timeout: 60_000 })
      .toContain('"connections_established":');
    // Several users: one transfer alone offers less than the tunnel shall carry.
    for (const port of [5401, 5402, 5403, 5404]) {
      await told(start("delta", BULK, "receive", "--listen", `${inside}:${port}`), "listening");
      const through = ["--connect", `${inside}:${port}`, "--bind", source, "--duration-s", "200"];
      await told(start("alpha", BULK, "send", ...through), "connected");
    }
    await work();
  } finally {
    for (const { pid, exitCode } of ends) if (pid && exitCode === null) stop(pid);
    for (const node of ["alpha", "delta"]) await changeNode(page, node, { tunnel_ends: [] });
    await page.request.delete(`/v1/tunnels/${name}`);
    run("delta", "ip", "address", "delete", `${inside}/32`, "dev", "lo");
  }
}

/** Waits until a traffic tool says this word on its standard error. */
function told(tool: ChildProcess, word: string): Promise<void> {
  return new Promise((ready, failed) => {
    let text = "";
    tool.stderr?.on("data", (more: Buffer) => {
      text += more.toString();
      if (text.includes(word)) ready();
    });
    tool.on("exit", () => {
      failed(new Error(`bulk ended before it was ${word}: ${text}`));
    });
  });
}

/** Ends a process group that was started here. */
function stop(pid: number): void {
  try {
    process.kill(-pid, "SIGTERM");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ESRCH") throw error;
  }
}

/** Where `replayed` answers. */
export const REPLAY = "127.0.0.1:18990";
/** So much of what the replaying process said is shown when it ends. */
const SAID_LINES = 40;

export interface Replay {
  /** Ends it; resolves once its address is free again. */
  stop: () => Promise<void>;
  /** Seconds that it was behind the recording at most between then and then (milliseconds since the epoch). */
  behindS: (sinceMs: number, untilMs?: number) => number;
}

/** The real gateway on a recording of a network; rejects with what it said when it does not come up. */
export async function replayed(recording: string): Promise<Replay> {
  const words = ["-m", "support.recorded_network", "replay", recording, "--listen", REPLAY];
  // A gateway has a machine of its own; where it shares one with the browser it goes first, if that is allowed.
  const first = process.getuid?.() === 0 ? ["nice", "-n", "-10"] : [];
  const [program = PYTHON, ...rest] = [...first, PYTHON, ...words];
  const gateway = spawn(program, rest, {
    cwd: resolve(ROOT, "tests"),
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said: string[] = [];
  const behind: { at: number; seconds: number }[] = [];
  let stopped = false;
  await new Promise<void>((ready, failed) => {
    const hear = (line: string) => {
      said.push(line);
      if (said.length > SAID_LINES) said.shift();
      if (line.startsWith("replaying ")) ready();
      const late = /^replay: ([\d.]+) s behind/.exec(line);
      if (late) behind.push({ at: Date.now(), seconds: Number(late[1]) });
    };
    for (const input of [gateway.stdout, gateway.stderr]) createInterface({ input }).on("line", hear);
    gateway.on("error", failed);
    // "close" comes after the last line was read.
    gateway.on("close", (code, signal) => {
      const why = `the replay of ${recording} ended with ${code === null ? (signal ?? "a signal") : `status ${code}`}:\n${said.join("\n")}`;
      failed(new Error(why));
      if (!stopped) console.error(why);
    });
  });
  return {
    stop: async () => {
      stopped = true;
      const ended = new Promise((done) => gateway.once("close", done));
      if (gateway.exitCode === null && gateway.kill("SIGTERM")) await ended;
    },
    behindS: (sinceMs, untilMs = Infinity) =>
      Math.max(0, ...behind.filter(({ at }) => at >= sinceMs && at <= untilMs).map(({ seconds }) => seconds)),
  };
}

/** Keeps the lengths of long tasks (more than 50 ms) in `window.tasks`, from the page's beginning on. */
export async function watchTasks(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const tasks: number[] = [];
    (window as unknown as { tasks: number[] }).tasks = tasks;
    new PerformanceObserver((list) => {
      for (const { duration } of list.getEntries()) tasks.push(duration);
    }).observe({ type: "longtask", buffered: true });
  });
}

/** Keeps largest contentful paint, layout shift and the slowest interaction in `window.vitals`, as web.dev defines them. */
export async function watchVitals(page: Page): Promise<void> {
  await page.addInitScript(() => {
    const vitals = { lcp: 0, cls: 0, inp: 0, slow: [] as string[] };
    (window as unknown as { vitals: typeof vitals }).vitals = vitals;
    const observe = (type: string, each: (entry: PerformanceEntry) => void, more = {}) => {
      new PerformanceObserver((list) => {
        list.getEntries().forEach(each);
      }).observe({ type, buffered: true, ...more });
    };
    observe("largest-contentful-paint", ({ startTime }) => {
      vitals.lcp = startTime;
    });
    // Shifts less than a second apart, five seconds in all at most, are one; the largest counts.
    let [sum, first, last] = [0, 0, 0];
    observe("layout-shift", (entry) => {
      const { value, hadRecentInput } = entry as PerformanceEntry & {
        value: number;
        hadRecentInput: boolean;
      };
      if (hadRecentInput) return;
      if (entry.startTime - last > 1000 || entry.startTime - first > 5000)
        [sum, first] = [0, entry.startTime];
      last = entry.startTime;
      sum += value;
      vitals.cls = Math.max(vitals.cls, sum);
    });
    const interaction = (entry: PerformanceEntry) => {
      const { interactionId, duration } = entry as PerformanceEntry & { interactionId?: number };
      if (!interactionId) return;
      vitals.inp = Math.max(vitals.inp, duration);
      // Which ones, for whoever looks for what takes long.
      const target = (entry as PerformanceEventTiming).target as Element | null;
      const where = target?.getAttribute("aria-label") ?? target?.textContent.slice(0, 20) ?? "gone";
      if (duration > 100) vitals.slow.push(`${entry.name} ${where} ${Math.round(duration)}`);
    };
    observe("event", interaction, { durationThreshold: 16 });
    observe("first-input", interaction);
  });
}
