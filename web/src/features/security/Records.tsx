/** Authentication of the records that nodes write: what the gateway checked, and what was refused. */
import { Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";

import { api } from "../../api/client";
import type { RecordChecks, RecordRefusal } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { useNow } from "../../shared/hooks";
import { Fetched } from "../../shared/Notices";
import { formatAge } from "../../shared/units";
import { recordReasonWords, recordsInWords } from "./trust";

function columns(now: number): Column<RecordRefusal>[] {
  return [
    { id: "topic", header: "Stream", value: ({ topic }) => topic },
    {
      id: "reason",
      header: "Reason",
      value: ({ reason }) => reason,
      cell: ({ reason }) => recordReasonWords(reason),
    },
    { id: "count", header: "Records", align: "right", value: ({ count }) => count },
    { id: "node", header: "Newest about", value: ({ node }) => node || null },
    { id: "at", header: "Time", value: ({ at }) => at, cell: ({ at }) => formatAge(at, now) },
    { id: "detail", header: "Details", value: ({ detail }) => detail },
  ];
}

export function Records() {
  const checks = useQuery({
    queryKey: ["record-checks"],
    queryFn: api.recordChecks,
    refetchInterval: 10_000,
  });
  return (
    <Fetched query={checks} what="authentication of records">
      {(found) => <Checked found={found} />}
    </Fetched>
  );
}

function Checked({ found }: { found: RecordChecks }) {
  const now = useNow(5000);
  return (
    <Stack gap="xs">
      <Text size="sm" c="dimmed">
        {recordsInWords(found)}
      </Text>
      <DataTable
        label="Refused records"
        rows={found.items}
        columns={columns(now)}
        rowKey={({ topic, reason }) => `${topic} ${reason}`}
        empty="No record was refused."
        minWidth={560}
      />
    </Stack>
  );
}
