/** Who changed what, the newest first. */
import { Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";

import { api } from "../../api/client";
import type { AuditRecord } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { useNow } from "../../shared/hooks";
import { Empty, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { TextLink } from "../../shared/TextLink";
import { formatAge } from "../../shared/units";
import { detailWords } from "./detail";

function subjectOf({ action, subject }: AuditRecord) {
  if (action.startsWith("rate-request."))
    return (
      <TextLink to="/requests/$requestId" params={{ requestId: subject }}>
        {subject}
      </TextLink>
    );
  if (action.startsWith("link."))
    return (
      <TextLink to="/links/$linkId" params={{ linkId: subject }}>
        {subject}
      </TextLink>
    );
  return subject;
}

export function AuditPage() {
  const audit = useQuery({ queryKey: ["audit"], queryFn: () => api.audit(), refetchInterval: 5000 });
  const now = useNow(5000);
  const columns = useMemo<Column<AuditRecord>[]>(
    () => [
      {
        id: "at",
        header: "Time",
        value: ({ at }) => at,
        cell: ({ at }) => (
          <Text
            size="sm"
            fw={500}
            component="span"
            style={{ whiteSpace: "nowrap" }}
            title={new Date(at).toLocaleString("en-GB")}
          >
            {formatAge(at, now)}
          </Text>
        ),
      },
      {
        id: "actor",
        header: "Actor",
        value: ({ actor }) => actor,
        cell: ({ actor }) => <span style={{ whiteSpace: "nowrap" }}>{actor}</span>,
      },
      { id: "action", header: "Action", value: ({ action }) => action },
      { id: "subject", header: "Subject", value: ({ subject }) => subject, cell: subjectOf },
      { id: "service", header: "Service", value: ({ service }) => service },
      {
        id: "detail",
        header: "Details",
        value: ({ detail }) => detailWords(detail) || null,
        cell: ({ detail }) => (
          <Text size="xs" miw={260} style={{ overflowWrap: "anywhere" }} title={JSON.stringify(detail)}>
            {shorten(detailWords(detail)) || "–"}
          </Text>
        ),
      },
      { id: "trace", header: "Trace", value: ({ trace_id }) => trace_id.slice(0, 8) || null },
    ],
    [now],
  );
  return (
    <Stack>
      <PageHeader title="Audit" fetchedAt={audit.dataUpdatedAt}>
        Every change is recorded in the same transaction. The newest 2,000 records are shown.
      </PageHeader>
      <Fetched query={audit} what="the audit log">
        {(items) =>
          items.length === 0 ? (
            <Empty title="No changes yet">Changes by people and services are listed here.</Empty>
          ) : (
            <DataTable
              label="Changes"
              rows={items}
              columns={columns}
              rowKey={({ id }) => id}
              minWidth={980}
            />
          )
        }
      </Fetched>
    </Stack>
  );
}

const LONG = 160;
const shorten = (text: string) => (text.length > LONG ? `${text.slice(0, LONG)} …` : text);
