/** Elastic tunnels: target, achieved rate and number of connections. */
import { Stack } from "@mantine/core";

import type { Tunnel } from "../../api/types";
import { useTunnels } from "../../api/useLive";
import { type Column, DataTable } from "../../shared/DataTable";
import { Empty, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { State, type Tone } from "../../shared/State";
import { TextLink } from "../../shared/TextLink";
import { formatRate, formatShare } from "../../shared/units";
import { NodeEnds } from "./NodeEnds";

export function tunnelState(tunnel: Tunnel): { tone: Tone; text: string } {
  if (!tunnel.state) return { tone: "off", text: "no report" };
  if (tunnel.state.last_error) return { tone: "bad", text: "failing" };
  if (tunnel.state.decaying) return { tone: "busy", text: "lease expired" };
  if (tunnel.target_bps === 0) return { tone: "off", text: "no target" };
  if (tunnel.decision?.starved) return { tone: "good", text: "offered load below target" };
  if (tunnel.decision?.guarded) return { tone: "busy", text: "guarded" };
  return tunnel.rate_bps >= 0.95 * tunnel.target_bps
    ? { tone: "good", text: "on target" }
    : { tone: "busy", text: "below target" };
}

const COLUMNS: Column<Tunnel>[] = [
  {
    id: "id",
    header: "Tunnel",
    value: ({ id }) => id,
    cell: ({ id }) => (
      <TextLink to="/tunnels/$tunnelId" params={{ tunnelId: id }}>
        {id}
      </TextLink>
    ),
  },
  {
    id: "ends",
    header: "Ends",
    value: ({ state }) => (state ? `${state.origin} → ${state.destination}` : null),
  },
  {
    id: "state",
    header: "State",
    value: (tunnel) => tunnelState(tunnel).text,
    cell: (tunnel) => <State tone={tunnelState(tunnel).tone}>{tunnelState(tunnel).text}</State>,
  },
  {
    id: "target",
    header: "Target",
    align: "right",
    value: ({ target_bps }) => target_bps,
    cell: ({ target_bps }) => formatRate(target_bps || null),
  },
  {
    id: "rate",
    header: "Achieved",
    align: "right",
    value: ({ rate_bps }) => rate_bps,
    cell: ({ rate_bps }) => formatRate(rate_bps),
  },
  {
    id: "share",
    header: "Share of target",
    align: "right",
    value: ({ rate_bps, target_bps }) => (target_bps > 0 ? rate_bps / target_bps : null),
    cell: ({ rate_bps, target_bps }) => formatShare(target_bps > 0 ? rate_bps / target_bps : null),
  },
  {
    id: "m",
    header: "m",
    align: "right",
    value: ({ state }) => state?.connections_established ?? null,
  },
  { id: "controller", header: "Controller", value: ({ settings }) => settings?.controller ?? "none" },
  { id: "reason", header: "Reason", value: ({ reason, state }) => reason || state?.last_error || null },
];

export function TunnelsPage() {
  const tunnels = useTunnels();
  return (
    <Stack>
      <PageHeader title="Tunnels" fetchedAt={tunnels.dataUpdatedAt} staleMs={15_000}>
        An elastic tunnel reaches a target rate over ordinary TCP connections by changing their number m.
      </PageHeader>
      <Fetched query={tunnels} what="tunnels">
        {(items) =>
          items.length === 0 ? (
            <Empty title="No tunnel has reported yet">
              State both ends below, and set a target over REST or with <code>chart tunnels</code>.
            </Empty>
          ) : (
            <DataTable label="Elastic tunnels" rows={items} columns={COLUMNS} rowKey={({ id }) => id} />
          )
        }
      </Fetched>
      <NodeEnds />
    </Stack>
  );
}
