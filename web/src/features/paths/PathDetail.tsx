/** One path: its history, its baseline, when it changed, and the ways that a request could take over it. */
import { Card, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { api } from "../../api/client";
import type { Estimate, FoundPath } from "../../api/types";
import { DataTable, type Column } from "../../shared/DataTable";
import { Facts } from "../../shared/Facts";
import { HistoryChart } from "../../shared/HistoryChart";
import { useNow, useRange } from "../../shared/hooks";
import { refetchEvery } from "../../shared/timeRange";
import { formatAge, formatMs, formatRate } from "../../shared/units";
import { marksOf } from "../overlay/words";
import { useOverlayEvents } from "../overlay/useOverlayEvents";
import { intervalOf, isMeasured, type Metric } from "./matrix";

/** Who says that packets take it, and on how many ways. */
function sourceWords({ source, silent_nodes, branches }: FoundPath): string {
  const ways = branches ? ", on equal-cost ways" : "";
  return silent_nodes.length > 0
    ? `${source}, no report of ${silent_nodes.join(", ")}${ways}`
    : `${source}${ways}`;
}

const PATHS: Column<FoundPath>[] = [
  { id: "nodes", header: "Path", value: ({ nodes }) => nodes.join(" → ") },
  { id: "kinds", header: "Kind", value: ({ kinds }) => kinds.join(", ") },
  { id: "source", header: "Source", value: sourceWords },
  {
    id: "free",
    header: "Free rate",
    align: "right",
    value: ({ free_bps }) => free_bps,
    cell: ({ free_bps }) => formatRate(free_bps),
  },
  { id: "bottleneck", header: "Bottleneck", value: ({ bottleneck_link_id }) => bottleneck_link_id },
  {
    id: "delay",
    header: "One-way delay",
    align: "right",
    value: ({ delay_us }) => delay_us,
    cell: ({ delay_us }) => formatMs(delay_us),
  },
];

function nowWords(estimate: Estimate, metric: Metric): string {
  const how = isMeasured(estimate) ? "measured" : `inferred by ${estimate.method}`;
  return `${metric.format(estimate.value)}, ${how}, ${Math.round(estimate.age_s)} s old`;
}

interface Props {
  source: string;
  destination: string;
  metric: Metric;
  /** What is known of it now. */
  estimate: Estimate | undefined;
}

export function PathDetail({ source, destination, metric, estimate }: Props) {
  const range = useRange();
  const now = useNow(5000);
  const key = [source, destination, metric.id];
  const baselines = useQuery({
    queryKey: ["baselines", ...key],
    queryFn: () => api.baselines(source, destination, metric.id),
  });
  const changes = useQuery({
    queryKey: ["path-changes", ...key, range.untilMs - range.fromMs, range.live ? "now" : range.untilMs],
    queryFn: () =>
      api.pathChanges(source, destination, metric.id, new Date(range.fromMs), new Date(range.untilMs)),
    refetchInterval: refetchEvery(range),
  });
  // Of pairs of overlay nodes; there are none of others.
  const events = useOverlayEvents({ node: source, owner: destination }, range);
  const marks = useMemo(() => marksOf(events.data ?? []), [events.data]);
  const ways = useQuery({
    queryKey: ["paths", source, destination],
    queryFn: () => api.paths(source, destination),
  });
  const baseline = baselines.data?.[0];
  return (
    <Stack component="section" aria-label={`Path from ${source} to ${destination}`}>
      <Title order={2} size="h4">
        {source} → {destination}
      </Title>
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <HistoryChart
          title={`${metric.label}, ${range.label}`}
          series={[
            {
              kind: "measurement",
              subject: `${source},${destination}`,
              metric: metric.id,
              label: metric.label,
              color: "indigo",
            },
          ]}
          range={range}
          floor={0}
          format={metric.format}
          marks={marks}
        />
        <Card withBorder>
          <Facts
            data={[
              { label: "Now", value: estimate ? nowWords(estimate, metric) : "unknown" },
              {
                label: "90 % interval",
                value: estimate ? intervalOf(estimate, metric) : "–",
              },
              {
                label: "Baseline",
                value: baseline
                  ? `${metric.format(baseline.median)} ± ${metric.format(baseline.spread)}, over ${baseline.minutes} minutes`
                  : "unknown: needs some minutes of measurements",
              },
              {
                label: "Changes",
                value:
                  changes.data && changes.data.length > 0 ? (
                    <Stack gap={0}>
                      {changes.data.slice(0, 5).map(({ at, before, after }) => (
                        <Text size="sm" key={at}>
                          {formatAge(at, now)}: {metric.format(before)} → {metric.format(after)}
                        </Text>
                      ))}
                    </Stack>
                  ) : (
                    "none in this time range"
                  ),
              },
            ]}
          />
        </Card>
      </SimpleGrid>
      <DataTable
        label="Paths for a request"
        rows={ways.data ?? []}
        columns={PATHS}
        rowKey={({ links }) => links.join(",")}
        empty={ways.error ? ways.error.message : "No path between these nodes."}
        minWidth={600}
      />
    </Stack>
  );
}
