/**
 * Every page in both themes: it opens, nothing on it failed, axe finds nothing, and a narrow screen need not be moved
 * sideways. Then its forms and the palette. `make web-test` counts what axe found.
 */
import { readFileSync } from "node:fs";

import { expect, type Page, test } from "@playwright/test";

import { clear, furnish, SCHEMES, trustNodes, visit, type Visit, wear } from "./everyPage";
import { chooseEnds, expectAccessible, releaseAll, withTraffic, withTunnel } from "./support";

const PHONE = { width: 390, height: 844 };
const DESK = { width: 1360, height: 900 };

const TUNNEL = "pages";
/** CHART_PAGES=security,audit: only these are looked at, while working on them. */
const CHOSEN = process.env.CHART_PAGES?.split(",");

/** What reaches beyond the right edge of the page, where that makes the page wider than the screen. */
function overflow(): string[] {
  const root = document.documentElement;
  if (root.scrollWidth <= window.innerWidth) return [];
  const scrolls = (one: Element | null): boolean =>
    one !== null &&
    one !== root &&
    (getComputedStyle(one).overflowX !== "visible" || scrolls(one.parentElement));
  return [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > window.innerWidth && !scrolls(one.parentElement))
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.slice(0, 30)}`)
    .slice(-5)
    .concat(`${root.scrollWidth - window.innerWidth} px`);
}

async function examine(page: Page, one: Visit) {
  await visit(page, one);
  for (const scheme of SCHEMES) {
    await wear(page, scheme);
    await expectAccessible(page, `${one.name} ${scheme}`);
  }
  await page.setViewportSize(PHONE);
  // Charts follow the width of the page a moment later.
  const tooWide = () => page.evaluate(overflow);
  await expect.soft.poll(tooWide, { message: `${one.name} on a narrow screen`, timeout: 30_000 }).toEqual([]);
  await page.setViewportSize(DESK);
}

test("every page is accessible in both themes, and fits a narrow screen", async ({ page }) => {
  // Each of eighteen pages is looked at twice by axe, which takes some seconds on a slow machine.
  test.setTimeout(600_000);
  try {
    const pages = await furnish(page, TUNNEL);
    await withTunnel(page, TUNNEL, 4_000_000, async () => {
      for (const one of pages)
        if (!CHOSEN || CHOSEN.includes(one.name)) await test.step(one.name, () => examine(page, one));
    });
  } finally {
    await clear(page);
    await releaseAll(page);
  }
});

test("what asks before it does something is accessible in both themes", async ({ page }) => {
  test.setTimeout(240_000);
  const pages = await furnish(page);
  const request = pages.find(({ name }) => name === "request");
  const ask = async (about: string, title: RegExp) => {
    await expect(page.getByRole("dialog", { name: title })).toBeVisible();
    for (const scheme of SCHEMES) {
      await wear(page, scheme);
      await expectAccessible(page, `${about} ${scheme}`);
    }
  };
  try {
    if (!request) throw new Error("there is no page of a request");
    await visit(page, request);
    await page.getByRole("button", { name: /^Release / }).click();
    await ask("release", /Release this rate/);
    await page.goto("/qos");
    await page.getByTestId("enforcement-of-alpha").getByText("observe").click();
    await ask("switch", /Switch alpha to observe/);
  } finally {
    await clear(page);
    await releaseAll(page);
  }
});

const FORMS = [
  ["/requests?form=true", null, "New rate request"],
  ["/qos", "New rule", "New rule"],
  ["/alerts", "New rule", "New alert rule"],
  ["/security", "Enrol a node", "Enrol a node"],
  ["/security", "New next hop", "New next hop"],
  ["/security", "New neighbouring domain", "New neighbouring domain"],
  ["/security", "New policy", "New policy"],
] as const;

test("forms, palette and signing in are accessible in both themes", async ({ page }) => {
  test.setTimeout(240_000);
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
  for (const scheme of SCHEMES) {
    await wear(page, scheme);
    await expectAccessible(page, `sign in ${scheme}`);
  }
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  await expect(page.getByTestId("connection")).toHaveText("live");
  for (const [path, button, title] of FORMS) {
    await page.goto(path);
    if (button) await page.getByRole("button", { name: button }).click();
    await expect(page.getByRole("dialog", { name: title })).toBeVisible();
    for (const scheme of SCHEMES) {
      await wear(page, scheme);
      await expectAccessible(page, `form of ${path} ${scheme}`);
    }
  }
  await page.goto("/");
  await expect(page.getByTestId("connection")).toHaveText("live");
  await page.keyboard.press("Control+K");
  await expect(page.getByRole("textbox", { name: /Search pages/ })).toBeVisible();
  for (const scheme of SCHEMES) {
    await wear(page, scheme);
    await expectAccessible(page, `palette ${scheme}`);
  }
});

test("a request is asked for like another one, and released on its page", async ({ page }) => {
  test.setTimeout(180_000);
  const pages = await furnish(page);
  const request = pages.find(({ name }) => name === "request");
  if (!request) throw new Error("there is no page of a request");
  try {
    await visit(page, request);
    await expect(page.getByText("application: backup")).toBeVisible();
    await page.getByRole("button", { name: "New request like this" }).click();
    const form = page.getByRole("dialog", { name: "New rate request" });
    await expect(form.getByLabel("Guaranteed rate", { exact: true })).toHaveValue("60 Mb/s");
    await expect(form.getByLabel("Receiver's port")).toHaveValue("5201");
    await expect(form.getByTestId("preview")).toBeVisible();
    await visit(page, request);
    await page.getByRole("button", { name: /^Release / }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Release" }).click();
    await expect(page.locator(".mantine-Badge-label", { hasText: /^released$/ })).toBeVisible();
    await expect(page.getByRole("button", { name: /^Release / })).toHaveCount(0);
  } finally {
    await clear(page);
    await releaseAll(page);
  }
});

test("a rule shows which flows it would match, and is kept once it is saved", async ({ page }) => {
  test.setTimeout(300_000);
  const port = 5301;
  await page.goto("/qos");
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  try {
    await withTraffic({ port, seconds: 150 }, async () => {
      // Senders tell of a flow when it is a minute old.
      const told = async () => (await page.request.get("/v1/flows?running=true")).text();
      await expect.poll(told, { timeout: 120_000 }).toContain(`"destination_port":${port}`);
      await page.getByRole("button", { name: "New rule" }).click();
      const form = page.getByRole("dialog", { name: "New rule" });
      await form.getByLabel("Application").fill("copies");
      await chooseEnds(page, form);
      const found = form.getByTestId("would-match");
      await form.getByLabel("Receiver's port").fill("5399");
      await expect(found).toContainText("Would match 0 of the flows");
      await form.getByLabel("Receiver's port").fill(String(port));
      await expect(found).toContainText("Would match 1 of the flows");
      await expect(found).toContainText(`:${port}`);
      await expect(form.getByTestId("rule-preview")).toContainText("This would be granted");
      await form.getByRole("button", { name: "Save the rule" }).click();
      const row = page.getByRole("row", { name: "rule: copies" }).first();
      await expect(row).toContainText("enforced", { timeout: 30_000 });
    });
  } finally {
    await releaseAll(page);
  }
});

test("a switch of enforcement reaches the node, and back", async ({ page }) => {
  test.setTimeout(180_000);
  await page.goto("/qos");
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  const alpha = page.getByTestId("enforcement-of-alpha");
  const turn = async (mode: string) => {
    await alpha.getByText(mode, { exact: true }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Switch" }).click();
    await expect(page.getByRole("dialog")).toBeHidden();
    const told = async () => {
      const answer = await page.request.get("/v1/nodes/alpha");
      return ((await answer.json()) as { state: { enforcement: string } | null }).state?.enforcement;
    };
    await expect.poll(told, { timeout: 30_000 }).toBe(mode);
  };
  try {
    await turn("observe");
  } finally {
    await turn("enforce");
  }
});

test("keys and certificates of enrolled nodes are shown, and that one was taken back", async ({
  page,
}, info) => {
  test.setTimeout(180_000);
  trustNodes();
  await page.goto("/security");
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  const table = (name: string) => page.getByRole("table", { name });
  const certificate = table("Certificates").getByRole("row", { name: "node/charlie" });
  await expect(table("Signalling keys").getByRole("row", { name: /alpha>bravo/ })).toContainText("valid");
  await expect(table("Signalling keys").getByRole("row", { name: /charlie>bravo/ })).toContainText("valid");
  await expect(certificate).toContainText("valid");
  await page.screenshot({ path: info.outputPath("security.png") });
  trustNodes("charlie");
  await expect(certificate).toContainText("revoked", { timeout: 60_000 });
});

test("a node is enrolled with a token that is shown once, and revoked", async ({ page }, info) => {
  test.setTimeout(180_000);
  await page.goto("/security");
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  await page.getByRole("button", { name: "Enrol a node" }).click();
  const form = page.getByRole("dialog", { name: "Enrol a node" });
  await form.getByRole("combobox", { name: "Node" }).fill("echo");
  await form.getByRole("button", { name: "Make a token" }).click();
  await expect(form.getByText("chart-agent --node echo")).toBeVisible();
  for (const scheme of SCHEMES) {
    await wear(page, scheme);
    await expectAccessible(page, `token ${scheme}`);
  }
  await page.screenshot({ path: info.outputPath("token.png") });
  await form.getByRole("button", { name: "Done" }).click();
  const enrolment = page.getByRole("table", { name: "Enrolments" }).getByRole("row", { name: /node\/echo/ });
  await expect(enrolment.first()).toContainText("open");
  await enrolment
    .first()
    .getByRole("button", { name: /^Withdraw/ })
    .click();
  await page.getByRole("dialog").getByRole("button", { name: "Withdraw" }).click();
  await expect(enrolment.first()).toContainText("withdrawn");
  trustNodes();
  const bravo = page.getByRole("table", { name: "Nodes" }).getByRole("row", { name: /^bravo/ });
  await expect(bravo).toContainText("enrolled", { timeout: 30_000 });
  await bravo.getByRole("button", { name: "Revoke bravo" }).click();
  const dialog = page.getByRole("dialog", { name: "Revoke bravo?" });
  await dialog.getByLabel("Reason").fill("test");
  await dialog.getByRole("button", { name: "Revoke" }).click();
  await expect(bravo).toContainText("revoked");
});

test("an export has the rows that the filter leaves", async ({ page }) => {
  await page.goto("/network");
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  await page.getByRole("textbox", { name: "Filter Links" }).fill("bravo → charlie");
  const waiting = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export Links as CSV" }).click();
  const file = await waiting;
  expect(file.suggestedFilename()).toBe("chart-links.csv");
  const lines = readFileSync(await file.path(), "utf8")
    .trim()
    .split("\r\n");
  expect(lines[0]).toMatch(/^Link,/);
  expect(lines.slice(1).map((line) => line.split(",")[0])).toEqual(["bravo → charlie"]);
});

test("the palette goes to a page, and the range stays in the address", async ({ page }) => {
  await page.goto("/?range=1h");
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  await expect(page.getByTestId("connection")).toHaveText("live");
  await page.keyboard.press("Control+K");
  await page.getByRole("textbox", { name: /Search pages/ }).fill("timeline");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/timeline\?range=1h/);
});

test("a viewer sees, and is offered nothing to change", async ({ page }) => {
  await page.goto("/");
  await page.getByText("viewer", { exact: true }).click();
  await page.getByRole("button", { name: "Sign in as viewer" }).click();
  await expect(page.getByTestId("connection")).toHaveText("live");
  await expect(page.getByRole("link", { name: "Audit" })).toHaveCount(0);
  await page.goto("/requests");
  await expect(page.getByRole("heading", { level: 1, name: "Rate requests" })).toBeVisible();
  await expect(page.getByRole("button", { name: "New request" })).toHaveCount(0);
  await page.goto("/qos");
  await expect(page.getByTestId("enforcement-of-default").locator("input").first()).toBeDisabled();
  await expect(page.getByRole("button", { name: "New rule" })).toHaveCount(0);
  // What the page hides the gateway refuses.
  const refused = await page.request.post("/v1/rate-requests", { data: {} });
  expect(refused.status()).toBe(403);
});
