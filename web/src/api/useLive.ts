/** Hooks on the event stream and on fetched data. */
import { useQuery } from "@tanstack/react-query";
import { createContext, use, useEffect, useSyncExternalStore } from "react";

import { api } from "./client";
import type { Connection, LinkSample, LiveEvents } from "./events";

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
export const useNodes = () => useQuery({ queryKey: ["nodes"], queryFn: api.nodes });
export const useLinks = () => useQuery({ queryKey: ["links"], queryFn: api.links });
export const useRateRequests = () => useQuery({ queryKey: ["rate-requests"], queryFn: api.rateRequests });
