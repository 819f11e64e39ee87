import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import { node, renderInApp, stubGateway } from "../../shared/samples";
import { Edges } from "./Edges";

const EDGE = { interface: "eth1", aggregate_bps: 0, exceed: "remark" as const, depth_ms: 100 };
const ALPHA = node("alpha", { description: "north", tags: { site: "lab" }, revision: 7, edges: [EDGE] });

function stub(roles: string[]) {
  const put = vi.fn<(body: unknown) => { status: number; body: unknown }>(() => ({
    status: 200,
    body: ALPHA,
  }));
  vi.stubGlobal(
    "fetch",
    vi.fn(
      stubGateway({
        "GET /auth/me": () => ({ status: 200, body: { subject: "ann", roles } }),
        "GET /v1/nodes": () => ({ status: 200, body: { items: [ALPHA] } }),
        "GET /v1/nodes/alpha": () => ({ status: 200, body: ALPHA }),
        "PUT /v1/nodes/alpha": put,
      }),
    ),
  );
  renderInApp(<Edges />);
  return { user: userEvent.setup(), put };
}

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("edges in the console", () => {
  it("are added to what the node is registered with", async () => {
    const { user, put } = stub(["operator"]);
    await user.click(await screen.findByRole("button", { name: "New edge" }));
    const form = within(await screen.findByRole("dialog"));
    await user.click(form.getByRole("combobox", { name: "Node" }));
    await user.click(await screen.findByRole("option", { name: "alpha" }));
    await user.type(form.getByRole("textbox", { name: "Interface" }), "eth2");
    await user.click(form.getByRole("button", { name: "Save" }));
    await vi.waitFor(() => {
      expect(put).toHaveBeenCalled();
    });
    expect(put).toHaveBeenCalledWith({
      description: "north",
      addresses: [],
      sensor_pod_target: "",
      tags: { site: "lab" },
      map_position: null,
      edges: [EDGE, { ...EDGE, interface: "eth2" }],
    });
  });

  it("are only seen by who may not change them", async () => {
    stub(["viewer"]);
    expect(await screen.findByText("eth1")).toBeVisible();
    expect(screen.queryByRole("button", { name: "New edge" })).toBeNull();
  });
});
