/**
 * The dashboard as its user sees it, against a running platform with the demo lab. Every page is also checked with axe in
 * both themes. That things come is tested here; how soon they come is measured in measure-platform.spec.ts.
 */
import { expect, type Page, test } from "@playwright/test";

import { ask, BAD_LINK, expectAccessible, fillForm, lab, releaseAll, signIn, withTraffic } from "./support";

const GRANTED_PORT = 5201;

async function release(page: Page, description: string) {
  const row = page.getByRole("row", { name: description }).first();
  await row.getByRole("button", { name: "Release" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Release" }).click();
  await expect(row).toContainText("released");
}

test.afterEach(({ page }) => releaseAll(page));

/** The map's own words for a link, which is what it draws beside it. */
async function mapLabel(page: Page, id: string): Promise<string> {
  const labels = await page.getByTestId("network-map").getAttribute("data-labels");
  return (JSON.parse(labels ?? "{}") as Record<string, string>)[id] ?? "";
}

for (const scheme of ["light", "dark"] as const) {
  test.describe(`in the ${scheme} theme`, () => {
    test.use({ colorScheme: scheme });

    test("signing in is accessible", async ({ page }) => {
      await page.goto("/");
      await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
      await expectAccessible(page);
    });

    test("the network map shows every link live", async ({ page }) => {
      await signIn(page, "/network");
      await expect(page).toHaveTitle("Network · CHART");
      await expect(page.getByTestId("network-map").locator("canvas:not([hidden])").first()).toBeVisible();
      const row = page.getByTestId(`link-row-${BAD_LINK}`);
      await expect(row).toContainText("100 Mb/s");
      await expect(row).not.toContainText("stale");
      await expect
        .poll(() => mapLabel(page, BAD_LINK), { timeout: 30_000 })
        .toMatch(/\d+ % · [\d.]+ [kMG]?b\/s\n[\d.]+ % loss · 10\d ms RTT/);
      await expectAccessible(page);
    });

    test("a link page charts what the link carries", async ({ page }) => {
      await signIn(page, "/network");
      await page.getByTestId(`link-row-${BAD_LINK}`).getByRole("link").click();
      await expect(page.getByRole("heading", { name: "bravo → charlie" })).toBeVisible();
      await expect(page).toHaveTitle("bravo → charlie · CHART");
      await expect(page.locator(".u-wrap canvas")).toHaveCount(4);
      await expectAccessible(page);
    });

    test("the list of requests and its form are accessible", async ({ page }) => {
      await signIn(page);
      const form = await fillForm(page, 5, 5998, `axe ${scheme}`);
      await expect(form.getByTestId("preview")).toBeVisible();
      await expectAccessible(page);
      await page.keyboard.press("Escape");
      await expect(form).toBeHidden();
      await expectAccessible(page);
    });
  });
}

test("a request made in the page is enforced, carries traffic and can be released", async ({ page }) => {
  await signIn(page);
  const description = `made in the page ${Date.now()}`;
  const row = await ask(page, 60, GRANTED_PORT, description);
  await expect(row).toContainText("alpha → bravo → charlie → delta");
  await expectAccessible(page);
  await page.getByRole("link", { name: "Network" }).click();
  const link = page.getByTestId(`link-row-${BAD_LINK}`);
  await expect(link).toContainText("0 %");
  await withTraffic({ port: GRANTED_PORT, seconds: 120 }, async () => {
    // A flow at an explicit rate fills the link despite its loss.
    await expect.poll(() => mapLabel(page, BAD_LINK), { timeout: 60_000 }).toMatch(/^[5-9]\d % /);
    await link.getByRole("link").click();
    await expect(page.getByTestId("utilisation")).toHaveText(/^(100|[5-9]\d) %$/);
    const legend = page.getByRole("figure", { name: "Rate, last 5 minutes" }).locator(".u-legend");
    await expect(legend).toContainText(/explicit rate:?\s*\d\d\.\d Mb\/s/);
  });
  await page.getByRole("link", { name: "Rate requests" }).click();
  await release(page, description);
});

test("a changed link is sensed and shown", async ({ page }) => {
  await signIn(page, "/network");
  const row = page.getByTestId(`link-row-${BAD_LINK}`);
  await expect(row).toContainText(/\d ms/, { timeout: 30_000 });
  lab("impair", "bravo-charlie", "--delay-ms", "80", "--lab", "demo");
  try {
    // The sensor was in the middle of a run, perhaps, that measures both delays; the next one measures the new one alone.
    await expect(row).toContainText(/1[6-9]\d ms/, { timeout: 60_000 });
  } finally {
    lab("impair", "bravo-charlie", "--delay-ms", "50", "--lab", "demo");
  }
});

test("a refusal names the field and what would do", async ({ page }) => {
  await signIn(page);
  const form = await fillForm(page, 5000, 5997, "too much");
  await expect(form.getByTestId("preview")).toContainText("would be refused");
  await expect(form.getByTestId("preview")).toContainText("would be accepted");
});

test("an unknown link says so", async ({ page }) => {
  await signIn(page);
  await page.goto("/links/nowhere%3Ato-nothing");
  await expect(page.getByRole("heading", { name: "Link not found" })).toBeVisible();
});

test("a group of pairs is made, shows what was measured between its pairs, and is deleted", async ({
  page,
}) => {
  // Roll-ups are of whole minutes.
  test.setTimeout(300_000);
  await signIn(page);
  await page.getByRole("link", { name: "Groups of pairs" }).click();
  await page.getByRole("button", { name: "New group" }).click();
  const form = page.getByRole("dialog", { name: "New group" });
  await form.getByRole("textbox", { name: "Group" }).fill("test-pairs");
  await form.getByRole("textbox", { name: "Single pairs" }).fill("bravo,charlie");
  await form.getByRole("button", { name: "Save" }).click();
  await page.goto("/pair-groups?group=test-pairs&range=1h");
  const detail = page.getByRole("region", { name: "Group test-pairs" });
  try {
    await expect(detail.getByText("renewed every minute")).toBeVisible();
    const row = detail.getByRole("row", { name: /bravo → charlie/ });
    await expect(row).toContainText(/\d ms/, { timeout: 180_000 });
    await expect(detail.locator(".u-wrap canvas")).toHaveCount(1);
    await expectAccessible(page);
    await page.getByRole("button", { name: "Delete test-pairs" }).click();
    await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
    await expect(detail).toHaveCount(0);
  } finally {
    await page.request.delete("/v1/pair-groups/test-pairs");
  }
});
