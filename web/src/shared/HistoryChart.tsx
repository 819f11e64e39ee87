/** A chart of archived series over the page's time range. */
import { Alert, Card, Center, Loader } from "@mantine/core";

import { type ChartMark, type ChartSeries, LiveChart } from "../features/links/LiveChart";
import { useSeries, type Wanted } from "./useSeries";
import type { TimeRange } from "./timeRange";

interface Props {
  title: string;
  series: (ChartSeries & Wanted)[];
  range: TimeRange;
  /** The least that the vertical axis reaches to. */
  floor: number;
  ceiling?: number;
  format: (value: number | null) => string;
  height?: number;
  /** Not asked for while this is false: the subject is not known yet. */
  enabled?: boolean;
  marks?: ChartMark[] | undefined;
}

export function HistoryChart({
  title,
  series,
  range,
  floor,
  ceiling,
  format,
  height = 200,
  enabled = true,
  marks,
}: Props) {
  const { data, error } = useSeries(series, range, enabled);
  return (
    <Card withBorder>
      {data ? (
        <LiveChart
          title={title}
          series={series.map(({ label, color, fill, dashed }) => ({
            label,
            color,
            ...(fill === undefined ? {} : { fill }),
            ...(dashed === undefined ? {} : { dashed }),
          }))}
          data={data}
          untilS={range.untilMs / 1000}
          windowS={(range.untilMs - range.fromMs) / 1000}
          floor={floor}
          {...(ceiling === undefined ? {} : { ceiling })}
          format={format}
          height={height}
          {...(marks ? { marks } : {})}
        />
      ) : error ? (
        <Alert color="red" variant="outline" title={title}>
          {error.message}
        </Alert>
      ) : (
        <Center h={height} role="status" aria-label={`Loading ${title}`}>
          <Loader size="sm" />
        </Center>
      )}
    </Card>
  );
}
