/** Sensing: the pods, what they shall measure, what of their budget they used, and every run that was not made. */
import { Group, Progress, SimpleGrid, Stack, Text } from "@mantine/core";
import { useQueries, useQuery } from "@tanstack/react-query";

import { api } from "../../api/client";
import type { NetworkNode, SensingConfiguration, SensingReport } from "../../api/types";
import { useNodes } from "../../api/useLive";
import { type Column, DataTable } from "../../shared/DataTable";
import { Figure } from "../../shared/Figure";
import { useNow } from "../../shared/hooks";
import { Empty, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { State } from "../../shared/State";
import { formatAge, formatBytes, formatMs, formatShare } from "../../shared/units";

interface Pod {
  node: string;
  report: SensingReport | undefined;
  error: string | null;
}

const sum = (counts: Record<string, number>) => Object.values(counts).reduce((total, one) => total + one, 0);
const named = (counts: Record<string, number>) =>
  Object.entries(counts)
    .map(([reason, count]) => `${reason} ${count}`)
    .join(", ");

const PODS: Column<Pod>[] = [
  { id: "node", header: "Pod", value: ({ node }) => node },
  {
    id: "state",
    header: "State",
    value: ({ report, error }) => (error ? "away" : report ? "answers" : "asked"),
    cell: ({ report, error }) => (
      <>
        <State tone={error ? "bad" : report ? "good" : "off"}>
          {error ? "away" : report ? "answers" : "asked"}
        </State>
        {error ? <Text size="xs">{error}</Text> : null}
      </>
    ),
  },
  {
    id: "configurations",
    header: "Configurations",
    align: "right",
    value: ({ report }) => report?.configurations ?? null,
  },
  { id: "groups", header: "Measurements", align: "right", value: ({ report }) => report?.groups ?? null },
  { id: "started", header: "Runs", align: "right", value: ({ report }) => report?.started_runs ?? null },
  { id: "merged", header: "Shared", align: "right", value: ({ report }) => report?.merged_runs ?? null },
  {
    id: "skipped",
    header: "Skipped",
    align: "right",
    value: ({ report }) => (report ? sum(report.skipped_runs) : null),
    cell: ({ report }) =>
      report ? (
        <>
          {sum(report.skipped_runs)}
          <Text size="xs">{named(report.skipped_runs)}</Text>
        </>
      ) : (
        "–"
      ),
  },
  {
    id: "late",
    header: "Late, 99 %",
    align: "right",
    value: ({ report }) => report?.start_lateness_p99_us ?? null,
    cell: ({ report }) => formatMs(report?.start_lateness_p99_us),
  },
];

interface Budget {
  node: string;
  link: string;
  used_bytes: number;
  limit_bytes: number;
}
const share = ({ used_bytes, limit_bytes }: Budget) => (limit_bytes > 0 ? used_bytes / limit_bytes : null);

const BUDGETS: Column<Budget>[] = [
  { id: "link", header: "Link", value: ({ link }) => link },
  { id: "node", header: "Kept by", value: ({ node }) => node },
  {
    id: "used",
    header: "Used in this minute",
    align: "right",
    value: ({ used_bytes }) => used_bytes,
    cell: ({ used_bytes }) => formatBytes(used_bytes),
  },
  {
    id: "limit",
    header: "Budget",
    align: "right",
    value: ({ limit_bytes }) => limit_bytes,
    cell: ({ limit_bytes }) => `${formatBytes(limit_bytes)} a minute`,
  },
  {
    id: "share",
    header: "Share",
    value: share,
    cell: (budget) => (
      <Group gap="xs" wrap="nowrap">
        <Progress
          w={110}
          value={Math.min(100, (share(budget) ?? 0) * 100)}
          color={(share(budget) ?? 0) > 0.9 ? "red" : "cyan"}
          aria-label={`Budget of ${budget.link} used`}
        />
        <Text size="xs">{formatShare(share(budget))}</Text>
      </Group>
    ),
  },
];

const CONFIGURATIONS: Column<SensingConfiguration>[] = [
  { id: "id", header: "Configuration", value: ({ id }) => id },
  {
    id: "path",
    header: "Path",
    value: ({ source_node, destination_node, destination_address }) =>
      `${source_node} → ${destination_node || destination_address}`,
  },
  { id: "sensor", header: "Sensor", value: ({ sensor }) => sensor },
  {
    id: "period",
    header: "Every",
    align: "right",
    value: ({ period_ms }) => period_ms,
    cell: ({ period_ms }) => `${period_ms / 1000} s`,
  },
  {
    id: "tolerance",
    header: "As old as",
    align: "right",
    value: ({ tolerance_ms }) => tolerance_ms,
    cell: ({ tolerance_ms }) => `${tolerance_ms / 1000} s`,
  },
  { id: "priority", header: "Priority", align: "right", value: ({ priority }) => priority },
  { id: "owner", header: "Owner", value: ({ owner }) => owner },
];

export function SensingPage() {
  const nodes = useNodes();
  return (
    <Stack>
      <PageHeader title="Sensing">
        Pods run the sensors that configurations ask for, each measurement once for all who want it, within a
        budget of one percent of every link.
      </PageHeader>
      <Fetched query={nodes} what="the pods">
        {(data) => {
          const pods = data.filter((node) => node.sensor_pod_target);
          return pods.length === 0 ? (
            <Empty title="No node has a sensor pod yet">
              State a node's <code>sensor_pod_target</code>, where its pod answers.
            </Empty>
          ) : (
            <Pods nodes={pods} />
          );
        }}
      </Fetched>
    </Stack>
  );
}

function Pods({ nodes }: { nodes: NetworkNode[] }) {
  const now = useNow(5000);
  const reports = useQueries({
    queries: nodes.map(({ id }) => ({
      queryKey: ["sensing-report", id],
      queryFn: () => api.sensingReport(id),
      refetchInterval: 5000,
      retry: false,
    })),
  });
  const configurations = useQuery({
    queryKey: ["sensing-configurations"],
    queryFn: api.sensingConfigurations,
  });
  const pods = nodes.map(({ id }, index): Pod => {
    const report = reports[index];
    return { node: id, report: report?.data, error: report?.error?.message ?? null };
  });
  const known = pods.flatMap(({ report }) => (report ? [report] : []));
  const budgets = known.flatMap((report) =>
    report.links.map((one): Budget => ({ node: report.node, ...one })),
  );
  const skips = known.flatMap((report) => report.skips.map((skip) => ({ node: report.node, ...skip })));
  const started = known.reduce((total, report) => total + report.started_runs, 0);
  const saved = known.reduce((total, report) => total + report.merged_runs + report.answered_from_store, 0);
  const fullest = budgets.reduce((most, budget) => Math.max(most, share(budget) ?? 0), 0);
  return (
    <>
      <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="sm">
        <Figure label="Pods answering" value={`${known.length} of ${nodes.length}`} />
        <Figure
          label="Runs made"
          value={String(started)}
          note={`${saved} more were shared or stored already`}
        />
        <Figure
          label="Runs skipped"
          value={String(known.reduce((total, one) => total + sum(one.skipped_runs), 0))}
        />
        <Figure label="Fullest budget" value={formatShare(fullest)} note="of one link, in this minute" />
      </SimpleGrid>
      <DataTable label="Pods" rows={pods} columns={PODS} rowKey={({ node }) => node} />
      <DataTable
        label="Budgets"
        sort={{ id: "share", desc: true }}
        rows={budgets}
        columns={BUDGETS}
        rowKey={({ node, link }) => `${node} ${link}`}
        empty="No pod has used any budget yet."
        minWidth={620}
      />
      <DataTable
        label="Skipped runs"
        rows={skips}
        columns={[
          { id: "at", header: "Last", value: ({ at }) => at, cell: ({ at }) => formatAge(at, now) },
          { id: "node", header: "Pod", value: ({ node }) => node },
          { id: "group", header: "Measurement", value: ({ group }) => group },
          { id: "reason", header: "Why", value: ({ reason }) => reason },
          { id: "detail", header: "In words", value: ({ detail }) => detail },
          { id: "count", header: "Times", align: "right", value: ({ count }) => count },
        ]}
        rowKey={({ node, at, group, reason }) => `${node} ${at} ${group} ${reason}`}
        empty="Every run was made."
      />
      <DataTable
        label="Configurations"
        rows={configurations.data ?? []}
        columns={CONFIGURATIONS}
        rowKey={({ id }) => id}
        empty={configurations.error?.message ?? "Nothing is asked for yet."}
      />
    </>
  );
}
