/**
 * Pictures that are compared with those of before (tests/visual.spec.ts-snapshots), of a small recorded network whose loads
 * do not change: frame, map, tables, and what a page says when a service is away. `make web-visual` runs it; after a
 * change that was meant, `make web-visual UPDATE=1` keeps the new ones. Fonts are the machine's: where they are others than
 * those of the pictures nothing is compared, and the reason is printed.
 */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

import { expect, type Page, test } from "@playwright/test";

import { SCHEMES, wear } from "./everyPage";
import { enter, type Replay, REPLAY, replayed } from "./support";

const RECORDING = process.env.CHART_RECORDING;
const LOOK = { maxDiffPixelRatio: 0.01 } as const;

test.skip(!RECORDING, "compared only on a recording: `make web-visual` names it in CHART_RECORDING");
test.use({ baseURL: `http://${REPLAY}` });

let replay: Replay | undefined;

test.beforeAll(async () => {
  replay = await replayed(RECORDING ?? "");
});

test.afterAll(() => replay?.stop());

/** How wide text is here, and which browser draws it: pictures of other fonts differ in every line. */
async function fontsOf(page: Page): Promise<string> {
  const widths = await page.evaluate(() => {
    const context = document.createElement("canvas").getContext("2d");
    return ["system-ui", "sans-serif", "monospace"].map((family) => {
      if (context) context.font = `600 40px ${family}`;
      return `${family} ${context?.measureText("CHART 0123 kgjM").width.toFixed(2) ?? "?"}`;
    });
  });
  const version = page.context().browser()?.version().split(".")[0] ?? "?";
  return `${[`chromium ${version}`, ...widths].join("\n")}\n`;
}

test.beforeEach(async ({ page }, info) => {
  const file = join(dirname(info.file), "visual.spec.ts-snapshots", "fonts.txt");
  const here = await fontsOf(page);
  if (["all", "changed"].includes(info.config.updateSnapshots)) {
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, here);
    return;
  }
  const there = existsSync(file) ? readFileSync(file, "utf8") : "none";
  const words = (text: string) => text.trim().replaceAll("\n", ", ");
  const reason = `the pictures are of other fonts (${words(there)}) than there are here (${words(here)})`;
  if (there !== here) console.log(`    skipped: ${reason}`);
  test.skip(there !== here, reason);
});

const PAGES: [name: string, path: string, ready: (page: Page) => Promise<void>][] = [
  ["network", "/network", (page) => expect(page.getByTestId("network-map")).toBeVisible()],
  [
    "overview",
    "/",
    (page) => expect(page.getByText("Some data is missing")).toBeVisible({ timeout: 20_000 }),
  ],
  ["requests", "/requests", (page) => expect(page.getByRole("alert")).toBeVisible({ timeout: 20_000 })],
  ["flows", "/flows", (page) => expect(page.getByText("No flow reported yet")).toBeVisible()],
];

test("sign in looks as it did", async ({ page }) => {
  await page.goto("/");
  await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
  for (const scheme of SCHEMES) {
    await wear(page, scheme);
    await expect(page).toHaveScreenshot(`sign-in-${scheme}.png`, LOOK);
  }
});

for (const [name, path, ready] of PAGES)
  test(`${name} looks as it did`, async ({ page }) => {
    await enter(page);
    await page.goto(path);
    await expect(page.getByTestId("connection")).toHaveText("live");
    await ready(page);
    // What waits for a service that is away turns, and then says so.
    await expect(page.getByLabel(/^Loading /)).toHaveCount(0, { timeout: 30_000 });
    for (const scheme of SCHEMES) {
      await wear(page, scheme);
      // What tells the time: bars of the last minutes, ages.
      const mask = [page.getByRole("img", { name: /last minutes/ }), page.getByText(/ ago\b/)];
      await expect(page).toHaveScreenshot(`${name}-${scheme}.png`, { ...LOOK, mask });
    }
  });
