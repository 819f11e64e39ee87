import { act, screen, waitFor, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useQuery } from "@tanstack/react-query";
import { afterEach, describe, expect, it, vi } from "vitest";

import { api } from "../../api/client";
import type { PairGroup, PairSeries } from "../../api/types";
import { type Answers, node, renderInApp, stubGateway } from "../../shared/samples";
import { metricOf } from "../paths/matrix";
import { PairGroupDetail } from "./PairGroupDetail";
import { GROUPS_KEY, PairGroups } from "./PairGroups";

const BRANCHES: PairGroup = {
  id: "branches",
  revision: 4,
  description: "Branches to the data centre",
  source_nodes: [],
  destination_nodes: ["charlie", "delta"],
  pairs: [{ source_node: "alpha", destination_node: "bravo" }],
  owner: "ann",
};
const SERIES: PairSeries = {
  source_node: null,
  destination_node: null,
  unit: "us",
  at: ["2030-01-01T00:00:00Z"],
  mean: [20_000],
  minimum: [10_000],
  maximum: [40_000],
  count: [6],
  p50: [19_000],
  p95: [38_000],
  pairs: [2],
};

/** A stand-in for the browser's EventSource. */
class FakeSource {
  static made: FakeSource[] = [];
  onopen = () => {};
  onerror = () => {};
  closed = false;
  private readonly listeners = new Map<string, () => void>();
  constructor(readonly url: string) {
    FakeSource.made.push(this);
  }
  addEventListener(name: string, listener: () => void) {
    this.listeners.set(name, listener);
  }
  say(name: string) {
    this.listeners.get(name)?.();
  }
  close() {
    this.closed = true;
  }
}

function stub(subject: string, roles: string[], answers: Answers = {}) {
  FakeSource.made = [];
  vi.stubGlobal("EventSource", FakeSource);
  vi.stubGlobal(
    "fetch",
    vi.fn(
      stubGateway({
        "GET /auth/me": () => ({ status: 200, body: { subject, roles } }),
        "GET /v1/nodes": () => ({ status: 200, body: { items: [node("alpha"), node("bravo")] } }),
        "GET /v1/pair-groups": () => ({
          status: 200,
          body: { items: [BRANCHES, { ...BRANCHES, id: "core", owner: "bob" }] },
        }),
        ...answers,
      }),
    ),
  );
  return userEvent.setup();
}

function Groups() {
  return <PairGroups groups={useQuery({ queryKey: GROUPS_KEY, queryFn: api.pairGroups })} />;
}

