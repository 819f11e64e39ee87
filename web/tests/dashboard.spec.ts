/**
 * The dashboard as its user sees it, against a running platform with the demo lab. Every page is also checked with axe in
 * both themes.
 */
import AxeBuilder from "@axe-core/playwright";
import { expect, type Page, test } from "@playwright/test";

const PICTURES = process.env.CHART_PICTURES;

async function signIn(page: Page): Promise<void> {
  await page.goto("/");
  await page.getByRole("button", { name: "Sign in as operator" }).click();
  await expect(page.getByTestId("connection")).toHaveText("live");
}

async function expectAccessible(page: Page): Promise<void> {
  const { violations } = await new AxeBuilder({ page })
    .withTags(["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"])
    .analyze();
  expect(violations.map(({ id, nodes }) => [id, nodes.map((node) => node.target)])).toEqual([]);
}

for (const scheme of ["light", "dark"] as const) {
  test.describe(`in the ${scheme} theme`, () => {
    test.use({ colorScheme: scheme });

    test("the network map shows every link live", async ({ page }) => {
      await signIn(page);
      await expect(page.getByTestId("network-map")).toBeVisible();
      const row = page.getByTestId("link-row-bravo:to-charlie");
      await expect(row).toContainText("100 Mb/s");
      await expect(row).not.toContainText("stale");
      await expect(row).toContainText(/\d+ %/);
      await expectAccessible(page);
      if (PICTURES) await page.screenshot({ path: `${PICTURES}/network-${scheme}.png` });
    });

    test("a link page charts what the link carries", async ({ page }) => {
      await signIn(page);
      await page.getByTestId("link-row-bravo:to-charlie").getByRole("link").click();
      await expect(page.getByRole("heading", { name: "bravo → charlie" })).toBeVisible();
      await expect(page.locator(".u-wrap canvas").first()).toBeVisible();
      await expectAccessible(page);
      if (PICTURES) await page.screenshot({ path: `${PICTURES}/link-${scheme}.png` });
    });

    test("the list of requests and its form are accessible", async ({ page }) => {
      await signIn(page);
      await page.getByRole("link", { name: "Rate requests" }).click();
      await expect(page.getByRole("heading", { name: "Rate requests" })).toBeVisible();
      await expectAccessible(page);
      if (PICTURES) await page.screenshot({ path: `${PICTURES}/requests-${scheme}.png` });
      await page.getByRole("button", { name: "New request" }).click();
      await expect(page.getByRole("dialog")).toBeVisible();
      await expectAccessible(page);
    });
  });
}

test("a request made in the page is enforced in the kernel and can be released", async ({ page }) => {
  await signIn(page);
  await page.getByRole("link", { name: "Rate requests" }).click();
  await page.getByRole("button", { name: "New request" }).click();
  const form = page.getByRole("dialog");
  await form.getByRole("combobox", { name: "Sender" }).click();
  await page.getByRole("option", { name: "alpha" }).click();
  await form.getByRole("combobox", { name: "Receiver" }).click();
  await page.getByRole("option", { name: "delta" }).click();
  await form.getByLabel("Guaranteed rate").fill("5");
  await form.getByLabel("Receiver's port").fill("5999");
  await form.getByLabel("Description").fill("made in the page");
  await expect(form.getByTestId("preview")).toContainText("would be granted");
  await form.getByRole("button", { name: "Ask for this rate" }).click();
  const row = page.getByRole("row", { name: /made in the page/ }).first();
  await expect(row).toContainText("enforced", { timeout: 10_000 });
  await row.getByRole("button", { name: "Release" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Release" }).click();
  await expect(row).toContainText("released", { timeout: 10_000 });
});

test("a refusal names the field and what would do", async ({ page }) => {
  await signIn(page);
  await page.getByRole("link", { name: "Rate requests" }).click();
  await page.getByRole("button", { name: "New request" }).click();
  const form = page.getByRole("dialog");
  await form.getByRole("combobox", { name: "Sender" }).click();
  await page.getByRole("option", { name: "alpha" }).click();
  await form.getByRole("combobox", { name: "Receiver" }).click();
  await page.getByRole("option", { name: "delta" }).click();
  await form.getByLabel("Guaranteed rate").fill("5000");
  await expect(form.getByTestId("preview")).toContainText("would be refused");
  await expect(form.getByTestId("preview")).toContainText("would be accepted");
});

test("an unknown link says so", async ({ page }) => {
  await signIn(page);
  await page.goto("/links/nowhere%3Ato-nothing");
  await expect(page.getByRole("heading", { name: "There is no such link" })).toBeVisible();
});
