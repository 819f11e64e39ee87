/** The flows that send most, and what those with a grant make of it. */
import { Group, Progress, SimpleGrid, Stack, Switch, Text } from "@mantine/core";
import { useMemo, useState } from "react";

import type { Flow } from "../../api/types";
import { useFlows } from "../../api/useLive";
import { type Column, DataTable } from "../../shared/DataTable";
import { Figure } from "../../shared/Figure";
import { useNow } from "../../shared/hooks";
import { Empty, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { TextLink } from "../../shared/TextLink";
import { formatAge, formatBytes, formatMs, formatRate, formatShare } from "../../shared/units";
import { end, flowKey, usedShare } from "./flow";

export function FlowsPage() {
  const flows = useFlows();
  const now = useNow(2000);
  const [running, setRunning] = useState(false);
  const columns = useMemo<Column<Flow>[]>(
    () => [
      {
        id: "flow",
        header: "Flow",
        value: (flow) =>
          `${flow.protocol} ${end(flow.source_address, flow.source_port)} → ${end(flow.destination_address, flow.destination_port)}`,
        cell: (flow) => (
          <Text size="sm" fw={500} component="span" style={{ whiteSpace: "nowrap" }}>
            {flow.protocol} {end(flow.source_address, flow.source_port)} →
            <br />
            {end(flow.destination_address, flow.destination_port)}
          </Text>
        ),
      },
      { id: "node", header: "Sender", value: ({ node }) => node },
      {
        id: "request",
        header: "Request",
        value: ({ request_id }) => request_id,
        cell: ({ request_id }) =>
          request_id ? (
            <TextLink to="/requests/$requestId" params={{ requestId: request_id }}>
              {request_id.slice(-8)}
            </TextLink>
          ) : (
            "none"
          ),
      },
      {
        id: "delivered_bps",
        header: "Used",
        align: "right",
        value: ({ delivered_bps }) => delivered_bps,
        cell: ({ delivered_bps }) => formatRate(delivered_bps),
      },
      {
        id: "granted_bps",
        header: "Guaranteed",
        align: "right",
        value: ({ granted_bps }) => granted_bps,
        cell: ({ granted_bps }) => formatRate(granted_bps),
      },
      {
        id: "share",
        header: "Share",
        value: usedShare,
        cell: (flow) => {
          const share = usedShare(flow);
          return share === null ? (
            "–"
          ) : (
            <Group gap="xs" wrap="nowrap">
              <Progress
                w={60}
                value={Math.min(100, share * 100)}
                color="cyan"
                aria-label={`Share in use of the rate granted to ${end(flow.destination_address, flow.destination_port)}`}
              />
              <Text size="xs" style={{ whiteSpace: "nowrap" }}>
                {formatShare(share)}
              </Text>
            </Group>
          );
        },
      },
      {
        id: "delivered",
        header: "Delivered",
        align: "right",
        value: ({ delivered_bytes }) => delivered_bytes,
        cell: ({ delivered_bytes }) => formatBytes(delivered_bytes),
      },
      {
        id: "again",
        header: "Retransmitted",
        align: "right",
        value: ({ retransmitted_bytes, sent_bytes }) =>
          sent_bytes > 0 ? retransmitted_bytes / sent_bytes : null,
        cell: ({ retransmitted_bytes, sent_bytes }) =>
          formatShare(sent_bytes > 0 ? retransmitted_bytes / sent_bytes : null, 1),
      },
      {
        id: "rtt",
        header: "Minimum RTT",
        align: "right",
        value: ({ min_rtt_us }) => min_rtt_us,
        cell: ({ min_rtt_us }) => formatMs(min_rtt_us),
      },
      {
        id: "dscp",
        header: "DSCP",
        align: "right",
        value: ({ dscp }) => dscp,
        cell: ({ dscp }) => dscp ?? "–",
      },
      {
        id: "at",
        header: "Reported",
        align: "right",
        value: ({ at }) => at,
        cell: ({ at, ended }) => `${formatAge(at, now)}${ended ? ", ended" : ""}`,
      },
    ],
    [now],
  );
  return (
    <Stack>
      <PageHeader
        title="Flows"
        fetchedAt={flows.dataUpdatedAt}
        staleMs={30_000}
        actions={
          <Switch
            size="sm"
            label="Running only"
            checked={running}
            onChange={(event) => {
              setRunning(event.currentTarget.checked);
            }}
          />
        }
      >
        Senders report each flow every minute and when it ends; the rate is the mean since the previous
        report.
      </PageHeader>
      <Fetched query={flows} what="flows">
        {(items) => {
          if (items.length === 0)
            return (
              <Empty title="No flow reported yet">
                A flow appears with its sender's first report: after a minute, or when it ends.
              </Empty>
            );
          const live = items.filter((flow) => !flow.ended);
          const granted = live.filter((flow) => flow.granted_bps !== null);
          const sum = (some: Flow[]) => some.reduce((total, flow) => total + flow.delivered_bps, 0);
          return (
            <>
              <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="sm">
                <Figure
                  label="Running"
                  value={String(live.length)}
                  note={`${items.length - live.length} ended`}
                />
                <Figure label="With a grant" value={String(granted.length)} />
                <Figure label="Rate of granted flows" value={formatRate(sum(granted))} />
                <Figure label="Rate of other flows" value={formatRate(sum(live) - sum(granted))} />
              </SimpleGrid>
              <DataTable
                label="Top flows"
                rows={running ? live : items}
                columns={columns}
                rowKey={flowKey}
                sort={{ id: "delivered_bps", desc: true }}
                minWidth={1080}
                empty="No running flow has been reported."
              />
            </>
          );
        }}
      </Fetched>
    </Stack>
  );
}
