/**
 * A gateway that goes away while somebody looks at the network, and another one that does not know the session, on a
 * recorded network (CHART_RECORDING): the page says that it is alone, what is old is called old, and all is well again by
 * signing in.
 */
import { expect, test } from "@playwright/test";

import { enter, REPLAY, replayed } from "./support";

const RECORDING = process.env.CHART_RECORDING;

test.skip(!RECORDING, "needs a recording: `make web-test-recorded` names it in CHART_RECORDING");
test.use({ baseURL: `http://${REPLAY}` });

test("an outage is said, and ends by itself", async ({ page }) => {
  test.setTimeout(90_000);
  let replay = await replayed(RECORDING ?? "");
  try {
    await enter(page);
    await page.goto("/network");
    const connection = page.getByTestId("connection");
    await expect(connection).toHaveText("live");
    const row = page.locator("tbody tr").first();
    await expect(row).toContainText(/\d %/);
    await expect(row).not.toContainText("stale");

    await replay.stop();
    await expect(connection).toHaveText("offline, retrying");
    await expect(page.getByRole("alert")).toContainText("The connection to the gateway is lost");
    // The page stays, and says of each link how old its load is.
    await expect(row).toContainText("stale", { timeout: 15_000 });
    await expect(page.getByTestId("network-map")).toBeVisible();

    replay = await replayed(RECORDING ?? "");
    // Its issuer is a new one: the session of before is none any more, which whatever is asked next finds out.
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible({ timeout: 30_000 });
    await page.getByRole("button", { name: "Sign in as operator" }).click();
    await expect(connection).toHaveText("live");
    await expect(row).not.toContainText("stale", { timeout: 15_000 });
  } finally {
    await replay.stop();
  }
});
