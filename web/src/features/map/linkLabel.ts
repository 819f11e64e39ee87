/** What the map writes on a link, and how it draws it. */
import { MANY_LINKS } from "../../api/events";
import type { Link, NetworkNode } from "../../api/types";
import { formatMs, formatRate, formatShare } from "../../shared/units";
import { NODE_COLORS, OVERLAY_COLORS, utilisationColor } from "../../theme";

/** A load older than this says nothing about now. */
export const LOAD_STALE_MS = 3000;

export function loadIsStale(link: Link, now: number): boolean {
  return link.load === null || now - Date.parse(link.load.at) > LOAD_STALE_MS;
}

export function linkLabel(link: Link, now: number): string {
  const load = link.load && !loadIsStale(link, now) ? link.load : null;
  const first = load ? `${formatShare(load.utilisation)} · ${formatRate(load.sent_bps)}` : "no load report";
  const loss = link.measured?.loss_ratio;
  const rtt = link.measured?.rtt_us;
  const second = [
    loss ? `${formatShare(loss.value, 1)} loss` : null,
    rtt ? `${formatMs(rtt.value)} RTT` : null,
  ]
    .filter((part) => part !== null)
    .join(" · ");
  return second ? `${first}\n${second}` : first;
}

export function linkStyle(link: Link, now: number): { color: string; width: number; dashed: boolean } {
  const stale = loadIsStale(link, now);
  const utilisation = stale ? null : link.load?.utilisation;
  return {
    color: utilisationColor(utilisation),
    width: 2 + 6 * Math.min(1, utilisation ?? 0),
    dashed: stale,
  };
}

/** Overlay links among the links: whether each answers probes. */
export function overlayStates(nodes: NetworkNode[]): Map<string, boolean> {
  return new Map(
    nodes.flatMap(({ state }) =>
      state && !state.stale
        ? (state.overlay?.links ?? []).map(({ link_id, alive }) => [link_id, alive] as const)
        : [],
    ),
  );
}

/** Colour of what lies under an overlay link's line; null: it is none. */
export const overlayColor = (alive: boolean | undefined): string | null =>
  alive === undefined ? null : alive ? OVERLAY_COLORS.alive : OVERLAY_COLORS.failed;

export function nodeStatus(node: NetworkNode): { text: string; color: string } {
  if (!node.state) return { text: "no agent", color: NODE_COLORS.unknown };
  if (node.state.stale) return { text: "agent not reporting", color: NODE_COLORS.bad };
  if (node.state.faults.length > 0) return { text: "degraded", color: NODE_COLORS.degraded };
  return { text: node.state.enforcement, color: NODE_COLORS[node.state.enforcement] };
}

/** Height of the map, by width of the screen. */
export const mapHeight = (links: Link[]) => ({ base: 320, md: links.length > MANY_LINKS ? 560 : 420 });
