/** A time series that grows on the right: uPlot with the page's colours and a legend that shows the newest values. */
import "uplot/dist/uPlot.min.css";

import { useComputedColorScheme, useMantineTheme } from "@mantine/core";
import { useElementSize } from "@mantine/hooks";
import { useEffect, useRef } from "react";
import uPlot from "uplot";

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
  format: (value: number | null) => string;
  height?: number;
}

export function LiveChart({ title, series, data, format, height = 240 }: Props) {
  const { ref, width } = useElementSize();
  const holder = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const latest = useRef(data);
  const scheme = useComputedColorScheme("light");
  const theme = useMantineTheme();
  const layout = JSON.stringify(series);

  useEffect(() => {
    if (!holder.current || width === 0) return;
    const ink = scheme === "light" ? "#343a40" : "#ced4da";
    const grid = scheme === "light" ? "#dee2e6" : "#3b3b3b";
    const shade = scheme === "light" ? 8 : 5;
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 } };
    const parsed = JSON.parse(layout) as ChartSeries[];
    const plot = new uPlot(
      {
        width,
        height,
        scales: { y: { range: (_plot, _low, high) => [0, Math.max(high * 1.08, Number.MIN_VALUE)] } },
        axes: [axis, { ...axis, size: 84, values: (_plot, splits) => splits.map((value) => format(value)) }],
        series: [
          {},
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
      },
      latest.current,
      holder.current,
    );
    chart.current = plot;
    return () => {
      plot.destroy();
      chart.current = null;
    };
  }, [scheme, theme, width, height, layout, format]);

  useEffect(() => {
    latest.current = data;
    chart.current?.setData(data);
  }, [data]);

  return (
    <figure ref={ref} aria-label={title} style={{ margin: 0 }}>
      <figcaption>{title}</figcaption>
      <div ref={holder} />
    </figure>
  );
}