const RANGE = { fromMs: 0, untilMs: 300_000, live: true, label: "last 5 minutes" };
const renderDetail = () =>
  renderInApp(<PairGroupDetail group={BRANCHES} metric={metricOf("rtt_us")} range={RANGE} />);

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("groups of pairs", () => {
  it("are a list for viewers, who change nothing", async () => {
    stub("eve", ["viewer"]);
    renderInApp(<Groups />);
    const row = (await screen.findByText("branches")).closest("tr");
    expect(row).not.toBeNull();
    expect(within(row as HTMLElement).getByText("any node")).toBeTruthy();
    expect(within(row as HTMLElement).getByText("charlie, delta")).toBeTruthy();
    expect(screen.queryByRole("button", { name: "New group" })).toBeNull();
    expect(screen.queryByRole("button", { name: "Delete branches" })).toBeNull();
  });

  it("are changed by their owner and by operators", async () => {
    stub("ann", ["application"]);
    const { unmount } = renderInApp(<Groups />);
    await screen.findByRole("button", { name: "Change branches" });
    expect(screen.queryByRole("button", { name: "Change core" })).toBeNull();
    expect(screen.queryByRole("button", { name: "Delete core" })).toBeNull();
    unmount();
    stub("olga", ["operator"]);
    renderInApp(<Groups />);
    await screen.findByRole("button", { name: "Change branches" });
    expect(screen.getByRole("button", { name: "Delete core" })).toBeTruthy();
  });

  it("are made in a form, which refuses a pair that is none", async () => {
    const sent = vi.fn();
    const user = stub("ann", ["application"], {
      "PUT /v1/pair-groups/sites": (body) => {
        sent(body);
        return { status: 201, body: BRANCHES };
      },
    });
    renderInApp(<Groups />);
    await user.click(await screen.findByRole("button", { name: "New group" }));
    await user.type(await screen.findByRole("textbox", { name: "Group" }), "sites");
    const pairs = screen.getByRole("textbox", { name: "Single pairs" });
    await user.type(pairs, "alpha");
    await user.click(screen.getByRole("button", { name: "Save" }));
    expect(await screen.findByText(/One pair a line/)).toBeTruthy();
    expect(sent).not.toHaveBeenCalled();
    await user.type(pairs, ",bravo");
    await user.type(screen.getByRole("combobox", { name: "Destinations" }), "delta{Enter}");
    await user.click(screen.getByRole("button", { name: "Save" }));
    await waitFor(() => {
      expect(sent).toHaveBeenCalledWith({
        description: "",
        source_nodes: [],
        destination_nodes: ["delta"],
        pairs: [{ source_node: "alpha", destination_node: "bravo" }],
      });
    });
  });

  it("are deleted after a question, and a refusal stays to be read", async () => {
    const user = stub("ann", ["operator"], {
      "DELETE /v1/pair-groups/core": () => ({
        status: 403,
        body: { type: "about:blank", title: "Forbidden", status: 403, detail: "group core belongs to bob" },
      }),
    });
    renderInApp(<Groups />);
    await user.click(await screen.findByRole("button", { name: "Delete core" }));
    const asked = await screen.findByRole("dialog", { name: "Delete core?" });
    await user.click(within(asked).getByRole("button", { name: "Delete" }));
    expect(await within(asked).findByText("group core belongs to bob")).toBeTruthy();
  });
});

describe("one group of pairs", () => {
  it("shows its aggregates, its pairs, and asks again with each minute of its subscription", async () => {
    const asked = vi.fn();
    const pair = { ...SERIES, source_node: "alpha", destination_node: "bravo", p50: [], p95: [], pairs: [] };
    stub("ann", ["viewer"], {
      "GET /v1/pair-groups/branches/series": () => {
        asked();
        // The first answer is of all pairs, the second by pair.
        return { status: 200, body: { items: asked.mock.calls.length % 2 === 1 ? [SERIES] : [pair] } };
      },
    });
    const { unmount } = renderDetail();
    expect(
      await screen.findByRole("figure", { name: "Round-trip time of branches, last 5 minutes" }),
    ).toBeTruthy();
    expect(await screen.findByText(/2 pairs in the last step/)).toBeTruthy();
    const row = (await screen.findByText("alpha → bravo")).closest("tr") as HTMLElement;
    for (const shown of ["20.0 ms", "10.0 ms", "40.0 ms", "6"])
      expect(within(row).getByText(shown)).toBeTruthy();
    const file = new URL(
      screen.getByRole("link", { name: "Results as CSV" }).getAttribute("href") ?? "",
      "http://x",
    );
    expect(file.pathname).toBe("/v1/pair-groups/branches/history");
    expect(file.searchParams.get("from")).toBe("1970-01-01T00:00:00.000Z");
    const [source] = FakeSource.made;
    expect(source?.url).toBe("/v1/pair-groups/branches/events?metric=rtt_us");
    expect(screen.getByText("not subscribed")).toBeTruthy();
    act(() => {
      source?.onopen();
    });
    expect(screen.getByText("renewed every minute")).toBeTruthy();
    const before = asked.mock.calls.length;
    act(() => {
      source?.say("minute");
    });
    await waitFor(() => {
      expect(asked.mock.calls.length).toBe(before + 2);
    });
    unmount();
    expect(source?.closed).toBe(true);
  });

  it("says why there is no chart", async () => {
    stub("ann", ["viewer"], {
      "GET /v1/pair-groups/branches/series": () => ({
        status: 503,
        body: {
          type: "about:blank",
          title: "Service unavailable",
          status: 503,
          detail: "the archiver is away",
        },
      }),
    });
    renderDetail();
    expect((await screen.findAllByText("the archiver is away")).length).toBeGreaterThan(0);
  });
});
