/** Every page beside the network and the requests: it opens, says what it is for, and axe finds nothing in both themes. */
import { expect, test } from "@playwright/test";

import { expectAccessible, signIn } from "./support";

const PAGES = [
  ["/", "Overview"],
  ["/paths", "Paths"],
  ["/flows", "Flows"],
  ["/alerts", "Alerts"],
  ["/timeline", "Timeline"],
  ["/qos", "QoS console"],
  ["/tunnels", "Tunnels"],
  ["/sensing", "Sensing"],
  ["/security", "Security"],
  ["/audit", "Audit"],
] as const;
const FOLDER = process.env.CHART_PICTURES;

for (const scheme of ["light", "dark"] as const) {
  test.describe(`in the ${scheme} theme`, () => {
    test.use({ colorScheme: scheme });

    for (const [path, title] of PAGES) {
      test(`${title} is accessible`, async ({ page }) => {
        await signIn(page, path);
        await expect(page.getByRole("heading", { level: 1, name: title })).toBeVisible();
        await expect(page.getByText("Something went wrong")).toHaveCount(0);
        await expectAccessible(page);
        if (FOLDER)
          await page.screenshot({ path: `${FOLDER}/${title.toLowerCase().split(" ")[0]}-${scheme}.png` });
      });
    }
  });
}

test("the palette goes to a page, and the range stays in the address", async ({ page }) => {
  await signIn(page, "/?range=1h");
  await page.keyboard.press("Control+K");
  await page.getByRole("textbox", { name: /Search pages/ }).fill("timeline");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/timeline\?range=1h/);
});
