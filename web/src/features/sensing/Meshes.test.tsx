import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import { type Answers, renderInApp, stubGateway } from "../../shared/samples";
import { Meshes } from "./Meshes";

const MESH = {
  id: "sites",
  revision: 3,
  description: "",
  nodes: [],
  node_tags: {},
  sensors: [{ sensor: "ping", period_ms: 10_000, parameters: {} }],
  budget_share: 0.005,
  priority: 0,
  enabled: true,
  active: true,
  owner: "ann",
  plan: {
    members: [
      { node: "a", state: "measuring" },
      { node: "b", state: "measuring" },
      { node: "c", state: "silent" },
    ],
    configurations: 2,
    chosen: 0,
    links: [{ link: "a:to-b", capacity_bps: 1e6, planned_bytes: 12_000, limit_bytes: 37_500, share: 0.0016 }],
    slowest: 2,
    changed_at: null,
    remarks: ["a run of pathchirp does not fit"],
  },
};
const pair = (source: string, destination: string, fresh: boolean) => ({
  source_node: source,
  destination_node: destination,
  sensor: "ping",
  metric: "rtt_us",
  period_ms: 20_000,
  value: 1,
  unit: "us",
  measured_at: "2026-03-01T09:30:00Z",
  fresh,
  error: "",
});

function stub(roles: string[], answers: Answers = {}) {
  vi.stubGlobal(
    "fetch",
    vi.fn(
      stubGateway({
        "GET /auth/me": () => ({ status: 200, body: { subject: "ann", roles } }),
        "GET /v1/sensing-meshes": () => ({ status: 200, body: { items: [MESH] } }),
        "GET /v1/sensing-meshes/sites/coverage": () => ({
          status: 200,
          body: { mesh: "sites", pairs: 2, fresh: 1, items: [pair("a", "b", true), pair("b", "a", false)] },
        }),
        ...answers,
      }),
    ),
  );
  return userEvent.setup();
}

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("meshes in the console", () => {
  it("show coverage, absent members, remarks and what each link carries", async () => {
    stub(["viewer"]);
    renderInApp(<Meshes />);
    const coverage = await screen.findByRole("region", { name: "Coverage of sites" });
    expect(within(coverage).getByText(/1 of 2 pairs fresh/)).toBeTruthy();
    expect(within(coverage).getByText("stale")).toBeTruthy();
    expect(screen.getByText("a run of pathchirp does not fit")).toBeTruthy();
    expect(screen.getByText("silent")).toBeTruthy();
    expect(screen.getByText("a:to-b")).toBeTruthy();
    expect(screen.queryByRole("button", { name: "New mesh" })).toBeNull();
  });

  it("are made in a form", async () => {
    let sent: unknown;
    const user = stub(["operator"], {
      "PUT /v1/sensing-meshes/core": (body) => {
        sent = body;
        return { status: 201, body: MESH };
      },
    });
    renderInApp(<Meshes />);
    await user.click(await screen.findByRole("button", { name: "New mesh" }));
    await user.type(await screen.findByRole("textbox", { name: "Mesh" }), "core");
    await user.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => {
      expect(sent).toEqual({
        description: "",
        nodes: [],
        node_tags: {},
        sensors: [{ sensor: "ping", period_ms: 10_000, parameters: {} }],
        budget_share: 0.005,
        priority: 0,
        enabled: true,
        active: true,
      });
    });
  });
});
