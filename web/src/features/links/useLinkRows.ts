/** The samples behind the charts of a link: fetched history first, then what the event stream brings. */
import { useQueries, useQuery } from "@tanstack/react-query";
import { useCallback, useMemo, useState } from "react";

import { api } from "../../api/client";
import type { LinkSample } from "../../api/events";
import type { Link, Series } from "../../api/types";
import { useLinkSamples } from "../../api/useLive";
import { append, GAP_S, join, LOAD_METRICS, type Row, rowOfLoad, rowsOfSeries, WINDOW_S } from "./window";

/** The archive is some seconds behind the stream; it is asked again until both meet, but not for ever. */
const CATCH_UP_MS = 3000;
const CATCH_UPS = 5;

const lookBack = () => {
  const now = Date.now();
  return { from: new Date(now - WINDOW_S * 1000), until: new Date(now) };
};

/** Loads of the last minutes: a row per second from the archive, then a row per report. */
export function useLoadRows(id: string): Row[] {
  const [live, setLive] = useState<Row[]>([]);
  useLinkSamples(
    id,
    useCallback(({ load }: LinkSample) => {
      if (load) setLive((rows) => append(rows, [rowOfLoad(load)], Date.now() / 1000));
    }, []),
  );
  const firstLive = live[0]?.at ?? Infinity;
  const history = useQuery({
    queryKey: ["series", "link", id],
    queryFn: async () => {
      const { from, until } = lookBack();
      return rowsOfSeries(
        await Promise.all(LOAD_METRICS.map((metric) => api.series("link", id, metric, from, until, 1000))),
      );
    },
    gcTime: 0,
    refetchInterval: ({ state }) => {
      const met = (state.data?.at(-1)?.at ?? 0) >= firstLive - GAP_S / 2;
      return met || state.dataUpdateCount > CATCH_UPS ? false : CATCH_UP_MS;
    },
  });
  return useMemo(() => join(history.data ?? [], live), [history.data, live]);
}

const SENSED = ["rtt_us", "loss_ratio"] as const;

/** What sensing found between the ends of a link in the last minutes: rows of round trip and loss, and the loss alone. */
export function useSensed(link: Link | undefined): { rows: Row[]; loss: Series | undefined } {
  const subject = link ? `${link.from_node},${link.to_node}` : "";
  const results = useQueries({
    queries: SENSED.map((metric) => ({
      queryKey: ["series", "measurement", subject, metric],
      queryFn: () => {
        const { from, until } = lookBack();
        return api.series("measurement", subject, metric, from, until, 0);
      },
      enabled: subject !== "",
      refetchInterval: 5000,
    })),
  });
  const [rtt, loss] = results.map((result) => result.data);
  return { rows: useMemo(() => (rtt && loss ? rowsOfSeries([rtt, loss]) : []), [rtt, loss]), loss };
}
