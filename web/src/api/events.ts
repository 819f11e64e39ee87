/**
 * The one event stream of a page (server-sent events). The browser reconnects by itself and resumes with Last-Event-ID;
 * what arrives is put into the query cache, so that pages read live and fetched data in one way.
 */
import type { QueryClient } from "@tanstack/react-query";

import type { Link, LinkLoad, LinkRate, Measurement, NetworkNode, RateRequest } from "./types";

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

/** More links than this: the map draws them itself, and tables take in what they say less often. */
export const MANY_LINKS = 200;
/** Changes of links are handed on to the pages together this often. */
const GATHER_MS = 100;
const GATHER_MANY_MS = 1000;
/** A list of which much is said at once (a network that is registered) is fetched anew at most this often. */
const RENEW_MS = 1000;
/** Slots of a link's heartbeat, and how long one is. */
export const BEAT_MS = 5000;
export const BEATS = 60;

const MEASURED = ["rtt_us", "loss_ratio", "available_bandwidth_bps"] as const;
type Measured = NonNullable<Link["measured"]>;

/** What was gathered since it was last handed on. */
interface Gathered {
  links: Map<string, Partial<Link>>;
  /** By the ends of a link, "from,to". */
  measured: Map<string, Partial<Measured>>;
  nodes: Map<string, NetworkNode["state"]>;
}
const nothing = (): Gathered => ({ links: new Map(), measured: new Map(), nodes: new Map() });

const UNMEASURED: Measured = { rtt_us: null, loss_ratio: null, available_bandwidth_bps: null };

/** The links with what changed of them; those that did not are the same objects. */
function withChanges(links: Link[] | undefined, { links: said, measured }: Gathered): Link[] | undefined {
  return links?.map((link) => {
    const change = said.get(link.id);
    const found = measured.get(`${link.from_node},${link.to_node}`);
    if (!change && !found) return link;
    const both = { ...link, ...change };
    return found ? { ...both, measured: { ...(link.measured ?? UNMEASURED), ...found } } : both;
  });
}

/** What was last heard of a link, for what draws thousands of them many times a second. */
export interface Pulse {
  /** Milliseconds since the epoch. */
  at: number;
  utilisation: number;
}

export class LiveEvents {
  connection: Connection = "connecting";
  private source: EventSource | null = null;
  private retry: ReturnType<typeof setTimeout> | undefined;
  private lastId = "";
  private gathered = nothing();
  private gathering: ReturnType<typeof setTimeout> | undefined;
  /** Greatest utilisation of each link in each slot of time. */
  private readonly beats = new Map<string, Map<number, number>>();
  private readonly pulses = new Map<string, Pulse>();
  /** Lists that were fetched anew within the last second: whether more was said of them since. */
  private readonly renewing = new Map<string, boolean>();
  private readonly linkListeners = new Set<LinkListener>();
  private readonly connectionListeners = new Set<ConnectionListener>();

  constructor(private readonly queries: QueryClient) {}

  open(): void {
    if (this.source) return;
    // The browser resumes by itself after a broken connection; a stream that is made anew says where it was.
    const after = this.lastId ? `&after=${encodeURIComponent(this.lastId)}` : "";
    const source = new EventSource(`/v1/events?together=true${after}`);
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
        const data = JSON.parse(event.data) as Record<string, unknown> | Record<string, unknown>[];
        if (Array.isArray(data)) for (const one of data) this.apply(name, one);
        else this.apply(name, data);
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
        this.gathered.links.set(id, { ...this.gathered.links.get(id), ...(load ? { load } : { rate }) });
        this.gather();
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
      case "measurement": {
        const heard = data as unknown as Measurement;
        const metric = MEASURED.find((name) => name === heard.metric);
        if (!metric || heard.error) break;
        const ends = `${heard.source_node},${heard.destination_node}`;
        const now = { value: heard.value, at: heard.measured_at, stale: heard.stale };
        this.gathered.measured.set(ends, { ...this.gathered.measured.get(ends), [metric]: now });
        this.gather();
        break;
      }
      case "topology":
        this.renew("nodes");
        this.renew("links");
        break;
      case "policy":
        this.renew("policies");
        this.renew("nodes");
        break;
      case "node-state":
        this.gathered.nodes.set(String(data.node), data.state as NetworkNode["state"]);
        this.gather();
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

  /** Takes in what was sent before the stream began; what the stream said of a slot stays. */
  remember(id: string, capacityBps: number, points: { at: string; value: number | null }[]): void {
    const known = this.beats.get(id) ?? new Map<number, number>();
    for (const { at, value } of points) {
      const slot = Math.floor(Date.parse(at) / BEAT_MS);
      if (value !== null && capacityBps > 0 && !known.has(slot)) known.set(slot, value / capacityBps);
    }
    this.beats.set(id, known);
  }

  /** The last load of a link that came with the stream. */
  pulse(id: string): Pulse | undefined {
    return this.pulses.get(id);
  }

  private beat(id: string, load: LinkLoad): void {
    const at = Date.parse(load.at);
    this.pulses.set(id, { at, utilisation: load.utilisation });
    const slot = Math.floor(at / BEAT_MS);
    const known = this.beats.get(id) ?? new Map<number, number>();
    known.set(slot, Math.max(known.get(slot) ?? 0, load.utilisation));
    if (known.size > BEATS) for (const old of known.keys()) if (old <= slot - BEATS) known.delete(old);
    this.beats.set(id, known);
  }

  /** Has a list fetched anew: at once, and of all that is said within a second after that once more. */
  private renew(list: string): void {
    if (this.renewing.has(list)) {
      this.renewing.set(list, true);
      return;
    }
    void this.queries.invalidateQueries({ queryKey: [list] });
    this.renewing.set(list, false);
    setTimeout(() => {
      const again = this.renewing.get(list);
      this.renewing.delete(list);
      if (again) this.renew(list);
    }, RENEW_MS);
  }

  private gather(): void {
    if (this.gathering !== undefined) return;
    const many = (this.queries.getQueryData<Link[]>(["links"])?.length ?? 0) > MANY_LINKS;
    this.gathering = setTimeout(
      () => {
        this.hand();
      },
      many ? GATHER_MANY_MS : GATHER_MS,
    );
  }

  /** Hands on what was gathered; public so that a test need not wait. */
  hand(): void {
    clearTimeout(this.gathering);
    this.gathering = undefined;
    const changes = this.gathered;
    this.gathered = nothing();
    if (changes.links.size + changes.measured.size > 0)
      this.queries.setQueryData<Link[]>(["links"], (links) => withChanges(links, changes));
    if (changes.nodes.size > 0)
      this.queries.setQueryData<NetworkNode[]>(["nodes"], (nodes) =>
        nodes?.map((node) => {
          const state = changes.nodes.get(node.id);
          return state === undefined ? node : { ...node, state };
        }),
      );
  }

  private setConnection(connection: Connection): void {
    if (this.connection === connection) return;
    // What happened while the stream was away may be more than it can replay: fetch once.
    if (connection === "live" && this.connection === "lost") void this.queries.invalidateQueries();
    this.connection = connection;
    for (const listener of this.connectionListeners) listener();
  }
}
