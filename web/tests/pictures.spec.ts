/**
 * Pictures of the dashboard for the documentation, while a CHART transfer runs over the bad link. Only `make web-pictures`
 * runs this (CHART_PICTURES: folder to write to; CHART_PICTURES_PHONE=1: also those of a narrow screen).
 */
import { expect, type Page, test } from "@playwright/test";

import { ask, BAD_LINK, releaseAll, signIn, withTraffic } from "./support";

const FOLDER = process.env.CHART_PICTURES;
const PORT = 5201;

test.skip(!FOLDER, "pictures are taken only when CHART_PICTURES names a folder");

async function shoot(page: Page, name: string) {
  for (const scheme of ["light", "dark"] as const) {
    await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
    await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", scheme);
    await page.screenshot({ path: `${FOLDER}/${name}-${scheme}.png` });
  }
}

test.afterEach(({ page }) => releaseAll(page));

test("pictures of a network at work", async ({ page }) => {
  test.setTimeout(150_000);
  await signIn(page);
  await ask(page, 60, PORT, "nightly copy");
  await ask(page, 8, 5004, "video feed");
  await page.getByRole("link", { name: "Network" }).click();
  await withTraffic({ port: PORT, seconds: 110 }, async () => {
    const row = page.getByTestId(`link-row-${BAD_LINK}`);
    await expect(row).toContainText(/[5-9]\d %/, { timeout: 20_000 });
    await row.getByRole("link").click();
    // Enough of the transfer that its chart is worth a picture.
    const started = Date.now();
    await expect.poll(() => Date.now() - started, { timeout: 60_000 }).toBeGreaterThan(25_000);
    await shoot(page, "link");
    await page.getByRole("link", { name: "Network" }).click();
    await expect(row).toContainText(/[5-9]\d %/, { timeout: 20_000 });
    await shoot(page, "network");
    await page.getByRole("link", { name: "Rate requests" }).click();
    await expect(page.getByRole("row", { name: "nightly copy" })).toBeVisible();
    await shoot(page, "requests");
    if (!process.env.CHART_PICTURES_PHONE) return;
    await page.setViewportSize({ width: 390, height: 844 });
    await shoot(page, "phone-requests");
    await page.getByRole("button", { name: "New request" }).click();
    await shoot(page, "phone-form");
    await page.keyboard.press("Escape");
    await page.goto("/network");
    await expect(row).toContainText(/[5-9]\d %/, { timeout: 20_000 });
    await shoot(page, "phone-network");
    await row.getByRole("link").click();
    await shoot(page, "phone-link");
  });
});
