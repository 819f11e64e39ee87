import { screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { Enrolment, Identity, NodeKey } from "../../api/types";
import { type Answers, AT, node, renderInApp, stubGateway } from "../../shared/samples";
import { Nodes } from "./Nodes";

const IDENTITY: Identity = {
  identity: "node/alpha",
  element_id: 1,
  state: "enrolled",
  certificate_serial: "ab",
  certificate_issued_at: AT,
  certificate_expires_at: "2030-01-02T00:00:00Z",
  revoked_at: null,
  reason: "",
};
const KEYS: NodeKey = {
  node: "alpha",
  key_epoch: 7,
  kernel_release: "6.9",
  refused_signals: [],
  reported_at: AT,
  stale: false,
};
const WAITING: Enrolment = {
  id: "E1",
  identity: "node/bravo",
  state: "open",
  created_by: "olga",
  created_at: AT,
  expires_at: AT,
  used_at: null,
  withdrawn_at: null,
  certificate_serial: null,
  certificate_expires_at: null,
  certificate_revoked_at: null,
};

function show(answers: Answers = {}) {
  const list = (...items: unknown[]) => ({ status: 200, body: { items } });
  vi.stubGlobal(
    "fetch",
    vi.fn(
      stubGateway({
        "GET /v1/identities": () => list(IDENTITY),
        "GET /v1/node-keys": () => list(KEYS),
        "GET /v1/enrolments": () => list(WAITING, { ...WAITING, id: "E0", state: "used", used_at: AT }),
        "GET /v1/nodes": () => list(node("alpha")),
        ...answers,
      }),
    ),
  );
  renderInApp(<Nodes />);
  return userEvent.setup();
}

describe("the nodes of the security page", () => {
  afterEach(() => {
    vi.unstubAllGlobals();
  });

  it("shows state, key epoch and agent of a node", async () => {
    show();
    const row = await screen.findByRole("row", { name: /alpha/ });
    for (const words of ["enrolled", "7", "6.9", "heard"]) expect(row).toHaveTextContent(words);
  });

  it("enrols a node: the token is shown once, with the command", async () => {
    let sent: unknown;
    const user = show({
      "POST /v1/enrolments": (body) => {
        sent = body;
        return {
          status: 201,
          body: {
            id: "E2",
            identity: "node/charlie",
            token: "one-time-words",
            expires_at: AT,
            authority_url: "https://a.example:18443",
            authority_ca_pem: "PEM",
          },
        };
      },
    });
    await user.click(await screen.findByRole("button", { name: "Enrol a node" }));
    const form = await screen.findByRole("dialog", { name: "Enrol a node" });
    await user.type(within(form).getByLabelText(/^Node/), "Charlie");
    await user.click(within(form).getByRole("button", { name: "Make a token" }));
    expect(await within(form).findByText(/small letters, digits/)).toBeVisible();
    expect(sent).toBeUndefined();
    await user.clear(within(form).getByLabelText(/^Node/));
    await user.type(within(form).getByLabelText(/^Node/), "charlie");
    await user.click(within(form).getByRole("button", { name: "Make a token" }));
    expect(await within(form).findByText("one-time-words")).toBeVisible();
    expect(sent).toEqual({ identity: "node/charlie", life_s: 3600 });
    expect(form).toHaveTextContent("chart-agent --node charlie");
    await user.click(within(form).getByRole("button", { name: "Copy the token" }));
    expect(await navigator.clipboard.readText()).toBe("one-time-words");
    await user.click(within(form).getByRole("button", { name: "Done" }));
    await waitFor(() => {
      expect(screen.queryByText("one-time-words")).not.toBeInTheDocument();
    });
  });

  it("asks before it revokes, passes on the reason, and says why it was refused", async () => {
    const sent: unknown[] = [];
    const user = show({
      "POST /v1/revocations": (body) => {
        sent.push(body);
        return {
          status: 404,
          body: {
            type: "urn:chart:problem:unknown-identity",
            title: "Not found",
            status: 404,
            detail: "No certificate was ever issued to node/alpha.",
          },
        };
      },
    });
    await user.click(await screen.findByRole("button", { name: "Revoke alpha" }));
    const dialog = await screen.findByRole("dialog", { name: "Revoke alpha?" });
    expect(sent).toEqual([]);
    await user.type(within(dialog).getByLabelText("Reason"), "stolen");
    await user.click(within(dialog).getByRole("button", { name: "Revoke" }));
    expect(await within(dialog).findByRole("alert")).toHaveTextContent("No certificate was ever issued");
    expect(sent).toEqual([{ identity: "node/alpha", reason: "stolen" }]);
  });

  it("offers to withdraw only what is open", async () => {
    show();
    expect(await screen.findByRole("button", { name: "Withdraw node/bravo (E1)" })).toBeVisible();
    expect(screen.queryByRole("button", { name: "Withdraw node/bravo (E0)" })).not.toBeInTheDocument();
  });
});
