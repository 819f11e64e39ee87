/** One request: what was asked, why it gets what it gets, what became of it, and what a change would do. */
import { Alert, Button, Card, Group, SimpleGrid, Stack, Text, Timeline } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { api, ApiError } from "../../api/client";
import type { AuditRecord, RateRequest } from "../../api/types";
import { useLinks } from "../../api/useLive";
import { requestRoute } from "../../router";
import { type Column, DataTable } from "../../shared/DataTable";
import { Facts } from "../../shared/Facts";
import { HistoryChart } from "../../shared/HistoryChart";
import { useMay, useNow, useRange } from "../../shared/hooks";
import { Empty, Failed, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { RangePicker } from "../../shared/RangePicker";
import { State } from "../../shared/State";
import { TextLink } from "../../shared/TextLink";
import { formatAge, formatBytes, formatRate } from "../../shared/units";
import { explain, matchWords, sender } from "./explain";
import { pathLabel } from "./path";
import { Release } from "./Release";
import { isOpen, stateOf, whyOf } from "./state";
import { WhatIf } from "./WhatIf";

export function RequestPage() {
  const { requestId } = requestRoute.useParams();
  const request = useQuery({
    queryKey: ["rate-request", requestId],
    queryFn: () => api.rateRequest(requestId),
    refetchInterval: 2000,
  });
  if (request.error instanceof ApiError && request.error.problem.status === 404)
    return (
      <Empty title="Request not found" level={1}>
        No request has the id <code>{requestId}</code>, or it belongs to another owner.{" "}
        <TextLink to="/requests">Back to the requests</TextLink>
      </Empty>
    );
  return (
    <Fetched query={request} what="the request">
      {(data) => <RequestDetail request={data} at={request.dataUpdatedAt} />}
    </Fetched>
  );
}

function RequestDetail({ request, at }: { request: RateRequest; at: number }) {
  const links = useLinks();
  const range = useRange();
  const now = useNow(5000);
  const mayChange = useMay("application", "operator", "admin");
  const { tone, text } = stateOf(request);
  const asked = request.request;
  const details: [string, string][] = [
    ["Matches", matchWords(request)],
    ["Service", `${asked.service}, priority ${asked.priority}, ${asked.traffic_class}`],
    ["Matching flows", matchingFlows(request)],
    ["Granted", `${formatRate(request.granted_bps)} of ${formatRate(asked.guaranteed_bps)}`],
    ...waiting(request),
    ["Path", pathLabel(request.path, links.data ?? [])],
    ["Owner", request.owner],
    ...tagged(asked.tags),
    ["From", new Date(request.start).toLocaleString("en-GB")],
    ["Until", request.end ? new Date(request.end).toLocaleString("en-GB") : "released"],
  ];
  return (
    <Stack>
      <PageHeader
        title={asked.description || `${asked.source} → ${asked.destination}`}
        actions={
          <>
            {mayChange ? <Actions request={request} /> : null}
            <RangePicker />
          </>
        }
      >
        {asked.source} → {asked.destination}, <code>{request.id}</code>
      </PageHeader>
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <Card withBorder>
          <Group mb="xs">
            <State tone={tone}>{text}</State>
            <Text size="sm">{whyOf(request)}</Text>
          </Group>
          <Facts data={details.map(([label, value]) => ({ label, value }))} />
        </Card>
        <Explained request={request} at={at} />
      </SimpleGrid>
      <HistoryChart
        title={`Enforced and sent rate, ${range.label}`}
        series={[
          {
            kind: "grant",
            subject: request.id,
            metric: "kernel_rate_bps",
            label: "enforced",
            color: "orange",
            dashed: true,
          },
          {
            kind: "grant",
            subject: request.id,
            metric: "sent_bps",
            label: "sent",
            color: "cyan",
            fill: true,
          },
        ]}
        range={range}
        floor={request.granted_bps / 4}
        format={formatRate}
      />
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <History request={request} now={now} />
        {isOpen(request) && mayChange ? (
          <WhatIf key={request.revision} request={request} links={links.data ?? []} />
        ) : null}
      </SimpleGrid>
      <Confirmations request={request} now={now} />
    </Stack>
  );
}

/** How many flows match; while there are none for long, since when. */
function matchingFlows({ matching_flows, unmatched_since }: RateRequest): string {
  return unmatched_since
    ? `none since ${new Date(unmatched_since).toLocaleTimeString("en-GB")}`
    : String(matching_flows);
}

/** Until when its rate waits, and until when an earlier one is in use. */
function waiting({ waits_until, draining_until, draining_nodes }: RateRequest): [string, string][] {
  const lines: [string, string][] = [];
  const clock = (at: string) => new Date(at).toLocaleTimeString("en-GB");
  if (waits_until) lines.push(["In force", `${clock(waits_until)} at the latest`]);
  if (draining_until)
    lines.push(["Draining", `until ${clock(draining_until)} at the latest, on ${draining_nodes.join(", ")}`]);
  return lines;
}

/** A line for the tags, where there are some. */
function tagged(tags: Record<string, string>): [string, string][] {
  const words = Object.entries(tags).map(([name, value]) => (value ? `${name}: ${value}` : name));
  return words.length > 0 ? [["Tags", words.join(", ")]] : [];
}

/** What can be done with it besides a change of its figures. */
function Actions({ request }: { request: RateRequest }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const commit = useMutation({
    mutationFn: () => api.commitRateRequest(request.id),
    onSuccess: (answer) => {
      queries.setQueryData(["rate-request", request.id], answer);
      void queries.invalidateQueries({ queryKey: ["request-history", request.id] });
    },
  });
  return (
    <>
      {commit.isError ? <Failed error={commit.error} /> : null}
      {request.lifecycle === "HELD" ? (
        <Button
          size="xs"
          loading={commit.isPending}
          onClick={() => {
            commit.mutate();
          }}
        >
          Commit
        </Button>
      ) : null}
      <Button
        size="xs"
        variant="default"
        onClick={() => void navigate({ to: "/requests", search: { form: true, like: request.id } })}
      >
        New request like this
      </Button>
      {isOpen(request) ? <Release request={request} size="xs" /> : null}
    </>
  );
}

/** What the sender sends, from two reports of its agent; null until there were two. */
function useMeasured(request: RateRequest, moment: number): number | null {
  const bytes = sender(request)?.sent_bytes;
  const [seen, setSeen] = useState<{ at: number; bytes: number; bps: number | null } | null>(null);
  if (bytes !== undefined && bytes !== seen?.bytes) {
    const rose = seen && bytes > seen.bytes && moment > seen.at;
    setSeen({ at: moment, bytes, bps: rose ? ((bytes - seen.bytes) * 8000) / (moment - seen.at) : null });
  }
  return seen?.bps ?? null;
}

function Explained({ request, at }: { request: RateRequest; at: number }) {
  const links = useLinks();
  const measured = useMeasured(request, at);
  const found = explain(request, links.data ?? [], measured);
  return (
    <Card withBorder component="section" aria-label="Rate explained">
      <Text size="sm" fw={600} mb="xs">
        Rate explained
      </Text>
      <Alert
        color={found.cause ? "orange" : "teal"}
        variant="outline"
        mb="sm"
        role="status"
        title={found.cause ? "Below the requested rate" : "At the requested rate"}
        data-testid="cause"
      >
        {found.cause}
      </Alert>
      <Facts
        data={[
          {
            label: "Bottleneck",
            value: found.bottleneck ? (
              <TextLink to="/links/$linkId" params={{ linkId: found.bottleneck }}>
                {found.bottleneck}
              </TextLink>
            ) : (
              "no path"
            ),
          },
          { label: "Enforced", value: formatRate(found.kernelBps) },
          { label: "Measured", value: formatRate(found.measuredBps) },
        ]}
      />
    </Card>
  );
}

const WORDS: Record<string, string> = {
  "rate-request.create": "granted",
  "rate-request.hold": "held",
  "rate-request.commit": "committed",
  "rate-request.start": "started",
  "rate-request.change": "changed",
  "rate-request.release": "released",
  "rate-request.expire": "expired",
};

function words({ action, actor, detail }: AuditRecord): string {
  const granted = typeof detail.granted_bps === "number" ? `, ${formatRate(detail.granted_bps)}` : "";
  return `${WORDS[action] ?? action} by ${actor}${granted}`;
}

function History({ request, now }: { request: RateRequest; now: number }) {
  const history = useQuery({
    queryKey: ["request-history", request.id],
    queryFn: () => api.requestHistory(request.id),
  });
  const noted = (history.data ?? []).map((record) => ({ at: record.at, what: words(record), id: record.id }));
  const enforced = request.enforced_at
    ? [{ at: request.enforced_at, what: "enforced by every node of the path", id: "enforced" }]
    : [];
  const events = [...noted, ...enforced].sort((a, b) => b.at.localeCompare(a.at));
  return (
    <Card withBorder component="section" aria-label="History">
      <Text size="sm" fw={600} mb="sm">
        History
      </Text>
      {history.isError ? <Text size="sm">{history.error.message}</Text> : null}
      <Timeline active={0} bulletSize={14} lineWidth={2} color="cyan.9">
        {events.map(({ at, what, id }) => (
          <Timeline.Item key={id} title={what}>
            <Text size="xs">
              {formatAge(at, now)}, {new Date(at).toLocaleTimeString("en-GB")}
            </Text>
          </Timeline.Item>
        ))}
      </Timeline>
      {events.length === 0 && !history.isPending ? (
        <Text size="sm">
          Created {formatAge(request.created_at, now)}; its audit records are no longer kept by this gateway.
        </Text>
      ) : null}
    </Card>
  );
}

function Confirmations({ request, now }: { request: RateRequest; now: number }) {
  const columns: Column<RateRequest["confirmations"][number]>[] = [
    { id: "node", header: "Node", value: ({ node }) => node },
    {
      id: "state",
      header: "State",
      value: ({ state, reason }) => `${state.toLowerCase()}${reason ? `: ${reason}` : ""}`,
    },
    {
      id: "applied_at",
      header: "Applied",
      value: ({ applied_at }) => applied_at,
      cell: ({ applied_at }) => formatAge(applied_at, now),
    },
    {
      id: "kernel",
      header: "Enforced rate",
      align: "right",
      value: ({ kernel_rate_bps }) => kernel_rate_bps,
      cell: ({ kernel_rate_bps }) => formatRate(kernel_rate_bps || null),
    },
    { id: "flows", header: "Flows", align: "right", value: ({ matching_flows }) => matching_flows },
    {
      id: "sent",
      header: "Sent",
      align: "right",
      value: ({ sent_bytes }) => sent_bytes,
      cell: ({ sent_bytes }) => formatBytes(sent_bytes),
    },
  ];
  return (
    <DataTable
      label="Nodes on the path"
      rows={request.confirmations}
      columns={columns}
      rowKey={({ node }) => node}
      empty="No node has reported on this request yet."
      minWidth={600}
    />
  );
}
