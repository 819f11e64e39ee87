/** One group over the page's time range: its aggregates as a chart, each pair's figures, and its history as a file. */
import { Alert, Anchor, Card, Center, Group, Loader, Stack, Text, Title } from "@mantine/core";
import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";

import { api } from "../../api/client";
import type { PairGroup } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { useNow } from "../../shared/hooks";
import { State } from "../../shared/State";
import { refetchEvery, type TimeRange } from "../../shared/timeRange";
import { formatAge } from "../../shared/units";
import { LiveChart } from "../links/LiveChart";
import type { Metric } from "../paths/matrix";
import { chartStep, figuresOf, type PairFigures, plotted, wholeStep } from "./pairs";
import { useMinutes } from "./useMinutes";

const HEIGHT = 240;
const SERIES = [
  { label: "Mean of all results", color: "indigo" },
  { label: "Median of pairs", color: "teal" },
  { label: "95th percentile of pairs", color: "red", dashed: true },
];

interface Props {
  group: PairGroup;
  metric: Metric;
  range: TimeRange;
}

/** Series of a group; `byPair`: of each pair, over the whole range. */
function useGroupSeries({ group, metric, range }: Props, byPair: boolean) {
  const length = range.untilMs - range.fromMs;
  return useQuery({
    queryKey: ["pair-series", group.id, metric.id, byPair, length, range.live ? "now" : range.untilMs],
    queryFn: () => {
      const until = range.live ? Date.now() : range.untilMs;
      const step = byPair ? wholeStep(range) : chartStep(range);
      return api.pairSeries(group.id, metric.id, new Date(until - length), new Date(until), step, byPair);
    },
    placeholderData: keepPreviousData,
    refetchInterval: refetchEvery(range) && 60_000,
  });
}

function columnsOf(metric: Metric, now: number): Column<PairFigures>[] {
  const rate = (id: "mean" | "minimum" | "maximum", header: string): Column<PairFigures> => ({
    id,
    header,
    align: "right",
    value: (one) => one[id],
    cell: (one) => metric.format(one[id]),
  });
  return [
    { id: "pair", header: "Pair", value: ({ source, destination }) => `${source} → ${destination}` },
    rate("mean", "Mean"),
    rate("minimum", "Least"),
    rate("maximum", "Most"),
    { id: "count", header: "Results", align: "right", value: ({ count }) => count },
    {
      id: "last",
      header: "Last step",
      align: "right",
      value: ({ last }) => last,
      cell: ({ last }) => formatAge(last, now),
    },
  ];
}

/** Where the file of a group's single results is. */
const fileOf = ({ group, metric, range }: Props) =>
  `/v1/pair-groups/${encodeURIComponent(group.id)}/history?${new URLSearchParams({
    metric: metric.id,
    from: new Date(range.fromMs).toISOString(),
    until: new Date(range.untilMs).toISOString(),
    format: "csv",
  }).toString()}`;

export function PairGroupDetail(props: Props) {
  const { group, metric, range } = props;
  const now = useNow(5000);
  const queries = useQueryClient();
  const together = useGroupSeries(props, false);
  const apart = useGroupSeries(props, true);
  const renew = useCallback(
    () => void queries.invalidateQueries({ queryKey: ["pair-series", group.id, metric.id] }),
    [queries, group.id, metric.id],
  );
  const subscribed = useMinutes(group.id, metric.id, renew);
  const series = together.data?.[0];
  const data = useMemo(() => plotted(series, chartStep(range)), [series, range]);
  const columns = useMemo(() => columnsOf(metric, now), [metric, now]);
  const figures = (apart.data ?? []).map(figuresOf).filter((one) => one !== null);
  const title = `${metric.label} of ${group.id}, ${range.label}`;
  return (
    <Stack component="section" aria-label={`Group ${group.id}`}>
      <Group justify="space-between" gap="xs">
        <Group gap="sm">
          <Title order={2} size="h4">
            {group.id}
          </Title>
          <State tone={subscribed ? "good" : "off"}>
            {subscribed ? "renewed every minute" : "not subscribed"}
          </State>
        </Group>
        <Anchor size="sm" href={fileOf(props)} download>
          Results as CSV
        </Anchor>
      </Group>
      <Card withBorder>
        {together.data ? (
          <LiveChart
            title={title}
            series={SERIES}
            data={data}
            untilS={range.untilMs / 1000}
            windowS={(range.untilMs - range.fromMs) / 1000}
            floor={0}
            format={metric.format}
            height={HEIGHT}
          />
        ) : together.error ? (
          <Alert color="red" variant="outline" title={title}>
            {together.error.message}
          </Alert>
        ) : (
          <Center h={HEIGHT} role="status" aria-label={`Loading ${title}`}>
            <Loader size="sm" />
          </Center>
        )}
        <Text size="xs" c="dimmed">
          By whole minutes, half a minute behind; {series?.pairs.at(-1) ?? 0} pairs in the last step.
        </Text>
      </Card>
      <DataTable
        label={`Pairs of ${group.id}`}
        rows={figures}
        columns={columns}
        rowKey={({ source, destination }) => `${source},${destination}`}
        sort={{ id: "mean", desc: metric.rising }}
        empty={apart.error?.message ?? "No pair has results in this time range."}
        minWidth={600}
      />
    </Stack>
  );
}
