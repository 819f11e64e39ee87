import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { PlatformSettings as Settings } from "../../api/types";
import { renderInApp, stubGateway } from "../../shared/samples";
import { bodyOf, entriesOf, SETTINGS, words } from "./platform";
import { PlatformSettings } from "./PlatformSettings";

const NOTHING: Settings = {
  id: "platform",
  revision: 3,
  oversubscription: null,
  lease_idle_share: null,
  lease_greatest_share: null,
  snapshot_period_s: null,
  probe_share: null,
  application_limits: null,
  inference_fraction: null,
  inference_active_pairs: null,
  inference_active_valid_s: null,
  inference_active_priority: null,
  authority_unauthorised: null,
  authority_free_available_bps: null,
};
const SOME: Settings = {
  ...NOTHING,
  oversubscription: 2,
  probe_share: 0.07,
  inference_active_pairs: 0,
  application_limits: {
    robot: {
      configurations: 5,
      priority: null,
      period_ms: null,
      one_shots_per_minute: null,
      probe_share: 0.25,
    },
  },
};

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("settings of the platform", () => {
  it("are read as they are set, a zero is not the same as nothing", () => {
    const said = Object.fromEntries(SETTINGS.map((setting) => [setting.name, words(SOME, setting)]));
    expect(said.probe_share).toBe("7 % of its capacity");
    expect(said.inference_active_pairs).toBe("0");
    expect(said.lease_idle_share).toBe("as started (usually 10 %)");
  });

  it("come back from the form as they went in", () => {
    const body = bodyOf(entriesOf(SOME), SOME.application_limits);
    expect({ id: "platform", revision: 3, ...body }).toEqual(SOME);
  });

  it("are changed as a whole, at the revision that was shown", async () => {
    let sent: unknown;
    vi.stubGlobal(
      "fetch",
      vi.fn(
        stubGateway({
          "GET /auth/me": () => ({ status: 200, body: { subject: "ann", roles: ["operator"] } }),
          "GET /v1/platform-settings/platform": () => ({ status: 200, body: SOME }),
          "PUT /v1/platform-settings/platform": (body) => {
            sent = body;
            return { status: 200, body: { ...SOME, revision: 4 } };
          },
        }),
      ),
    );
    renderInApp(<PlatformSettings />);
    const limits = await screen.findByRole("table", { name: "Limits of applications" });
    expect(within(limits).getByText("25 %")).toBeInTheDocument();
    await userEvent.click(await screen.findByRole("button", { name: "Change settings" }));
    const field = await screen.findByLabelText("Probes on a link");
    await userEvent.clear(field);
    await userEvent.type(field, "2");
    await userEvent.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => {
      expect(sent).toMatchObject({
        probe_share: 0.02,
        oversubscription: 2,
        inference_active_pairs: 0,
        application_limits: SOME.application_limits,
      });
    });
  });
});
