/** What the browser tests share: signing in, axe, and the REST interface and the lab beside the page. */
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import AxeBuilder from "@axe-core/playwright";
import { expect, type Page } from "@playwright/test";

export const BAD_LINK = "bravo:to-charlie";
const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), "../..");
const CHART = resolve(ROOT, ".venv/bin/chart");
const BULK = resolve(ROOT, "build/lab/bulk");

export async function signIn(page: Page, path = "/"): Promise<void> {
  await page.goto(path);
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  await expect(page.getByTestId("connection")).toHaveText("live");
}

export async function expectAccessible(page: Page): Promise<void> {
  const { violations } = await new AxeBuilder({ page })
    .withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"])
    .analyze();
  expect(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.target)])).toEqual([]);
}

/** Fills in the form for a rate from alpha to delta; the preview says what would come of it. */
export async function fillForm(page: Page, megabits: number, port: number, description: string) {
  await page.getByRole("link", { name: "Rate requests" }).click();
  await page.getByRole("button", { name: "New request" }).click();
  const form = page.getByRole("dialog");
  await form.getByRole("combobox", { name: "Sender" }).click();
  await page.getByRole("option", { name: "alpha" }).click();
  await form.getByRole("combobox", { name: "Receiver" }).click();
  await page.getByRole("option", { name: "delta" }).click();
  await form.getByLabel("Guaranteed rate").fill(String(megabits));
  await form.getByLabel("Receiver's port").fill(String(port));
  await form.getByLabel("Description").fill(description);
  return form;
}

export async function ask(page: Page, megabits: number, port: number, description: string) {
  const form = await fillForm(page, megabits, port, description);
  await expect(form.getByTestId("preview")).toContainText("would be granted");
  await form.getByRole("button", { name: "Ask for this rate" }).click();
  const row = page.getByRole("row", { name: description }).first();
  await expect(row).toContainText("enforced", { timeout: 5_000 });
  return row;
}

/** Releases whatever is still granted, so that one test's failure is not the next one's. */
export async function releaseAll(page: Page): Promise<void> {
  const answer = await page.request.get("/v1/rate-requests?lifecycle=ACTIVE");
  if (!answer.ok()) return;
  const { items } = (await answer.json()) as { items: { id: string }[] };
  for (const { id } of items) await page.request.post(`/v1/rate-requests/${id}/release`);
}

/** Runs `chart lab` with these arguments and returns what it printed. */
export function lab(...words: string[]): string {
  return execFileSync(CHART, ["lab", ...words], { cwd: ROOT, encoding: "utf8", timeout: 20_000 });
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
