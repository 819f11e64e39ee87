import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";

import { node, renderInApp, stubGateway } from "../../shared/samples";
import { Enforcement } from "./Enforcement";

vi.mock("../../shared/hooks", async (original) => ({
  ...(await original<typeof import("../../shared/hooks")>()),
  useMay: () => true,
}));

const DEFAULT = {
  id: "default",
  revision: 3,
  enforcement: "observe",
  link_controller: "nec",
  max_guaranteed_bps: null,
  quick_start_request_bps: null,
  customer_weights: {},
  in_force: {
    enforcement: "observe",
    link_controller: "nec",
    max_guaranteed_bps: 0,
    quick_start_request_bps: 0,
  },
};
// A policy for another reason: its mode is that of the default.
const OWN = {
  ...DEFAULT,
  id: "a",
  revision: 4,
  enforcement: null,
  link_controller: null,
  max_guaranteed_bps: 40_000_000,
  quick_start_request_bps: 80_000_000,
};

afterEach(() => {
  vi.unstubAllGlobals();
});

it("shows which nodes follow the default, and changes nothing but the mode", async () => {
  const sent: unknown[] = [];
  const put = (body: unknown) => {
    sent.push(body);
    return { status: 200, body: OWN };
  };
  vi.stubGlobal(
    "fetch",
    vi.fn(
      stubGateway({
        "GET /v1/nodes": () => ({ status: 200, body: { items: [node("a"), node("b")] } }),
        "GET /v1/policies": () => ({ status: 200, body: { items: [DEFAULT, OWN] } }),
        "PUT /v1/policies/a": put,
        "PUT /v1/policies/b": put,
      }),
    ),
  );
  const user = userEvent.setup();
  renderInApp(<Enforcement />);
  const a = await screen.findByTestId("enforcement-of-a");
  await waitFor(() => {
    expect(screen.getAllByText("follows the default: observe")).toHaveLength(2);
  });
  expect(within(a).getByRole("radio", { name: "default" })).toBeChecked();
  for (const [id, mode] of [
    ["a", "enforce"],
    ["b", "off"],
  ] as const) {
    await user.click(within(screen.getByTestId(`enforcement-of-${id}`)).getByRole("radio", { name: mode }));
    await user.click(await screen.findByRole("button", { name: "Switch" }));
    await waitFor(() => {
      expect(screen.queryByRole("button", { name: "Switch" })).toBeNull();
    });
  }
  expect(sent).toEqual([
    {
      enforcement: "enforce",
      link_controller: null,
      max_guaranteed_bps: 40_000_000,
      quick_start_request_bps: 80_000_000,
    },
    { enforcement: "off", link_controller: null, max_guaranteed_bps: null, quick_start_request_bps: null },
  ]);
});
