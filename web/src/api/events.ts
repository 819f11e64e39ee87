/**
 * The one event stream of a page (server-sent events). The browser reconnects by itself and resumes with Last-Event-ID;
 * what arrives is put into the query cache, so that pages read live and fetched data in one way.
 */
import type { QueryClient } from "@tanstack/react-query";

import type { Link, LinkLoad, LinkRate, Measurement, RateRequest } from "./types";

export type Connection = "connecting" | "live" | "lost";

export interface LinkSample {
  /** Milliseconds since the epoch. */
  at: number;
  load: LinkLoad | null;
  rate: LinkRate | null;
}

type LinkListener = (id: string, sample: LinkSample) => void;
type ConnectionListener = () => void;

const NAMES = [
  "link-load",
  "link-rate",
  "node-state",
  "measurement",
  "rate-request",
  "grant-status",
  "topology",
  "policy",
  // The gateway could not replay what was missed.
  "resync",
] as const;
export type Name = (typeof NAMES)[number];

/** Changes of links are handed on together this often: a large network says thousands of things a second. */
const GATHER_MS = 100;
/** Slots of a link's heartbeat, and how long one is. */
export const BEAT_MS = 5000;
const BEATS = 60;

function withLinks(links: Link[] | undefined, changes: Map<string, Partial<Link>>): Link[] | undefined {
  return links?.map((link) => {
    const change = changes.get(link.id);
    return change ? { ...link, ...change } : link;
  });
}

const MEASURED = ["rtt_us", "loss_ratio", "available_bandwidth_bps"] as const;

/** The links with a new measurement between their ends. */
function withMeasurement(links: Link[] | undefined, heard: Measurement): Link[] | undefined {
  const metric = MEASURED.find((name) => name === heard.metric);
  if (!metric || heard.error) return links;
  return links?.map((link) => {
    if (link.from_node !== heard.source_node || link.to_node !== heard.destination_node) return link;
    const before = link.measured ?? { rtt_us: null, loss_ratio: null, available_bandwidth_bps: null };
    const now = { value: heard.value, at: heard.measured_at, stale: heard.stale };
    return { ...link, measured: { ...before, [metric]: now } };
  });
}

export class LiveEvents {
  connection: Connection = "connecting";
  private source: EventSource | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private lastId = "";
  private gathered = new Map<string, Partial<Link>>();
  private gathering: ReturnType<typeof setTimeout> | undefined;
  /** Greatest utilisation of each link in each slot of time. */
  private readonly beats = new Map<string, Map<number, number>>();
  private readonly linkListeners = new Set<LinkListener>();
  private readonly connectionListeners = new Set<ConnectionListener>();

  constructor(private readonly queries: QueryClient) {}

  open(): void {
    if (this.source) return;
    // The browser resumes by itself after a broken connection; a stream that is made anew says where it was.
    const source = new EventSource(
      this.lastId ? `/v1/events?after=${encodeURIComponent(this.lastId)}` : "/v1/events",
    );
    this.source = source;
    source.onopen = () => {
      this.setConnection("live");
    };
    source.onerror = () => {
      this.setConnection("lost");
      // The browser gives up on an HTTP error; try again by ourselves.
      if (source.readyState === EventSource.CLOSED) {
        this.source = null;
        this.retry = setTimeout(() => {
          this.open();
        }, 2000);
      }
    };
    for (const name of NAMES) {
      source.addEventListener(name, (event: MessageEvent<string>) => {
        if (event.lastEventId) this.lastId = event.lastEventId;
        this.apply(name, JSON.parse(event.data) as Record<string, unknown>);
      });
    }
  }

  close(): void {
    clearTimeout(this.retry);
    clearTimeout(this.gathering);
    this.gathering = undefined;
    this.source?.close();
    this.source = null;
    this.lastId = "";
    this.setConnection("connecting");
  }

  onLink(listener: LinkListener): () => void {
    this.linkListeners.add(listener);
    return () => this.linkListeners.delete(listener);
  }

