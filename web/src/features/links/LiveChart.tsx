/** A time series that grows on the right: uPlot with the page's colours and a legend that shows the newest values. */
import "uplot/dist/uPlot.min.css";

import { Group, Text, useComputedColorScheme, useMantineTheme } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { useEffect, useMemo, useRef } from "react";
import uPlot from "uplot";

import { inTurn } from "../../shared/inTurn";
import type { Tone } from "../../shared/State";
import { DRAWN } from "../../theme";

/** Something that happened: a line across the chart. */
export interface ChartMark {
  atS: number;
  label: string;
  tone: Tone;
}

export interface ChartSeries {
  label: string;
  /** Mantine colour name. */
  color: string;
  fill?: boolean;
  dashed?: boolean;
}

interface Props {
  title: string;
  series: ChartSeries[];
  /** Seconds since the epoch, then one array per series; null is a gap. */
  data: uPlot.AlignedData;
  /** Right edge (seconds since the epoch): time goes on also when nothing is heard. */
  untilS: number;
  /** Length of the time axis, seconds. */
  windowS: number;
  /** The least that the vertical axis reaches to, in the unit of the data. */
  floor: number;
  /** The most that it reaches to: one late report must not flatten everything else. */
  ceiling?: number;
  format: (value: number | null) => string;
  height?: number;
  marks?: ChartMark[];
}

/** Colours of marks, and how many of them are told in words under a chart. */
const MARKS: Record<Tone, string> = { good: "teal", busy: "orange", bad: "red", off: "gray" };
const MARKS_TOLD = 3;
const NONE: ChartMark[] = [];

/** What stands under a chart; room for it is kept before it is there. */
const LEGEND_PX = 29;

const MINUTES = { hour: "2-digit", minute: "2-digit" } as const;
const CLOCK = new Intl.DateTimeFormat("en-GB", { ...MINUTES, second: "2-digit" });
const HOURS = new Intl.DateTimeFormat("en-GB", MINUTES);
const DAYS = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", ...MINUTES });

/** How a moment on an axis of this length is written. */
function clockFor(windowS: number): (seconds: number) => string {
  const format = windowS <= 3600 ? CLOCK : windowS <= 86_400 ? HOURS : DAYS;
  return (seconds) => format.format(seconds * 1000);
}

/** Where the newest value of any series is; the last step of an archive may have none yet. */
function newest(data: uPlot.AlignedData): number {
  let place = data[0].length - 1;
  while (place > 0 && data.slice(1).every((column) => (column[place] ?? null) === null)) place -= 1;
  return place;
}

function isSilent(column: ArrayLike<number | null | undefined>): boolean {
  for (let place = 0; place < column.length; place += 1) if (column[place] !== null) return false;
  return true;
}

function drawMark(plot: uPlot, atS: number, color: string): void {
  const { left, top, width, height } = plot.bbox;
  const place = Math.round(plot.valToPos(atS, "x", true));
  if (place < left || place > left + width) return;
  const context = plot.ctx;
  context.save();
  context.strokeStyle = color;
  context.lineWidth = 2 * devicePixelRatio;
  context.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
  context.beginPath();
  context.moveTo(place, top);
  context.lineTo(place, top + height);
  context.stroke();
  context.restore();
}

export function LiveChart({
  title,
  series,
  data,
  untilS,
  windowS,
  floor,
  ceiling = Infinity,
  format,
  height = 220,
  marks = NONE,
}: Props) {
  const { ref, width } = useElementSize();
  const holder = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef({ data, untilS, marks });
  const scheme = useComputedColorScheme("light");
  const theme = useMantineTheme();
  const layout = JSON.stringify(series);

  useEffect(() => {
    if (!holder.current || width === 0) return;
    const { axis: ink, grid, shade } = DRAWN[scheme];
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    const parsed = JSON.parse(layout) as ChartSeries[];
    const clock = clockFor(windowS);
    const options: uPlot.Options = {
      width,
      height,
      scales: {
        x: { range: () => [latest.current.untilS - windowS, latest.current.untilS] },
        y: {
          range: (_plot, _low, high) => [
            0,
            Math.min(ceiling, Math.max((Number.isFinite(high) ? high : 0) * 1.08, floor)),
          ],
        },
      },
      axes: [
        { ...axis, space: windowS > 86_400 ? 110 : 70, values: (_plot, splits) => splits.map(clock) },
        { ...axis, size: 84, space: 34, values: (_plot, splits) => splits.map((value) => format(value)) },
      ],
      hooks: {
        draw: [
          (plot) => {
            for (const { atS, tone } of latest.current.marks)
              drawMark(plot, atS, theme.colors[MARKS[tone]]?.[shade] ?? ink);
          },
        ],
      },
      cursor: { drag: { x: false, y: false } },
      legend: { live: true },
      series: [
        { label: "at", value: (_plot: uPlot, value: number | null) => (value ? clock(value) : "–") },
        ...parsed.map(({ label, color, fill, dashed }) => {
          const stroke = theme.colors[color]?.[shade] ?? color;
          return {
            label,
            stroke,
            width: 2,
            dash: dashed ? [6, 6] : undefined,
            fill: fill ? `${stroke}33` : undefined,
            value: (_plot: uPlot, value: number | null) => format(value),
            spanGaps: false,
          };
        }),
      ],
    };
    const place = holder.current;
    let plot: uPlot | null = null;
    let drawn = 0;
    // To make a chart takes a while, and a page has several of them.
    const takeBack = inTurn(() => {
      const made = new uPlot(options, latest.current.data, place);
      plot = chart.current = made;
      // Once it has drawn itself, which empties the legend.
      drawn = requestAnimationFrame(() => {
        made.setLegend({ idx: newest(latest.current.data) });
      });
    });
    return () => {
      takeBack();
      cancelAnimationFrame(drawn);
      plot?.destroy();
      chart.current = null;
    };
  }, [scheme, theme, width, height, layout, format, windowS, floor, ceiling]);

  useEffect(() => {
    latest.current = { data, untilS, marks };
    const plot = chart.current;
    if (!plot) return;
    plot.setData(data);
    // Without a pointer over the chart the legend shows the newest values.
    if ((plot.cursor.left ?? -1) < 0) plot.setLegend({ idx: newest(data) });
  }, [data, untilS, marks]);

  const shown = marks.filter(({ atS }) => atS > untilS - windowS && atS <= untilS);
  const silent = useMemo(() => data.slice(1).every(isSilent), [data]);
  return (
    <figure ref={ref} aria-label={title} style={{ margin: 0 }}>
      <Group component="figcaption" justify="space-between" gap="xs">
        <Text size="sm" fw={600} component="span">
          {title}
        </Text>
        {silent ? (
          <Text size="sm" component="span">
            no data in this time range
          </Text>
        ) : null}
      </Group>
      <div ref={holder} style={{ minHeight: height + LEGEND_PX }} />
      {shown.slice(-MARKS_TOLD).map(({ atS, label }) => (
        <Text size="xs" key={`${atS} ${label}`}>
          {CLOCK.format(atS * 1000)}: {label}
        </Text>
      ))}
      {shown.length > MARKS_TOLD ? <Text size="xs">and {shown.length - MARKS_TOLD} earlier</Text> : null}
    </figure>
  );
}
