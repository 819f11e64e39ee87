/**
 * Every page in both themes: it opens, nothing on it failed, axe finds nothing, and a narrow screen need not be moved
 * sideways. Then its forms and the palette. `make web-test` counts what axe found.
 */
import { expect, test } from "@playwright/test";

import { clear, furnish, SCHEMES, visit, wear } from "./everyPage";
import { expectAccessible, releaseAll } from "./support";

const PHONE = { width: 390, height: 844 };
const DESK = { width: 1360, height: 900 };

test("every page is accessible in both themes, and fits a narrow screen", async ({ page }) => {
  test.setTimeout(210_000);
  try {
    for (const one of await furnish(page)) {
      await test.step(one.name, async () => {
        await visit(page, one);
        for (const scheme of SCHEMES) {
          await wear(page, scheme);
          await expectAccessible(page, `${one.name} ${scheme}`);
        }
        await page.setViewportSize(PHONE);
        const tooWide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        expect.soft(tooWide, `${one.name} is wider than a narrow screen by`).toBeLessThanOrEqual(0);
        await page.setViewportSize(DESK);
      });
    }
  } finally {
    await clear(page);
    await releaseAll(page);
  }
});

const FORMS = [
  ["/requests?form=true", null, "Ask for a rate"],
  ["/qos", "New rule", "State a rule"],
  ["/alerts", "New rule", "State a rule"],
] as const;

test("forms, palette and signing in are accessible in both themes", async ({ page }) => {
  test.setTimeout(120_000);
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
  await page.keyboard.press("Control+K");
  await expect(page.getByRole("textbox", { name: /Search pages/ })).toBeVisible();
  for (const scheme of SCHEMES) {
    await wear(page, scheme);
    await expectAccessible(page, `palette ${scheme}`);
  }
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
