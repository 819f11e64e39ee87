import { QueryClient } from "@tanstack/react-query";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { LiveEvents, MANY_LINKS } from "./events";
import type { Link, NetworkNode } from "./types";
import { link, node, request } from "../shared/samples";

/** A stand-in for the browser's EventSource: tests say what the network does. */
class FakeSource {
  static readonly CLOSED = 2;
  static last: FakeSource | null = null;
  static opened = 0;
  readyState = 0;
  onopen: (() => void) | null = null;
  onerror: (() => void) | null = null;
  private readonly listeners = new Map<string, (event: { data: string; lastEventId: string }) => void>();

  constructor(readonly url: string) {
    FakeSource.last = this;
    FakeSource.opened += 1;
  }
  addEventListener(name: string, listener: (event: { data: string; lastEventId: string }) => void) {
    this.listeners.set(name, listener);
  }
  send(name: string, data: unknown, lastEventId = "") {
    this.listeners.get(name)?.({ data: JSON.stringify(data), lastEventId });
  }
  close() {
    this.readyState = FakeSource.CLOSED;
  }
}

const load = { ...link().load, link_id: "a:to-b", utilisation: 0.9, sent_bps: 90_000_000 };

describe("LiveEvents", () => {
  let queries: QueryClient;
  let live: LiveEvents;

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("EventSource", FakeSource);
    FakeSource.opened = 0;
    queries = new QueryClient();
    queries.setQueryData(["links"], [link(), link({ id: "b:to-a", from_node: "b", to_node: "a" })]);
    live = new LiveEvents(queries);
  });
  afterEach(() => {
    live.close();
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  const links = () => queries.getQueryData<Link[]>(["links"]) ?? [];

  it("puts a load on its link alone and tells who listens", () => {
    const heard: [string, number | undefined][] = [];
    const stop = live.onLink((id, sample) => heard.push([id, sample.load?.sent_bps]));
    live.apply("link-load", load);
    stop();
    live.apply("link-load", load);
    expect(links()[0]?.load?.utilisation).toBe(0.25);
    vi.advanceTimersByTime(100);
    expect(links()[0]?.load?.utilisation).toBe(0.9);
    expect(links()[1]?.load?.utilisation).toBe(0.25);
    expect(heard).toEqual([["a:to-b", 90_000_000]]);
  });

  it("takes several loads from one event", () => {
    live.open();
    const other = { ...load, link_id: "b:to-a", utilisation: 0.5 };
    FakeSource.last?.send("link-load", [load, other]);
    live.hand();
    expect(links().map((one) => one.load?.utilisation)).toEqual([0.9, 0.5]);
    expect(live.pulse("b:to-a")).toEqual({ at: Date.parse(load.at ?? ""), utilisation: 0.5 });
  });

  it("hands on what a large network says less often", () => {
    const many = Array.from({ length: MANY_LINKS + 1 }, (_, index) => link({ id: `n${index}:to-x` }));
    queries.setQueryData(["links"], many);
    live.apply("link-load", { ...load, link_id: "n0:to-x" });
    vi.advanceTimersByTime(500);
    expect(links()[0]?.load?.utilisation).toBe(0.25);
    vi.advanceTimersByTime(500);
    expect(links()[0]?.load?.utilisation).toBe(0.9);
  });

  it("puts a rate on its link and keeps its load", () => {
    live.apply("link-rate", {
      link_id: "a:to-b",
      available_bps: 7,
      explicit_rate_capacity_bps: 9,
      valid_until: "",
    });
    live.hand();
    expect(links()[0]?.rate?.available_bps).toBe(7);
    expect(links()[0]?.load?.utilisation).toBe(0.25);
  });

  it("puts a measurement on the link between its ends, and no failed or foreign one", () => {
    const measurement = {
      source_node: "a",
      destination_node: "b",
      metric: "rtt_us",
      value: 5,
      error: "",
      stale: false,
      measured_at: "now",
    };
    live.apply("measurement", measurement);
    live.apply("measurement", { ...measurement, value: 6, error: "unreachable" });
    live.apply("measurement", { ...measurement, value: 7, metric: "jitter_us" });
    live.hand();
    expect(links().map((one) => one.measured?.rtt_us?.value)).toEqual([5, 100_000]);
    expect(links()[0]?.measured?.loss_ratio?.value).toBe(0.05);
  });

  it("puts the state of a node on that node", () => {
    queries.setQueryData(["nodes"], [node("a"), node("b")]);
    live.apply("node-state", { node: "b", state: { enforcement: "observe" } });
    live.hand();
    const nodes = queries.getQueryData<NetworkNode[]>(["nodes"]);
    expect(nodes?.map(({ state }) => state?.enforcement)).toEqual([undefined, "observe"]);
  });

  it("adds a new request in front and replaces one that changed", () => {
    const page = () =>
      queries.getQueryData<{ items: { id: string; enforcement: string }[] }>(["rate-requests"])?.items;
    live.apply("rate-request", request());
    expect(page()).toBeUndefined();
    queries.setQueryData(["rate-requests"], { items: [request()], next_cursor: null });
    live.apply("rate-request", request({ id: "r2", created_at: "2030-01-01T00:00:05Z" }));
    live.apply("rate-request", request({ enforcement: "ENFORCED" }));
    expect(page()?.map(({ id, enforcement }) => [id, enforcement])).toEqual([
      ["r2", "PENDING"],
      ["r1", "ENFORCED"],
    ]);
  });

  it("fetches anew after a silence and when the gateway cannot replay", () => {
    const invalidated = vi.spyOn(queries, "invalidateQueries");
    live.open();
    FakeSource.last?.onopen?.();
    expect(live.getConnection()).toBe("live");
    expect(invalidated).not.toHaveBeenCalled();
    FakeSource.last?.onerror?.();
    expect(live.getConnection()).toBe("lost");
    FakeSource.last?.onopen?.();
    expect(invalidated).toHaveBeenCalledTimes(1);
    FakeSource.last?.send("resync", { reason: "too old" });
    expect(invalidated).toHaveBeenCalledTimes(2);
  });

  it("fetches a list of which much is said at once twice, not for each word", () => {
    const invalidated = vi.spyOn(queries, "invalidateQueries");
    for (let count = 0; count < 500; count += 1) live.apply("topology", { kind: "node", id: `n${count}` });
    expect(invalidated.mock.calls.map(([one]) => one?.queryKey?.[0])).toEqual(["nodes", "links"]);
    vi.advanceTimersByTime(5000);
    expect(invalidated).toHaveBeenCalledTimes(4);
    live.apply("topology", { kind: "node", id: "n0" });
    expect(invalidated).toHaveBeenCalledTimes(6);
  });

  it("goes on where it was when it has to be made anew, but not for the next person", () => {
    live.open();
    FakeSource.last?.send("policy", {}, "e-17");
    FakeSource.last?.close();
    FakeSource.last?.onerror?.();
    vi.advanceTimersByTime(2000);
    expect(FakeSource.last?.url).toBe("/v1/events?together=true&after=e-17");
    live.close();
    live.open();
    expect(FakeSource.last?.url).toBe("/v1/events?together=true");
  });

  it("keeps how busy a link was, and where it was silent", () => {
    const at = (second: number, utilisation: number) =>
      ({ ...load, utilisation, at: new Date(Date.UTC(2030, 0, 1, 0, 0, second)).toISOString() }) as const;
    for (const sample of [at(0, 0.2), at(1, 0.4), at(6, 0.1), at(17, 0.9)]) live.apply("link-load", sample);
    expect(live.heartbeat("a:to-b", Date.UTC(2030, 0, 1, 0, 0, 19))).toEqual([0.4, 0.1, null, 0.9]);
    expect(live.heartbeat("b:to-a", Date.UTC(2030, 0, 1))).toEqual([]);
  });

  it("knows how busy a link was before the stream began", () => {
    const at = (second: number) => new Date(Date.UTC(2030, 0, 1, 0, 0, second)).toISOString();
    live.apply("link-load", { ...load, utilisation: 0.9, at: at(11) });
    live.remember("a:to-b", 100, [
      { at: at(0), value: 20 },
      { at: at(5), value: null },
      { at: at(10), value: 50 },
    ]);
    expect(live.heartbeat("a:to-b", Date.UTC(2030, 0, 1, 0, 0, 12))).toEqual([0.2, null, 0.9]);
  });

  it("opens again when the browser has given up, but not after the session ended", () => {
    live.open();
    FakeSource.last?.close();
    FakeSource.last?.onerror?.();
    vi.advanceTimersByTime(2000);
    expect(FakeSource.opened).toBe(2);
    FakeSource.last?.close();
    FakeSource.last?.onerror?.();
    live.close();
    vi.advanceTimersByTime(60_000);
    expect(FakeSource.opened).toBe(2);
  });
});
