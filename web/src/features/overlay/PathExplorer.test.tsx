import { screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { OverlayTrace } from "../../api/types";
import { AT, renderInApp, stubGateway } from "../../shared/samples";
import { PathExplorer } from "./PathExplorer";

const TRACE: OverlayTrace = {
  source: "alpha",
  destination: "delta",
  owner: "delta",
  prefix: null,
  at: AT,
  past: false,
  paths: [
    {
      colour: 0,
      choice: true,
      hops: [
        {
          node: "alpha",
          link_id: "alpha:to-south",
          next_node: "delta",
          skipped: [{ link_id: "alpha:to-north", reason: "failed" }],
          all_failed: false,
          reported: true,
        },
      ],
      outcome: "arrives",
      detours: true,
      planned_link_ids: ["alpha:to-north"],
      capacity_bps: 0,
      quality: { alive: true, taken_by: ["data"], left_by: [], rtt_ms: 20, exchange_loss: 0, load: 0 },
      why: ["At alpha alpha:to-north failed: packets go by alpha:to-south."],
    },
  ],
  why: [],
};

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("the path explorer", () => {
  it("shows each hop, what was passed over, and why", async () => {
    vi.stubGlobal(
      "fetch",
      stubGateway({ "GET /v1/overlay/trace/alpha/delta": () => ({ status: 200, body: TRACE }) }),
    );
    renderInApp(<PathExplorer nodes={["alpha", "delta"]} search={{}} go={vi.fn()} />);
    await waitFor(() => {
      expect(screen.getByRole("region", { name: "Path 0" })).toHaveTextContent("alpha:to-north failed");
    });
    expect(screen.getByText("detour")).toBeInTheDocument();
    expect(screen.getByText(/packets go by alpha:to-south/)).toBeInTheDocument();
    expect(screen.getByText("As it is now.")).toBeInTheDocument();
  });

  it("asks for an address when it was typed, and for another time", async () => {
    const asked: string[] = [];
    vi.stubGlobal("fetch", (input: Request) => {
      asked.push(input.url);
      return stubGateway({
        "GET /v1/overlay/trace/alpha/delta": () => ({ status: 200, body: { ...TRACE, past: true } }),
      })(input);
    });
    const go = vi.fn();
    const user = userEvent.setup();
    renderInApp(<PathExplorer nodes={["alpha", "delta"]} search={{ at: AT }} go={go} />);
    await waitFor(() => {
      expect(screen.getByText(/^As it was at /)).toBeInTheDocument();
    });
    expect(asked[0]).toContain(`at=${encodeURIComponent(AT)}`);
    const destination = screen.getByRole("combobox", { name: /To: a node, or an address/ });
    await user.clear(destination);
    await user.type(destination, "10.20.0.5{Enter}");
    expect(go).toHaveBeenCalledWith({ destination: "10.20.0.5" });
    await user.click(screen.getByRole("button", { name: "Now" }));
    expect(go).toHaveBeenCalledWith({ at: undefined });
  });
});
