/** The overlay in words: its links as rows, what happened to them, and marks of it for charts. Pure. */
import type { Link, NetworkNode, OverlayEvent, OverlayTracedPath } from "../../api/types";
import { formatMs, formatShare } from "../../shared/units";
import type { Tone } from "../../shared/State";
import type { ChartMark } from "../links/LiveChart";

export interface OverlayLinkRow {
  id: string;
  from: string;
  to: string;
  alive: boolean;
  rttMs: number;
  loss: number;
  failures: number;
  packets: number;
}

/** Overlay links as their nodes report them; those of silent nodes say nothing of now. */
export function overlayLinks(nodes: NetworkNode[], links: Link[]): OverlayLinkRow[] {
  const ends = new Map(links.map(({ id, to_node }) => [id, to_node]));
  return nodes.flatMap(({ id: from, state }) =>
    state && !state.stale
      ? (state.overlay?.links ?? []).map((one) => ({
          id: one.link_id,
          from,
          to: ends.get(one.link_id) ?? "?",
          alive: one.alive,
          rttMs: one.rtt_ms,
          loss: one.exchange_loss,
          failures: one.failures,
          packets: one.forwarded_packets,
        }))
      : [],
  );
}

/** Overlay nodes, and those of them that do not report it. */
export function overlayNodes(nodes: NetworkNode[]): { members: NetworkNode[]; silent: string[] } {
  const members = nodes.filter(({ overlay }) => overlay.member);
  const silent = members.filter(({ state }) => !state || state.stale || !state.overlay).map(({ id }) => id);
  return { members, silent };
}

const KINDS: Record<OverlayEvent["kind"], { tone: Tone; words: string }> = {
  started: { tone: "off", words: "the overlay began to run" },
  "link-failed": { tone: "bad", words: "failed" },
  "link-returned": { tone: "good", words: "answers probes" },
  "path-failed": { tone: "bad", words: "is not answered: its flows take another path" },
  "path-returned": { tone: "good", words: "answers probes" },
  "path-left": { tone: "busy", words: "is worse than another: flows leave it" },
  "path-good-again": { tone: "good", words: "is good again: flows may take it" },
  unknown: { tone: "off", words: "something that this page does not know" },
};

export const toneOf = ({ kind }: OverlayEvent): Tone => KINDS[kind].tone;

/** What an event happened to. */
export function subjectOf(event: OverlayEvent): string {
  if (event.link_id) return event.link_id;
  if (event.owner) return `path ${event.colour ?? 0} to ${event.owner}`;
  return event.node;
}

export function wordsOf(event: OverlayEvent): string {
  const of = event.flow_classes.length > 0 ? ` (${event.flow_classes.join(", ")})` : "";
  const cause = event.interface_down ? ", its interface is down" : "";
  return `${KINDS[event.kind].words}${of}${cause}`;
}

/** The oldest first, as charts go. */
export function marksOf(events: OverlayEvent[]): ChartMark[] {
  return events
    .map((event) => ({
      atS: Date.parse(event.at) / 1000,
      label: `${subjectOf(event)} ${wordsOf(event)}`,
      tone: toneOf(event),
    }))
    .sort((a, b) => a.atS - b.atS);
}

/** What a path is like, in a word and in figures. */
export function pathState({ quality, outcome, detours, choice }: OverlayTracedPath): {
  tone: Tone;
  text: string;
} {
  if (outcome !== "arrives") return { tone: "bad", text: outcome === "circles" ? "circles" : "ends" };
  if (!quality.alive) return { tone: "bad", text: "failed" };
  if (detours) return { tone: "busy", text: "detour" };
  if (quality.left_by.length > 0) return { tone: "busy", text: "worse" };
  if (quality.taken_by.length > 0) return { tone: "good", text: `taken by ${quality.taken_by.join(", ")}` };
  return { tone: "off", text: !choice ? "default" : quality.rtt_ms === null ? "alive" : "stands by" };
}

export function figuresOf({ quality }: OverlayTracedPath): string {
  const { rtt_ms, exchange_loss, load } = quality;
  if (rtt_ms === null || exchange_loss === null) return "";
  const of = load && load >= 0.005 ? `, ${formatShare(load)} of its capacity in use by this node` : "";
  return `${formatMs(rtt_ms * 1000)} RTT, ${formatShare(exchange_loss, 1)} round-trip loss${of}`;
}
