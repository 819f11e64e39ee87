/** The charts of a link: of the last minutes from the event stream, of any other time from the archive. */
import { Card, SimpleGrid } from "@mantine/core";
import { useMemo } from "react";

import type { Link } from "../../api/types";
import { useNodes } from "../../api/useLive";
import { HistoryChart } from "../../shared/HistoryChart";
import type { TimeRange } from "../../shared/timeRange";
import { formatBytes, formatMs, formatRate, formatShare } from "../../shared/units";
import { type ChartMark, type ChartSeries, LiveChart } from "./LiveChart";
import { marksOf } from "../overlay/words";
import { useOverlayEvents } from "../overlay/useOverlayEvents";
import { useLoadRows, type useSensed } from "./useLinkRows";
import { columns, LOAD_METRICS, probeGap, WINDOW_S } from "./window";

const RATES: ChartSeries[] = [
  { label: "sent", color: "cyan", fill: true },
  { label: "explicit rate", color: "teal" },
  { label: "legacy", color: "orange", dashed: true },
];
const QUEUE: ChartSeries[] = [{ label: "queue", color: "grape", fill: true }];
const RTT: ChartSeries[] = [{ label: "RTT", color: "indigo" }];
const LOSS: ChartSeries[] = [{ label: "loss", color: "red" }];

const SMALL = 150;
const RTT_FLOOR_US = 5000;
const LOSS_FLOOR = 0.02;
const QUEUE_FLOOR_BYTES = 10_000;
/** One late report says too much at once; it must not flatten everything else. */
const CEILING = 1.25;

const percent = (value: number | null) => formatShare(value, 1);

/** Whether this is the time that the event stream keeps. */
export const isLive = (range: TimeRange): boolean =>
  range.live && range.untilMs - range.fromMs <= WINDOW_S * 1000;

/** Failures and returns of an overlay link, for its charts; of other links there are none to ask for. */
export function useMarks(link: Link, range: TimeRange): ChartMark[] {
  const nodes = useNodes();
  const reported = nodes.data?.find(({ id }) => id === link.from_node)?.state?.overlay?.links ?? [];
  const events = useOverlayEvents(
    { link: link.id },
    range,
    reported.some(({ link_id }) => link_id === link.id),
  );
  return useMemo(() => marksOf(events.data ?? []), [events.data]);
}

interface LiveProps {
  link: Link;
  now: number;
  sensed: ReturnType<typeof useSensed>;
  label: string;
  marks: ChartMark[];
}

export function LiveCharts({ link, now, sensed, label, marks }: LiveProps) {
  const rows = useLoadRows(link.id);
  const [times, sent, explicit, legacy, queue] = useMemo(() => columns(rows, LOAD_METRICS.length), [rows]);
  const [sensedAt, rtt, loss] = useMemo(
    () => columns(sensed.rows, 2, probeGap(sensed.rows.map(({ at }) => at))),
    [sensed.rows],
  );
  const axis = { untilS: now / 1000, windowS: WINDOW_S };
  return (
    <>
      <Card withBorder>
        <LiveChart
          title={`Rate, ${label}`}
          series={RATES}
          data={[times, sent ?? [], explicit ?? [], legacy ?? []]}
          format={formatRate}
          floor={link.capacity_bps / 10}
          ceiling={link.capacity_bps * CEILING}
          marks={marks}
          {...axis}
        />
      </Card>
      <SimpleGrid cols={{ base: 1, md: 2, lg: 3 }}>
        <Card withBorder>
          <LiveChart
            title="Queue"
            series={QUEUE}
            data={[times, queue ?? []]}
            format={formatBytes}
            floor={QUEUE_FLOOR_BYTES}
            height={SMALL}
            {...axis}
          />
        </Card>
        <Card withBorder>
          <LiveChart
            title="Measured RTT"
            series={RTT}
            data={[sensedAt, rtt ?? []]}
            format={formatMs}
            floor={RTT_FLOOR_US}
            height={SMALL}
            {...axis}
          />
        </Card>
        <Card withBorder>
          <LiveChart
            title="Round-trip loss"
            series={LOSS}
            data={[sensedAt, loss ?? []]}
            format={percent}
            floor={LOSS_FLOOR}
            height={SMALL}
            {...axis}
          />
        </Card>
      </SimpleGrid>
    </>
  );
}

export function ArchivedCharts({ link, range, marks }: { link: Link; range: TimeRange; marks: ChartMark[] }) {
  const ends = `${link.from_node},${link.to_node}`;
  const ofLink = (metric: string, style: ChartSeries) =>
    ({ kind: "link", subject: link.id, metric, ...style }) as const;
  const ofEnds = (metric: string, style: ChartSeries | undefined) =>
    ({ kind: "measurement", subject: ends, metric, label: metric, color: "cyan", ...style }) as const;
  return (
    <>
      <HistoryChart
        title={`Rate, ${range.label}`}
        series={RATES.map((style, index) => ofLink(LOAD_METRICS[index] ?? "sent_bps", style))}
        range={range}
        format={formatRate}
        floor={link.capacity_bps / 10}
        ceiling={link.capacity_bps * CEILING}
        height={220}
        marks={marks}
      />
      <SimpleGrid cols={{ base: 1, md: 2, lg: 3 }}>
        <HistoryChart
          title="Queue"
          series={QUEUE.map((style) => ofLink("queue_bytes", style))}
          range={range}
          format={formatBytes}
          floor={QUEUE_FLOOR_BYTES}
          height={SMALL}
        />
        <HistoryChart
          title="Measured RTT"
          series={[ofEnds("rtt_us", RTT[0])]}
          range={range}
          format={formatMs}
          floor={RTT_FLOOR_US}
          height={SMALL}
        />
        <HistoryChart
          title="Round-trip loss"
          series={[ofEnds("loss_ratio", LOSS[0])]}
          range={range}
          format={percent}
          floor={LOSS_FLOOR}
          height={SMALL}
        />
      </SimpleGrid>
    </>
  );
}
