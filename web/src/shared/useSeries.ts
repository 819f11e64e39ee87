/** History from the archive for the page's time range, as columns for a chart; a silence stays a gap. */
import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import type uPlot from "uplot";

import { api } from "../api/client";
import type { Series } from "../api/types";
import { columns, rowsOfSeries } from "../features/links/window";
import { refetchEvery, stepFor, type TimeRange } from "./timeRange";

export interface Wanted {
  kind: "link" | "measurement" | "grant";
  subject: string;
  metric: string;
}

/** Several series over the same time; undefined while one of them was never fetched. */
export function useSeries(wanted: Wanted[], range: TimeRange, enabled = true) {
  const length = range.untilMs - range.fromMs;
  const step = stepFor(length);
  // A range that moves on is asked for anew by its period, not under another key at every tick.
  const end = range.live ? "now" : range.untilMs;
  const results = useQueries({
    queries: wanted.map(({ kind, subject, metric }) => ({
      queryKey: ["series", kind, subject, metric, length, end],
      queryFn: () => {
        const until = range.live ? Date.now() : range.untilMs;
        return api.series(kind, subject, metric, new Date(until - length), new Date(until), step);
      },
      enabled,
      placeholderData: keepPreviousData,
      refetchInterval: refetchEvery(range),
    })),
  });
  const error = results.find((result) => result.error)?.error ?? null;
  const data = results.map((result) => result.data);
  const stamp = results.map((result) => result.dataUpdatedAt).join(" ");
  const plotted = useMemo(
    () => (data.every((one): one is Series => one !== undefined) ? plot(data, step) : undefined),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the stamps say when the data changed
    [stamp, step],
  );
  return { data: plotted, error, stepMs: step };
}

function plot(series: Series[], stepMs: number): uPlot.AlignedData {
  return columns(rowsOfSeries(series), series.length, Math.max(3, (stepMs / 1000) * 2.5));
}
