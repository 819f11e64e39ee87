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

  it("shows what a value is refused for at its field while it is filled in, also among the further options", async () => {
    const user = userEvent.setup();
    const fault = (field: string, detail: string) => ({
      status: 422,
      body: { type: "urn:chart:problem:invalid-value", title: "Invalid value", status: 422, detail, field },
    });
    const created = show({
      "POST /v1/rate-requests:preview": () => fault("guaranteed_bps", "outside the range of signalling"),
      "POST /v1/rate-requests": () => fault("burst_tolerance", "16 is above the highest value, 15"),
    });
    await choose(user);
    const rate = screen.getByLabelText("Guaranteed rate");
    await waitFor(() => {
      expect(rate).toHaveAccessibleDescription(/outside the range of signalling/);
    });
    const more = screen.getByRole("button", { name: "More options" });
    expect(more).toHaveAttribute("aria-expanded", "false");
    await user.click(screen.getByRole("button", { name: "Request this rate" }));
    await waitFor(() => {
      expect(screen.getByLabelText("Burst tolerance")).toHaveAccessibleDescription(/above the highest value/);
    });
    expect(more).toHaveAttribute("aria-expanded", "true");
    expect(created).not.toHaveBeenCalled();
  });

  it("asks for the maximum rate that its service needs", async () => {
    const user = userEvent.setup();
    const created = show({});
    await choose(user);
    await user.click(screen.getByRole("radio", { name: "maximum" }));
    expect(screen.getByLabelText("Guaranteed rate")).toBeDisabled();
    await user.click(screen.getByRole("button", { name: "Request this rate" }));
    expect(await screen.findByText(/the service needs one/)).toBeVisible();
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
