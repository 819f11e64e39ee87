/** The list of rate requests: what was asked, what became of it. */
import { Text } from "@mantine/core";
import { useMemo } from "react";

import type { Link, RateRequest } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { State } from "../../shared/State";
import { TextLink } from "../../shared/TextLink";
import { formatAge, formatRate } from "../../shared/units";
import { pathLabel } from "./path";
import { Release } from "./Release";
import { isOpen, kernelRate, stateOf, whyOf } from "./state";

interface Props {
  items: RateRequest[];
  links: Link[];
  now: number;
  mayRelease: boolean;
  /** There are older ones that are not here. */
  more: boolean;
}

export function RequestTable({ items, links, now, mayRelease, more }: Props) {
  const columns = useMemo<Column<RateRequest>[]>(
    () => [
      {
        id: "request",
        header: "Request",
        value: ({ request, id }) => `${request.source} → ${request.destination} ${request.description || id}`,
        cell: ({ request, id }) => (
          <>
            <TextLink to="/requests/$requestId" params={{ requestId: id }} style={{ whiteSpace: "nowrap" }}>
              {request.source} → {request.destination}
            </TextLink>
            <Text size="xs" fw={400}>
              {request.description || id}
            </Text>
          </>
        ),
      },
      {
        id: "state",
        header: "State",
        value: (request) => stateOf(request).text,
        cell: (request) => (
          <>
            <State tone={stateOf(request).tone}>{stateOf(request).text}</State>
            {whyOf(request) ? <Text size="xs">{whyOf(request)}</Text> : null}
          </>
        ),
      },
      { id: "service", header: "Service", value: ({ request }) => request.service },
      {
        id: "granted_bps",
        header: "Guaranteed",
        align: "right",
        value: (request) => request.granted_bps,
        cell: (request) => formatRate(request.granted_bps),
      },
      {
        id: "kernel_bps",
        header: "Enforced rate",
        align: "right",
        value: kernelRate,
        cell: (request) => formatRate(kernelRate(request)),
      },
      {
        id: "flows",
        header: "Flows",
        align: "right",
        value: (request) => (isOpen(request) ? request.matching_flows : null),
      },
      {
        id: "path",
        header: "Path",
        value: (request) => pathLabel(request.path, links),
        cell: (request) => (
          <Text size="xs" maw={220}>
            {pathLabel(request.path, links)}
          </Text>
        ),
      },
      {
        id: "owner",
        header: "Owner",
        value: (request) => request.owner,
        cell: (request) => <span style={{ whiteSpace: "nowrap" }}>{request.owner}</span>,
      },
      {
        id: "created_at",
        header: "Created",
        align: "right",
        value: (request) => request.created_at,
        cell: (request) => formatAge(request.created_at, now),
      },
      {
        id: "action",
        header: "Action",
        value: () => null,
        cell: (request) => (isOpen(request) && mayRelease ? <Release request={request} /> : null),
      },
    ],
    [links, now, mayRelease],
  );
  return (
    <DataTable
      label="Requests"
      rows={items}
      columns={columns}
      rowKey={(request) => request.id}
      rowTestId={(request) => `request-${request.id}`}
      sort={{ id: "created_at", desc: true }}
      minWidth={980}
      note={more ? "the newest; older requests are available over REST" : undefined}
    />
  );
}
