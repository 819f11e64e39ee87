/** Every page of the dashboard, with something on it, for the checks and pictures of all of them. */
import { execFileSync } from "node:child_process";

import { expect, type Page } from "@playwright/test";

import { BAD_LINK, changeNode, enter, PYTHON, releaseAll, ROOT } from "./support";

export interface Visit {
  name: string;
  path: string;
  /** Heading of the page. */
  title: string;
}

const REQUEST = {
  source: "alpha",
  destination: "delta",
  protocol: "tcp",
  destination_port: 5201,
  service: "variable",
  guaranteed_bps: 60_000_000,
  description: "nightly copy",
  tags: { application: "backup" },
};
const RULE = {
  kind: "above",
  metric: "loss_ratio",
  threshold: 0.02,
  for_s: 0,
  statistic: "p50",
  description: "more than two of a hundred packets are lost",
};

/**
 * Has the nodes of the demo lab enrolled at the platform's authority, with keys for their neighbours; or takes one's
 * certificate back.
 */
export function trustNodes(revoked?: string): void {
  const words = ["-m", "support.trusted_nodes", "--platform", ...(revoked ? ["--revoke", revoked] : [])];
  execFileSync(PYTHON, words, { cwd: `${ROOT}/tests`, encoding: "utf8", timeout: 60_000 });
}

const GROUP = {
  description: "Branches to the data centre",
  source_nodes: ["bravo"],
  destination_nodes: ["charlie", "delta"],
};

/** The two ends of the lossy link: one overlay link. */
const OVERLAY_NODES = ["bravo", "charlie"];

async function putOverlay(page: Page, member: boolean): Promise<void> {
  for (const id of OVERLAY_NODES) await changeNode(page, id, { overlay: { member } });
}

/**
 * Signs in as an operator, asks for two rates, states an alert rule and a group of pairs, lets two nodes join the overlay; returns the pages, with those of what was made and of
 * a tunnel that there will be.
 */
export async function furnish(page: Page, tunnel?: string): Promise<Visit[]> {
  await enter(page);
  // What a run that was broken off left behind.
  await releaseAll(page);
  const asked = await page.request.post("/v1/rate-requests", { data: REQUEST });
  expect(asked.status(), await asked.text()).toBe(201);
  const { id } = (await asked.json()) as { id: string };
  await page.request.post("/v1/rate-requests", {
    data: {
      ...REQUEST,
      destination_port: 5004,
      protocol: "udp",
      guaranteed_bps: 8_000_000,
      description: "video",
    },
  });
  const authorised = await page.request.post("/v1/authorisations", {
    data: { client_address: "10.0.0.1", max_guaranteed_bps: 50_000_000, duration_s: 3600 },
  });
  expect(authorised.ok(), await authorised.text()).toBe(true);
  const rule = await page.request.put("/v1/alert-rules/lossy-path", { data: RULE });
  expect(rule.ok(), await rule.text()).toBe(true);
  const group = await page.request.put("/v1/pair-groups/branches", { data: GROUP });
  expect(group.ok(), await group.text()).toBe(true);
  await putOverlay(page, true);
  return [
    { name: "overview", path: "/", title: "Overview" },
    { name: "network", path: "/network", title: "Network" },
    { name: "link", path: `/links/${BAD_LINK}`, title: "bravo → charlie" },
    { name: "link-history", path: `/links/${BAD_LINK}?range=15m`, title: "bravo → charlie" },
    { name: "paths", path: "/paths?source=bravo&destination=charlie", title: "Paths" },
    { name: "overlay", path: "/overlay?source=bravo&destination=charlie", title: "Overlay" },
    { name: "alerts", path: "/alerts", title: "Alerts" },
    { name: "requests", path: "/requests", title: "Rate requests" },
    { name: "request", path: `/requests/${id}`, title: "nightly copy" },
    { name: "timeline", path: "/timeline?range=5m", title: "Timeline" },
    { name: "qos", path: "/qos", title: "QoS console" },
    { name: "tunnels", path: "/tunnels", title: "Tunnels" },
    ...(tunnel ? [{ name: "tunnel", path: `/tunnels/${tunnel}`, title: `Tunnel ${tunnel}` }] : []),
    { name: "sensing", path: "/sensing", title: "Sensing" },
    { name: "pair-groups", path: "/pair-groups?group=branches", title: "Groups of pairs" },
    { name: "security", path: "/security", title: "Security" },
    { name: "audit", path: "/audit", title: "Audit" },
    // Senders tell of a flow when it is a minute old: late enough that there is one.
    { name: "flows", path: "/flows", title: "Flows" },
  ];
}

/** Takes back what `furnish` made. */
export async function clear(page: Page): Promise<void> {
  await putOverlay(page, false);
  const { items } = (await (await page.request.get("/v1/authorisations")).json()) as {
    items: { id: string }[];
  };
  for (const { id } of items) await page.request.delete(`/v1/authorisations/${id}`);
  await page.request.delete("/v1/alert-rules/lossy-path");
  await page.request.delete("/v1/pair-groups/branches");
}

/** Opens a page and waits until nothing of it is being loaded any more. */
export async function visit(page: Page, { path, title }: Visit): Promise<void> {
  await page.goto(path);
  await expect(page.getByRole("heading", { level: 1, name: title })).toBeVisible();
  await expect(page.getByText("Something went wrong")).toHaveCount(0);
  await expect(page.locator("[role=status]", { hasText: /^Loading/ })).toHaveCount(0);
  await expect(page.getByLabel(/^Loading /)).toHaveCount(0);
}

export const SCHEMES = ["light", "dark"] as const;

export async function wear(page: Page, scheme: (typeof SCHEMES)[number]): Promise<void> {
  await page.emulateMedia({ colorScheme: scheme, reducedMotion: "reduce" });
  await expect(page.locator("html")).toHaveAttribute("data-mantine-color-scheme", scheme);
}
