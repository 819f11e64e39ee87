/** One tunnel: target against achieved, connections, and how each step of the target settled. */
import { Card, SimpleGrid, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type uPlot from "uplot";

import { api, ApiError } from "../../api/client";
import type { TunnelDetail, TunnelStep } from "../../api/types";
import { tunnelRoute } from "../../router";
import { type Column, DataTable } from "../../shared/DataTable";
import { Facts } from "../../shared/Facts";
import { Figure } from "../../shared/Figure";
import { useNow } from "../../shared/hooks";
import { Empty, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { TextLink } from "../../shared/TextLink";
import { formatAge, formatBytes, formatMs, formatRate, formatShare } from "../../shared/units";
import { type ChartSeries, LiveChart } from "../links/LiveChart";
import { columns as withGaps } from "../links/window";
import { tunnelState } from "./TunnelsPage";

const RATES: ChartSeries[] = [
  { label: "achieved", color: "cyan", fill: true },
  { label: "target", color: "orange", dashed: true },
];
const CONNECTIONS: ChartSeries[] = [
  { label: "m", color: "grape" },
  { label: "wanted", color: "orange", dashed: true },
];
const count = (value: number | null) => (value === null ? "–" : value.toFixed(value % 1 === 0 ? 0 : 1));
/** A silence longer than some control periods is drawn as a gap. */
const GAP_S = 10;

export function TunnelPage() {
  const { tunnelId } = tunnelRoute.useParams();
  const tunnel = useQuery({
    queryKey: ["tunnel", tunnelId],
    queryFn: () => api.tunnel(tunnelId),
    refetchInterval: 2000,
  });
  if (tunnel.error instanceof ApiError && tunnel.error.problem.status === 404)
    return (
      <Empty title="Tunnel not found" level={1}>
        No tunnel has the id <code>{tunnelId}</code>. <TextLink to="/tunnels">Back to the tunnels</TextLink>
      </Empty>
    );
  return (
    <Fetched query={tunnel} what="the tunnel">
      {(data) => <Detail tunnel={data} fetchedAt={tunnel.dataUpdatedAt} />}
    </Fetched>
  );
}

function Detail({ tunnel, fetchedAt }: { tunnel: TunnelDetail; fetchedAt: number }) {
  const now = useNow();
  const { state, settings, decision } = tunnel;
  const [rates, connections] = useMemo(() => charts(tunnel), [tunnel]);
  const times = rates[0];
  const window = Math.max(60, (times.at(-1) ?? 0) - (times[0] ?? 0));
  const axis = { untilS: times.at(-1) ?? now / 1000, windowS: window, height: 190 };
  return (
    <Stack>
      <PageHeader title={`Tunnel ${tunnel.id}`} fetchedAt={fetchedAt} staleMs={15_000}>
        {state ? `${state.origin} → ${state.destination}, last report ${formatAge(state.at, now)}. ` : ""}
        {tunnel.reason}
      </PageHeader>
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }} spacing="sm">
        <Figure
          label="Target"
          value={formatRate(tunnel.target_bps || null)}
          note={`from ${tunnel.target_source}`}
        />
        <Figure label="Achieved" value={formatRate(tunnel.rate_bps)} note={tunnelState(tunnel).text} />
        <Figure
          label="Connections"
          value={state ? `${state.connections_established} of ${state.connections_wanted}` : "–"}
          note={state?.congestion}
        />
        <Figure label="RTT" value={formatMs(state?.rtt_mean_us)} note="mean of the connections" />
        <Figure
          label="Queue"
          value={formatBytes(state?.queue_bytes)}
          note={`${state?.dropped_packets ?? 0} dropped`}
        />
        <Figure label="Changes of m" value={String(state?.connection_changes ?? "–")} />
      </SimpleGrid>
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <Card withBorder>
          <LiveChart
            title="Target against achieved"
            series={RATES}
            data={rates}
            floor={(tunnel.target_bps || 1e6) / 4}
            format={formatRate}
            {...axis}
          />
        </Card>
        <Card withBorder>
          <LiveChart
            title="Connections"
            series={CONNECTIONS}
            data={connections}
            floor={4}
            format={count}
            {...axis}
          />
        </Card>
      </SimpleGrid>
      <DataTable
        label="Steps"
        rows={tunnel.steps}
        columns={STEPS}
        rowKey={({ start }) => start}
        empty="No step yet: no target was set."
      />
      <Card withBorder>
        <Facts
          data={[
            { label: "Controller", value: settings?.controller ?? "none: monitored only" },
            {
              label: "Gains",
              value:
                decision?.kp == null
                  ? "–"
                  : `kp ${decision.kp.toPrecision(3)}, ki ${decision.ki?.toPrecision(3) ?? "–"}`,
            },
            {
              label: "Stability",
              value:
                decision?.spectral_radius == null
                  ? "–"
                  : `largest pole ${decision.spectral_radius.toFixed(3)} (below 1 is stable)`,
            },
            { label: "Capacity", value: formatRate(decision?.capacity_bps) },
            { label: "Encrypted", value: state ? (state.tls ? "yes, TLS" : "no") : "–" },
          ]}
        />
      </Card>
    </Stack>
  );
}

function charts({ history }: TunnelDetail): [uPlot.AlignedData, uPlot.AlignedData] {
  const at = (text: string) => Date.parse(text) / 1000;
  const rates = history.map((one) => ({ at: at(one.at), values: [one.rate_bps, one.target_bps] }));
  const connections = history.map((one) => ({ at: at(one.at), values: [one.connections, one.wanted] }));
  return [withGaps(rates, 2, GAP_S), withGaps(connections, 2, GAP_S)];
}

const STEPS: Column<TunnelStep>[] = [
  {
    id: "start",
    header: "Start",
    value: ({ start }) => start,
    cell: ({ start }) => new Date(start).toLocaleTimeString("en-GB"),
  },
  {
    id: "target",
    header: "Target",
    align: "right",
    value: ({ target_bps }) => target_bps,
    cell: ({ target_bps }) => formatRate(target_bps),
  },
  { id: "controller", header: "Controller", value: ({ controller }) => controller },
  { id: "periods", header: "Periods", align: "right", value: ({ periods }) => periods },
  {
    id: "settling",
    header: "Settling time",
    align: "right",
    value: ({ settling_periods }) => settling_periods,
    cell: ({ settling_periods }) => (settling_periods === null ? "not yet" : `${settling_periods} periods`),
  },
  {
    id: "overshoot",
    header: "Overshoot",
    align: "right",
    value: ({ overshoot }) => overshoot,
    cell: ({ overshoot }) => formatShare(overshoot, 1),
  },
  {
    id: "error",
    header: "Steady-state error",
    align: "right",
    value: ({ steady_error }) => steady_error,
    cell: ({ steady_error }) => formatShare(steady_error, 1),
  },
  { id: "peak", header: "Maximum m", align: "right", value: ({ connections_peak }) => connections_peak },
  {
    id: "final",
    header: "Final m",
    align: "right",
    value: ({ connections_final }) => connections_final,
    cell: ({ connections_final }) => connections_final.toFixed(1),
  },
  {
    id: "changes",
    header: "Changes of m",
    align: "right",
    value: ({ connection_changes }) => connection_changes,
  },
];
