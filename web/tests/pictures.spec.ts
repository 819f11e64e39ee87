/**
 * Pictures of every page for the documentation, while a CHART transfer runs over the bad link and an elastic tunnel beside
 * it. Only `make web-pictures` runs this (CHART_PICTURES: folder to write to). CHART_PICTURES_ALL=1: also every page in the
 * dark theme and on a narrow screen, to look at while working on them.
 */
import { expect, type Page, test } from "@playwright/test";

import { clear, furnish, SCHEMES, trustNodes, visit, type Visit, wear } from "./everyPage";
import { BAD_LINK, chooseEnds, fillForm, releaseAll, withTraffic, withTunnel } from "./support";

const FOLDER = process.env.CHART_PICTURES;
const ALL = Boolean(process.env.CHART_PICTURES_ALL);
const PHONE = { width: 390, height: 844 };
const DESK = { width: 1360, height: 900 };
/** A sender tells of a flow after a minute: by then the charts are worth a picture, too. */
const FLOW_TOLD_MS = 90_000;
const TUNNEL = "gold";
/** Pages whose picture in the dark theme is in the documentation, too. */
const DARK = ["overview", "network", "link"];

test.skip(!FOLDER, "pictures are taken only when CHART_PICTURES names a folder");

async function shoot(page: Page, name: string, scheme: (typeof SCHEMES)[number]) {
  await wear(page, scheme);
  // A chart draws itself anew in the colours of the theme.
  await page.waitForTimeout(300);
  await page.screenshot({ path: `${FOLDER}/${name}-${scheme}.png` });
}

test.afterEach(({ page }) => releaseAll(page));

test("pictures of a network at work", async ({ page }) => {
  test.setTimeout(500_000);
  await page.setViewportSize(DESK);
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
  await shoot(page, "sign-in", "light");
  trustNodes();
  const pages = await furnish(page, TUNNEL);
  const state = { taken: false };
  const take = (some: Visit[]) =>
    withTraffic({ port: 5201, seconds: 260 }, async () => {
      state.taken = true;
      await page.goto("/network");
      await expect(page.getByTestId(`link-row-${BAD_LINK}`)).toContainText(/[5-9]\d %/, { timeout: 60_000 });
      await page.goto("/flows");
      await expect(page.getByRole("rowheader", { name: /:5201/ })).toBeVisible({ timeout: FLOW_TOLD_MS });
      for (const one of some) await picture(page, one);
      await forms(page);
    });
  try {
    await withTunnel(page, TUNNEL, 4_000_000, () => take(pages));
  } catch (error) {
    // A tunnel that does not come up costs its own picture, not the others.
    if (!state.taken) await take(pages.filter(({ name }) => name !== "tunnel"));
    throw error;
  } finally {
    await clear(page);
  }
});

/** The forms, filled in: what would come of a request, and which flows a rule would match. */
async function forms(page: Page) {
  await page.goto("/requests");
  const request = await fillForm(page, 25, 5400, "video wall");
  await expect(request.getByTestId("preview")).toBeVisible();
  await shoot(page, "request-form", "light");
  await page.goto("/qos");
  await page.getByRole("button", { name: "New rule" }).click();
  const rule = page.getByRole("dialog", { name: "New rule" });
  await rule.getByLabel("Application").fill("backup");
  await chooseEnds(page, rule);
  await rule.getByLabel("Receiver's port").fill("5201");
  await expect(rule.getByTestId("rule-preview")).toBeVisible();
  await shoot(page, "qos-rule", "light");
}

async function picture(page: Page, one: Visit) {
  await visit(page, one);
  // The live charts of a link catch up with the archive.
  await page.waitForTimeout(one.name === "link" ? 5000 : 800);
  for (const scheme of SCHEMES)
    if (scheme === "light" || ALL || DARK.includes(one.name)) await shoot(page, one.name, scheme);
  if (!ALL) return;
  await page.setViewportSize(PHONE);
  await page.waitForTimeout(300);
  await page.screenshot({ path: `${FOLDER}/phone-${one.name}.png` });
  await page.setViewportSize(DESK);
}
