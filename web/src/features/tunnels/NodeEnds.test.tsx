import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";

import type { NetworkNode } from "../../api/types";
import { type Answers, node, renderInApp, stubGateway } from "../../shared/samples";
import { NodeEnds } from "./NodeEnds";

const WEST: NetworkNode = {
  ...node("west"),
  description: "a router",
  tunnel_ends: [
    {
      tunnel: "west-east",
      role: "origin",
      interface: "chart-itm0",
      address: "10.0.0.6",
      port: 7400,
      peer_node: "east",
      classes: [{ name: "gold", weight: 3, selector: "dscp=46" }],
      period_ms: 1000,
      congestion: "cubic",
      prefixes: ["192.0.2.0/24"],
      applications: [{ name: "pacing", file: "itm-aimd.so", argument: "5,1,1", limit_ms: 20, on: true }],
    },
  ],
  proxied_traffic: { interfaces: ["eth1"], prefixes: [], mode: "new-ports" },
};

function stub(answers: Answers = {}) {
  const nodes = { status: 200, body: { items: [WEST, node("east")] } };
  vi.stubGlobal("fetch", vi.fn(stubGateway({ "GET /v1/nodes": () => nodes, ...answers })));
  return userEvent.setup();
}

afterEach(() => {
  vi.unstubAllGlobals();
});

it("an end is changed with the rest of its node as it was", async () => {
  let sent: Record<string, unknown> = {};
  const user = stub({
    "PUT /v1/nodes/west": (body) => {
      sent = body as Record<string, unknown>;
      return { status: 200, body: WEST };
    },
  });
  renderInApp(<NodeEnds />);
  await user.click(await screen.findByRole("button", { name: "Change the end of west-east on west" }));
  const form = await screen.findByRole("dialog", { name: /^Change the end/ });
  const networks = within(form).getByLabelText(/^Networks/);
  await user.clear(networks);
  await user.type(networks, "198.51.100.0/24");
  await waitFor(() => {
    expect(within(form).getByLabelText(/^Tunnel/)).toBeDisabled();
  });
  await user.click(within(form).getByRole("button", { name: "Save" }));
  await waitFor(() => {
    expect(sent).toMatchObject({
      description: "a router",
      tunnel_ends: [{ ...WEST.tunnel_ends[0], prefixes: ["198.51.100.0/24"] }],
    });
  });
  expect(sent).not.toHaveProperty("proxied_traffic");
});

it("proxied traffic is taken back after a question", async () => {
  let sent: unknown;
  const user = stub({
    "PUT /v1/nodes/west": (body) => {
      sent = body;
      return { status: 200, body: WEST };
    },
  });
  renderInApp(<NodeEnds />);
  await user.click(await screen.findByRole("button", { name: "Delete proxied traffic of west" }));
  const question = await screen.findByRole("dialog", { name: /^Delete proxied/ });
  expect(question).toHaveTextContent("New connections pass west without its proxy");
  await user.click(within(question).getByRole("button", { name: "Delete" }));
  await waitFor(() => {
    expect(sent).toMatchObject({ proxied_traffic: { interfaces: [], prefixes: [], mode: "same-ports" } });
  });
});
