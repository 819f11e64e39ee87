/** History from the archive for the page's time range, as columns for a chart; a silence stays a gap. */
import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import type uPlot from "uplot";

import { api } from "../api/client";
import type { Series } from "../api/types";
import { columns, GAP_S, probeGap, rowsOfSeries, SENSED_GAP_S } from "../features/links/window";
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
  const sensed = wanted.every(({ kind }) => kind === "measurement");
  const stamp = results.map((result) => result.dataUpdatedAt).join(" ");
  const plotted = useMemo(
    () => (data.every((one): one is Series => one !== undefined) ? plot(data, step, sensed) : undefined),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the stamps say when the data changed
    [stamp, step, sensed],
  );
  return { data: plotted, error, stepMs: step };
}

/** Steps that are missing: more of them are a silence. */
const STEPS_MISSED = 2.5;

/** Loads come all the time; probes at intervals of their own, which may be longer than a step. Pure. */
export function plot(series: Series[], stepMs: number, sensed: boolean): uPlot.AlignedData {
  const rows = rowsOfSeries(series).filter(({ values }) => values.some((value) => value !== null));
  const stepsS = (stepMs / 1000) * STEPS_MISSED;
  const gapS = sensed ? probeGap(rows, Math.max(SENSED_GAP_S, stepsS)) : Math.max(GAP_S, stepsS);
  return columns(rows, series.length, gapS);
}
