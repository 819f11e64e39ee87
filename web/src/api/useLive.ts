/** Hooks on the event stream and on fetched data. */
import { useQuery, type UseQueryResult } from "@tanstack/react-query";
import { createContext, use, useEffect, useMemo, useSyncExternalStore } from "react";

import { api } from "./client";
import { BEAT_MS, BEATS, type Connection, type LinkSample, type LiveEvents } from "./events";
import type { Link, RateRequest, Series } from "./types";

export const LiveEventsContext = createContext<LiveEvents | null>(null);

export function useLiveEvents(): LiveEvents {
  const live = use(LiveEventsContext);
  if (!live) throw new Error("useLiveEvents needs a LiveEventsContext");
  return live;
}

export function useConnection(): Connection {
  const live = useLiveEvents();
  return useSyncExternalStore(live.subscribeConnection, live.getConnection);
}

export function useLinkSamples(id: string, onSample: (sample: LinkSample) => void): void {
  const live = useLiveEvents();
  useEffect(
    () =>
      live.onLink((changed, sample) => {
        if (changed === id) onSample(sample);
      }),
    [live, id, onSample],
  );
}

export const useSession = () => useQuery({ queryKey: ["session"], queryFn: api.session, staleTime: 60_000 });
/** Asked again now and then: that a node has fallen silent is nothing that it says. */
export const useNodes = () => useQuery({ queryKey: ["nodes"], queryFn: api.nodes, refetchInterval: 10_000 });
/** Links that did not change stay the same objects (LiveEvents sees to it), so nothing need be compared in depth. */
export const useLinks = (subscribed = true) =>
  useQuery({ queryKey: ["links"], queryFn: api.links, structuralSharing: false, subscribed });
export const useAlerts = () =>
  useQuery({ queryKey: ["alerts"], queryFn: () => api.alerts(), refetchInterval: 5000 });
export const useTunnels = () =>
  useQuery({ queryKey: ["tunnels"], queryFn: api.tunnels, refetchInterval: 2000 });
export const useFlows = () => useQuery({ queryKey: ["flows"], queryFn: api.flows, refetchInterval: 5000 });
export const usePolicies = () => useQuery({ queryKey: ["policies"], queryFn: api.policies });
interface RequestsPage {
  items: RateRequest[];
  next_cursor?: string | null;
}

/** An answer that was on its way while the stream said something newer takes nothing of that back. */
export function keepNewest(known: RequestsPage | undefined, fetched: RequestsPage): RequestsPage {
  if (!known) return fetched;
  const before = new Map(known.items.map((item) => [item.id, item]));
  const items = fetched.items.map((item) => {
    const one = before.get(item.id);
    return one && one.revision > item.revision ? one : item;
  });
  const newest = fetched.items[0]?.created_at ?? "";
  const younger = known.items.filter((item) => item.created_at > newest);
  return { ...fetched, items: [...younger, ...items] };
}

export const useRateRequests = () =>
  useQuery({
    queryKey: ["rate-requests"],
    queryFn: api.rateRequests,
    structuralSharing: (known, fetched) =>
      keepNewest(known as RequestsPage | undefined, fetched as RequestsPage),
  });

/** Loss is a matter of chance: what one run of ten probes says is replaced by the mean over this time. */
const LOSS_WINDOW_MS = 60_000;
/** In a larger network the map shows the newest run instead of asking for this many histories. */
const LOSS_LINKS_LIMIT = 64;

/** Names of the links of a network whose histories are asked for; null: there are none yet, or too many. */
function idsOfFew(links: Link[] | undefined): string | null {
  if (!links || links.length > LOSS_LINKS_LIMIT) return null;
  return links.map((link) => link.id).join(" ");
}

/** Mean of a series, each step weighted by how many values it stands for; null without values. */
export function meanOfSeries(series: Series): number | null {
  let sum = 0;
  let count = 0;
  for (const point of series.points) {
    if (point.value === null) continue;
    sum += point.value * point.count;
    count += point.count;
  }
  return count === 0 ? null : sum / count;
}

async function recentLoss(links: Link[]): Promise<Record<string, number>> {
  const until = new Date();
  const from = new Date(until.getTime() - LOSS_WINDOW_MS);
  const found = await Promise.all(
    links.map(async ({ id, from_node, to_node }) => {
      const subject = `${from_node},${to_node}`;
      const series = await api.series("measurement", subject, "loss_ratio", from, until, LOSS_WINDOW_MS);
      return [id, meanOfSeries(series)] as const;
    }),
  );
  return Object.fromEntries(found.filter((entry): entry is readonly [string, number] => entry[1] !== null));
}

/** Fetches once how busy links were before the page was opened, for their heartbeats; of a large network not. */
export function useEarlierBeats(links: Link[] | undefined): void {
  const live = useLiveEvents();
  const ids = idsOfFew(links);
  useQuery({
    queryKey: ["earlier-beats", ids],
    queryFn: async () => {
      const until = new Date();
      const from = new Date(until.getTime() - BEATS * BEAT_MS);
      await Promise.all(
        (links ?? []).map(async ({ id, capacity_bps }) => {
          const { points } = await api.series("link", id, "sent_bps", from, until, BEAT_MS);
          live.remember(id, capacity_bps, points);
        }),
      );
      return true;
    },
    enabled: ids !== null,
    staleTime: Infinity,
  });
}

/** The links, with the loss of the last minute instead of the last run's. */
export function useRecentLoss<T extends UseQueryResult<Link[]>>(links: T): T {
  const ids = idsOfFew(links.data);
  const loss = useQuery({
    queryKey: ["recent-loss", ids],
    queryFn: () => recentLoss(links.data ?? []),
    enabled: ids !== null,
    refetchInterval: 5000,
  });
  const data = useMemo(
    () =>
      links.data?.map((link) => {
        const value = loss.data?.[link.id];
        if (value === undefined || !link.measured?.loss_ratio) return link;
        return {
          ...link,
          measured: { ...link.measured, loss_ratio: { ...link.measured.loss_ratio, value } },
        };
      }),
    [links.data, loss.data],
  );
  return { ...links, data };
}
