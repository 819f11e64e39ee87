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
  "topology",
  "policy",
  // The gateway could not replay what was missed.
  "resync",
] as const;
export type Name = (typeof NAMES)[number];

function withLink(links: Link[] | undefined, id: string, change: Partial<Link>): Link[] | undefined {
  return links?.map((link) => (link.id === id ? { ...link, ...change } : link));
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
  private readonly linkListeners = new Set<LinkListener>();
  private readonly connectionListeners = new Set<ConnectionListener>();

  constructor(private readonly queries: QueryClient) {}

  open(): void {
    if (this.source) return;
    const source = new EventSource("/v1/events");
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
        this.apply(name, JSON.parse(event.data) as Record<string, unknown>);
      });
    }
  }

  close(): void {
    clearTimeout(this.retry);
    this.source?.close();
    this.source = null;
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
        this.queries.setQueryData<Link[]>(["links"], (links) =>
          withLink(links, id, load ? { load } : { rate: rate }),
        );
        for (const listener of this.linkListeners) listener(id, { at: Date.now(), load, rate });
        break;
      }
      case "rate-request": {
        const request = data as unknown as RateRequest;
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
      case "node-state":
        void this.queries.invalidateQueries({ queryKey: ["nodes"] });
        break;
      case "resync":
        void this.queries.invalidateQueries();
        break;
    }
  }

  private setConnection(connection: Connection): void {
    if (this.connection === connection) return;
    // What happened while the stream was away may be more than it can replay: fetch once.
    if (connection === "live" && this.connection === "lost") void this.queries.invalidateQueries();
    this.connection = connection;
    for (const listener of this.connectionListeners) listener();
  }
}
