import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, expect, it, vi } from "vitest";

import type { Quota } from "../../api/types";
import { renderInApp, stubGateway } from "../../shared/samples";
import { Quotas } from "./Quotas";

const DEFAULT: Quota = {
  application: "default",
  revision: 1,
  max_requests: 1000,
  max_total_bps: 10_000_000_000,
  max_priority: 127,
  horizon_s: 90 * 86_400,
  max_held_bps: 1_000_000_000,
  used_requests: null,
  used_total_bps: null,
  used_held_bps: null,
};
const SHOP: Quota = {
  ...DEFAULT,
  application: "shop",
  max_total_bps: null,
  used_requests: 3,
  used_total_bps: 20_000_000,
  used_held_bps: 0,
};

afterEach(() => {
  vi.unstubAllGlobals();
});

it("shows quotas with their use and changes them; an empty field is no limit", async () => {
  let sent: unknown;
  vi.stubGlobal(
    "fetch",
    vi.fn(
      stubGateway({
        "GET /v1/quotas": () => ({ status: 200, body: { items: [DEFAULT, SHOP] } }),
        "PUT /v1/quotas/default": (body) => {
          sent = body;
          return { status: 200, body: DEFAULT };
        },
      }),
    ),
  );
  const user = userEvent.setup();
  renderInApp(<Quotas />);
  expect(await screen.findByText("3 of 1000")).toBeInTheDocument();
  expect(screen.getByText(/^20\S* .* of unlimited$/)).toBeInTheDocument();
  expect(screen.getAllByText("90 d")).toHaveLength(2);
  await user.click(screen.getByRole("button", { name: "Change default" }));
  const requests = await screen.findByRole("textbox", { name: "Requests" });
  await user.clear(requests);
  await user.click(screen.getByRole("button", { name: "Save" }));
  await waitFor(() => {
    expect(sent).toEqual({
      max_requests: null,
      max_total_bps: 10_000_000_000,
      max_held_bps: 1_000_000_000,
      max_priority: 127,
      horizon_s: 90 * 86_400,
    });
  });
});
