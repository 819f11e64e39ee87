/** Sensing: sensor pods, their configurations, budgets and skipped runs. */
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
import { Meshes } from "./Meshes";

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
  { id: "node", header: "Sensor pod", value: ({ node }) => node },
  {
    id: "state",
    header: "State",
    value: ({ report, error }) => (error ? "unreachable" : report ? "reachable" : "waiting"),
    cell: ({ report, error }) => (
      <>
        <State tone={error ? "bad" : report ? "good" : "off"}>
          {error ? "unreachable" : report ? "reachable" : "waiting"}
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
    header: "Start delay p99",
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
  { id: "node", header: "Sensor pod", value: ({ node }) => node },
  {
    id: "used",
    header: "Used this minute",
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
    header: "Period",
    align: "right",
    value: ({ period_ms }) => period_ms,
    cell: ({ period_ms }) => `${period_ms / 1000} s`,
  },
  {
    id: "tolerance",
    header: "Maximum age",
    align: "right",
    value: ({ tolerance_ms }) => tolerance_ms,
    cell: ({ tolerance_ms }) => `${tolerance_ms / 1000} s`,
  },
  { id: "priority", header: "Priority", align: "right", value: ({ priority }) => priority },
  { id: "owner", header: "Owner", value: ({ owner }) => owner },
  { id: "mesh", header: "Mesh", value: ({ mesh }) => mesh },
];

export function SensingPage() {
  const nodes = useNodes();
  return (
    <Stack>
      <PageHeader title="Sensing">
        Sensor pods run the configured sensors. Configurations for the same measurement share one run; probes
        use at most 1 % of a link's capacity.
      </PageHeader>
      <Meshes />
      <Fetched query={nodes} what="the sensor pods">
        {(data) => {
          const pods = data.filter((node) => node.sensor_pod_target);
          return pods.length === 0 ? (
            <Empty title="No node has a sensor pod yet">
              Set <code>sensor_pod_target</code> of a node to the address of its sensor pod.
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
        <Figure label="Sensor pods reachable" value={`${known.length} of ${nodes.length}`} />
        <Figure
          label="Runs"
          value={String(started)}
          note={`${saved} more answered by a shared or stored result`}
        />
        <Figure
          label="Runs skipped"
          value={String(known.reduce((total, one) => total + sum(one.skipped_runs), 0))}
        />
        <Figure label="Highest budget use" value={formatShare(fullest)} note="of one link, this minute" />
      </SimpleGrid>
      <DataTable label="Sensor pods" rows={pods} columns={PODS} rowKey={({ node }) => node} />
      <DataTable
        label="Budgets"
        sort={{ id: "share", desc: true }}
        rows={budgets}
        columns={BUDGETS}
        rowKey={({ node, link }) => `${node} ${link}`}
        empty="No sensor pod has used any budget yet."
        minWidth={620}
      />
      <DataTable
        label="Skipped runs"
        rows={skips}
        columns={[
          { id: "at", header: "Last", value: ({ at }) => at, cell: ({ at }) => formatAge(at, now) },
          { id: "node", header: "Sensor pod", value: ({ node }) => node },
          { id: "group", header: "Measurement", value: ({ group }) => group },
          { id: "reason", header: "Reason", value: ({ reason }) => reason },
          { id: "detail", header: "Details", value: ({ detail }) => detail },
          { id: "count", header: "Count", align: "right", value: ({ count }) => count },
        ]}
        rowKey={({ node, at, group, reason }) => `${node} ${at} ${group} ${reason}`}
        empty="No skipped runs."
      />
      <DataTable
        label="Configurations"
        rows={configurations.data ?? []}
        columns={CONFIGURATIONS}
        rowKey={({ id }) => id}
        empty={configurations.error?.message ?? "No sensing configurations yet."}
      />
    </>
  );
}
