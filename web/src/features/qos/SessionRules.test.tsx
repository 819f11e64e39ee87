import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import { type Answers, renderInApp, stubGateway } from "../../shared/samples";
import { SessionRules } from "./SessionRules";

const RULE = {
  id: "telephony",
  revision: 4,
  name: "Telephony",
  session_class: "voice",
  selectors: [{ protocol: "udp", dscp: 46 }],
  service: "guaranteed",
  guaranteed_bps: 82_000,
  available_bps: 0,
  delay_class: 6,
  priority: 0,
  burst_tolerance: 0,
  nodes: [],
  node_tags: {},
  enabled: false,
  authorised: true,
  built_in: true,
  expedited: true,
  sessions: 2,
  expedited_sessions: 1,
  reported_by: [],
};

function stub(roles: string[], answers: Answers = {}) {
  vi.stubGlobal(
    "fetch",
    vi.fn(
      stubGateway({
        "GET /auth/me": () => ({ status: 200, body: { subject: "ann", roles } }),
        "GET /v1/session-rules": () => ({ status: 200, body: { items: [RULE] } }),
        ...answers,
      }),
    ),
  );
  return userEvent.setup();
}

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("session rules in the console", () => {
  it("become expedited with one switch", async () => {
    let sent: unknown;
    const user = stub(["operator"], {
      "PUT /v1/session-rules/telephony": (body) => {
        sent = body;
        return { status: 200, body: RULE };
      },
    });
    renderInApp(<SessionRules />);
    const expedite = await screen.findByRole("switch", { name: "Expedite Telephony" });
    await waitFor(() => {
      expect(expedite).toBeEnabled();
    });
    expect(expedite).not.toBeChecked();
    await user.click(expedite);
    await waitFor(() => {
      expect(sent).toMatchObject({ enabled: true, authorised: true, delay_class: 6, guaranteed_bps: 82_000 });
    });
    expect(screen.queryByRole("button", { name: "Delete Telephony" })).not.toBeInTheDocument();
  });

  it("are changed in a form that keeps the rest", async () => {
    let sent: unknown;
    const user = stub(["operator"], {
      "PUT /v1/session-rules/telephony": (body) => {
        sent = body;
        return { status: 200, body: RULE };
      },
    });
    renderInApp(<SessionRules />);
    await user.click(await screen.findByRole("button", { name: "Change Telephony" }));
    const form = await screen.findByRole("dialog", { name: "Change Telephony" });
    const rate = within(form).getByLabelText("Guaranteed");
    await user.clear(rate);
    await user.type(rate, "100");
    await user.click(within(form).getByRole("button", { name: "Save" }));
    await waitFor(() => {
      expect(sent).toMatchObject({
        guaranteed_bps: 100_000,
        available_bps: 0,
        delay_class: 6,
        enabled: false,
      });
    });
  });

  it("are seen, not changed, by viewers", async () => {
    stub(["viewer"]);
    renderInApp(<SessionRules />);
    expect(await screen.findByRole("switch", { name: "Enable Telephony" })).toBeDisabled();
    expect(screen.queryByRole("button", { name: /^Change/ })).not.toBeInTheDocument();
  });
});
