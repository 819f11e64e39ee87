import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import { link, node, renderInApp, request, stubGateway, type Answers } from "../../shared/samples";
import { RequestForm } from "./RequestForm";

const REFUSAL = {
  type: "about:blank",
  title: "Not enough capacity",
  status: 409,
  detail: "The path can give at most 40 Mb/s.",
  field: "guaranteed_bps",
  ceiling: 40_000_000,
  suggestions: ["Ask for less."],
};

function show(answers: Answers, onCreated = vi.fn()) {
  vi.stubGlobal(
    "fetch",
    vi.fn(
      stubGateway({
        "GET /v1/nodes": () => ({ status: 200, body: { items: [node("a"), node("b")] } }),
        "GET /v1/links": () => ({ status: 200, body: { items: [link()] } }),
        "POST /v1/rate-requests:preview": () => ({
          status: 200,
          body: {
            granted: true,
            granted_bps: 10_000_000,
            path: ["a:to-b"],
            refusal: null,
            ceiling_bps: null,
          },
        }),
        ...answers,
      }),
    ),
  );
  renderInApp(<RequestForm onCreated={onCreated} />);
  return onCreated;
}

async function choose(user: ReturnType<typeof userEvent.setup>) {
  for (const [label, name] of [
    ["Sender", "a"],
    ["Receiver", "b"],
  ] as const) {
    await user.click(screen.getByRole("combobox", { name: label }));
    const options = await screen.findAllByRole("option", { name });
    await user.click(options.at(-1) as HTMLElement);
  }
}

describe("the form of a rate request", () => {
  afterEach(() => {
    vi.unstubAllGlobals();
  });

  it("puts a refusal on the field that it names", async () => {
    const user = userEvent.setup();
    const created = show({ "POST /v1/rate-requests": () => ({ status: 409, body: REFUSAL }) });
    await choose(user);
    await user.click(screen.getByRole("button", { name: "Request this rate" }));
    const field = screen.getByLabelText("Guaranteed rate");
    await waitFor(() => {
      expect(field).toHaveAttribute("aria-invalid", "true");
    });
    expect(field).toHaveAccessibleDescription(/at most 40 Mb\/s/);
    expect(screen.getByRole("alert")).toHaveTextContent("Ask for less.");
    expect(created).not.toHaveBeenCalled();
  });

  it("previews the answer, sends what was filled in, and hands on what was granted", async () => {
    const user = userEvent.setup();
    let sent: unknown;
    const created = show({
      "POST /v1/rate-requests": (body) => {
        sent = body;
        return { status: 201, body: request() };
      },
    });
    await choose(user);
    expect(await screen.findByTestId("preview")).toHaveTextContent("10.0 Mb/s guaranteed over a → b");
    await user.click(screen.getByRole("button", { name: "Request this rate" }));
    await waitFor(() => {
      expect(created).toHaveBeenCalledOnce();
    });
    expect(sent).toMatchObject({
      source: "a",
      destination: "b",
      guaranteed_bps: 10_000_000,
      duration_s: 3600,
    });
  });

  it("asks nothing of the gateway before both ends are chosen", async () => {
    const user = userEvent.setup();
    const created = show({});
    await user.click(screen.getByRole("button", { name: "Request this rate" }));
    expect(await screen.findByText("Select the sending node")).toBeVisible();
    expect(created).not.toHaveBeenCalled();
  });
});
