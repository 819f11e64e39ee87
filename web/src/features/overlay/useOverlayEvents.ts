/** What happened to the overlay in a page's time range; renewed while the range moves on. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";

import { api } from "../../api/client";
import { refetchEvery, type TimeRange } from "../../shared/timeRange";

export interface Wanted {
  node?: string;
  link?: string;
  owner?: string;
  of?: "links" | "paths";
}

export function useOverlayEvents(wanted: Wanted, range: TimeRange, enabled = true) {
  const length = range.untilMs - range.fromMs;
  return useQuery({
    queryKey: ["overlay-events", wanted, length, range.live ? "now" : range.untilMs],
    queryFn: () => {
      const until = range.live ? Date.now() : range.untilMs;
      return api.overlayEvents(wanted, new Date(until - length), new Date(until));
    },
    enabled,
    placeholderData: keepPreviousData,
    refetchInterval: refetchEvery(range),
  });
}