  subscribeConnection = (listener: ConnectionListener): (() => void) => {
    this.connectionListeners.add(listener);
    return () => this.connectionListeners.delete(listener);
  };

  getConnection = (): Connection => this.connection;

  /** Public so that a test can feed it. */
  apply(name: Name, data: Record<string, unknown>): void {
    switch (name) {
      case "link-load":
      case "link-rate": {
        const id = String(data.link_id ?? data.id);
        const load = name === "link-load" ? (data as unknown as LinkLoad) : null;
        const rate = name === "link-rate" ? (data as unknown as LinkRate) : null;
        this.gather(id, load ? { load } : { rate });
        if (load) this.beat(id, load);
        for (const listener of this.linkListeners) listener(id, { at: Date.now(), load, rate });
        break;
      }
      case "rate-request": {
        const request = data as unknown as RateRequest;
        this.queries.setQueryData<RateRequest>(["rate-request", request.id], request);
        void this.queries.invalidateQueries({ queryKey: ["request-history", request.id] });
        this.queries.setQueryData<{ items: RateRequest[]; next_cursor: string | null }>(
          ["rate-requests"],
          (page) => {
            if (!page) return page;
            const others = page.items.filter((item) => item.id !== request.id);
            const items = [...others, request].sort((a, b) => b.created_at.localeCompare(a.created_at));
            return { ...page, items };
          },
        );
        break;
      }
      case "measurement":
        this.queries.setQueryData<Link[]>(["links"], (links) =>
          withMeasurement(links, data as unknown as Measurement),
        );
        break;
      case "topology":
        void this.queries.invalidateQueries({ queryKey: ["nodes"] });
        void this.queries.invalidateQueries({ queryKey: ["links"] });
        break;
      case "policy":
        void this.queries.invalidateQueries({ queryKey: ["policies"] });
        void this.queries.invalidateQueries({ queryKey: ["nodes"] });
        break;
      case "node-state":
        void this.queries.invalidateQueries({ queryKey: ["nodes"] });
        break;
      case "grant-status":
        void this.queries.invalidateQueries({ queryKey: ["rate-request", String(data.request_id)] });
        break;
      case "resync":
        void this.queries.invalidateQueries();
        break;
    }
  }

  /** Utilisation of a link in the last slots, oldest first; null where nothing was heard. */
  heartbeat(id: string, nowMs: number): (number | null)[] {
    const known = this.beats.get(id);
    const last = Math.floor(nowMs / BEAT_MS);
    const slots = Array.from({ length: BEATS }, (_, index) => known?.get(last - BEATS + 1 + index) ?? null);
    const first = slots.findIndex((slot) => slot !== null);
    // Before the first word there was nobody to hear it: that is no silence of the link.
    return first < 0 ? [] : slots.slice(first);
  }

  private beat(id: string, load: LinkLoad): void {
    const slot = Math.floor(Date.parse(load.at) / BEAT_MS);
    const known = this.beats.get(id) ?? new Map<number, number>();
    known.set(slot, Math.max(known.get(slot) ?? 0, load.utilisation));
    for (const old of known.keys()) if (old <= slot - BEATS) known.delete(old);
    this.beats.set(id, known);
  }

  private gather(id: string, change: Partial<Link>): void {
    this.gathered.set(id, { ...this.gathered.get(id), ...change });
    this.gathering ??= setTimeout(() => {
      this.hand();
    }, GATHER_MS);
  }

  /** Hands on what was gathered; public so that a test need not wait. */
  hand(): void {
    clearTimeout(this.gathering);
    this.gathering = undefined;
    const changes = this.gathered;
    this.gathered = new Map();
    this.queries.setQueryData<Link[]>(["links"], (links) => withLinks(links, changes));
  }

  private setConnection(connection: Connection): void {
    if (this.connection === connection) return;
    // What happened while the stream was away may be more than it can replay: fetch once.
    if (connection === "live" && this.connection === "lost") void this.queries.invalidateQueries();
    this.connection = connection;
    for (const listener of this.connectionListeners) listener();
  }
}
