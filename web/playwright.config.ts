import { defineConfig } from "@playwright/test";

/**
 * Browser tests against a running gateway (CHART_SERVER). Chromium comes from the distribution; the flags keep it from
 * asking for anything outside this machine.
 */
export default defineConfig({
  testDir: "tests",
  testMatch: "**/*.spec.ts",
  // A wait ends as soon as what it waits for is there, so a long limit costs nothing; virtual machines stand still for seconds.
  timeout: 180_000,
  expect: { timeout: 20_000 },
  // As in the Python tests (decision record 0017): again, and listed as flaky.
  retries: 2,
  workers: 1,
  reporter: [["list"]],
  outputDir: "test-results",
  use: {
    baseURL: process.env.CHART_SERVER ?? "http://127.0.0.1:18080",
    // Motion only delays what a test sees; axe would look at half-transparent text.
    contextOptions: { reducedMotion: "reduce" },
    viewport: { width: 1360, height: 900 },
    launchOptions: {
      executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
});
