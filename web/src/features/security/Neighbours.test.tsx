import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { AuthorisationPolicy, NextHop } from "../../api/types";
import { type Answers, renderInApp, stubGateway } from "../../shared/samples";
import { Neighbours } from "./Neighbours";
import { Policies } from "./Policies";

const HOP: NextHop = {
  element: "alpha",
  prefix: "10.9.0.0/16",
  next_element: "bravo",
  source: "operator",
  shim_address: "10.0.0.2",
  expires_at: null,
};
const POLICY: AuthorisationPolicy = {
  id: "apps",
  subjects: ["role/application"],
  services: ["guaranteed"],
  max_guaranteed_bps: 50_000_000,
  max_priority: 9,
  max_delay_class: 2,
  charging: 4,
  max_duration_s: 7200,
  any_address: false,
};

function stub(answers: Answers = {}) {
  const list = (...items: unknown[]) => ({ status: 200, body: { items } });
  vi.stubGlobal(
    "fetch",
    vi.fn(
      stubGateway({
        "GET /v1/next-hops": () => list(HOP, { ...HOP, prefix: "10.8.0.0/16", source: "topology" }),
        "GET /v1/peers": () => list(),
        "GET /v1/authorisation-policies": () => list(POLICY),
        ...answers,
      }),
    ),
  );
  return userEvent.setup();
}

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("next hops", () => {
  it("are changed in a form that keeps what they are of", async () => {
    let sent: unknown;
    const user = stub({
      "PUT /v1/next-hops/alpha/10.9.0.0/16": (body) => {
        sent = body;
        return { status: 200, body: HOP };
      },
    });
    renderInApp(<Neighbours />);
    await user.click(await screen.findByRole("button", { name: "Change alpha towards 10.9.0.0/16" }));
    const form = await screen.findByRole("dialog", { name: /^Change alpha/ });
    expect(within(form).getByLabelText(/^Element/)).toBeDisabled();
    const next = within(form).getByLabelText(/^Next element/);
    await user.clear(next);
    await user.type(next, "charlie");
    await user.click(within(form).getByRole("button", { name: "Save" }));
    await waitFor(() => {
      expect(sent).toEqual({ next_element: "charlie", shim_address: "10.0.0.2" });
    });
  });

  it("of the topology are not offered for deletion, those of operators are", async () => {
    let gone = false;
    const user = stub({
      "DELETE /v1/next-hops/alpha/10.9.0.0/16": () => {
        gone = true;
        return { status: 200, body: {} };
      },
    });
    renderInApp(<Neighbours />);
    await user.click(await screen.findByRole("button", { name: "Delete alpha towards 10.9.0.0/16" }));
    expect(
      screen.queryByRole("button", { name: "Delete alpha towards 10.8.0.0/16" }),
    ).not.toBeInTheDocument();
    const dialog = await screen.findByRole("dialog", { name: /^Delete alpha/ });
    await user.click(within(dialog).getByRole("button", { name: "Delete" }));
    await waitFor(() => {
      expect(gone).toBe(true);
    });
  });
});

describe("policies of authorisations", () => {
  it("keep what the form does not show", async () => {
    let sent: unknown;
    const user = stub({
      "PUT /v1/authorisation-policies/apps": (body) => {
        sent = body;
        return { status: 200, body: POLICY };
      },
    });
    renderInApp(<Policies />);
    await user.click(await screen.findByRole("button", { name: "Change apps" }));
    const form = await screen.findByRole("dialog", { name: "Change apps" });
    const rate = within(form).getByLabelText("Up to");
    await user.clear(rate);
    await user.type(rate, "60");
    await user.click(within(form).getByRole("button", { name: "Save" }));
    await waitFor(() => {
      expect(sent).toBeDefined();
    });
    expect({ id: "apps", ...(sent as object) }).toEqual({ ...POLICY, max_guaranteed_bps: 60_000_000 });
  });
});
