/** History from the archive for the page's time range, as columns for a chart; a silence stays a gap. */
import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import type uPlot from "uplot";

import { api } from "../api/client";
import type { Series } from "../api/types";
import { aligned, GAP_S, probeGap, SENSED_GAP_S } from "../features/links/window";
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
  const kind = wanted[0]?.kind ?? "link";
  const stamp = results.map((result) => result.dataUpdatedAt).join(" ");
  const plotted = useMemo(
    () => (data.every((one): one is Series => one !== undefined) ? plot(data, step, kind) : undefined),
    // eslint-disable-next-line react-hooks/exhaustive-deps -- the stamps say when the data changed
    [stamp, step, kind],
  );
  return { data: plotted, error, stepMs: step };
}

/** Steps that are missing: more of them are a silence. */
const STEPS_MISSED = 2.5;
/** Nodes tell of a grant when something changes, and when it is renewed: at half of its sixty seconds. */
const GRANT_GAP_S = 75;

/** Loads come all the time, probes at intervals of their own, which may be longer than a step. Pure. */
export function plot(series: Series[], stepMs: number, kind: Wanted["kind"]): uPlot.AlignedData {
  const stepsS = (stepMs / 1000) * STEPS_MISSED;
  return aligned(series, (times) => {
    if (kind === "measurement") return probeGap(times, Math.max(SENSED_GAP_S, stepsS));
    return Math.max(kind === "grant" ? GRANT_GAP_S : GAP_S, stepsS);
  });
}
