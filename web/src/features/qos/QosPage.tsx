/** The QoS console: rules by application, DSCP and ports, what a rule would match, and the enforcement switch. */
import { Button, Drawer, Stack } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import type { RateRequest } from "../../api/types";
import { useRateRequests } from "../../api/useLive";
import { type Column, DataTable } from "../../shared/DataTable";
import { useMay } from "../../shared/hooks";
import { Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { State } from "../../shared/State";
import { TextLink } from "../../shared/TextLink";
import { formatRate } from "../../shared/units";
import { Release } from "../requests/Release";
import { isOpen, stateOf } from "../requests/state";
import { Edges } from "./Edges";
import { Enforcement } from "./Enforcement";
import { PlatformSettings } from "./PlatformSettings";
import { RuleForm } from "./RuleForm";
import { SessionRules } from "./SessionRules";

const port = (value: number | null) => (value === null ? "any" : String(value));

const RULES: Column<RateRequest>[] = [
  {
    id: "rule",
    header: "Rule",
    value: ({ request, id }) => request.description || id,
    cell: ({ request, id }) => (
      <TextLink to="/requests/$requestId" params={{ requestId: id }}>
        {request.description || id}
      </TextLink>
    ),
  },
  { id: "owner", header: "Application", value: ({ owner, request }) => request.tags.application ?? owner },
  { id: "path", header: "Path", value: ({ request }) => `${request.source} → ${request.destination}` },
  { id: "dscp", header: "DSCP", align: "right", value: ({ request }) => request.dscp ?? "any" },
  {
    id: "ports",
    header: "Ports",
    value: ({ request }) =>
      `${request.protocol ?? "any"} ${port(request.source_port)} → ${port(request.destination_port)}`,
  },
  { id: "service", header: "Service", value: ({ request }) => request.service },
  {
    id: "rate",
    header: "Guaranteed",
    align: "right",
    value: ({ granted_bps }) => granted_bps,
    cell: ({ granted_bps }) => formatRate(granted_bps),
  },
  { id: "priority", header: "Priority", align: "right", value: ({ request }) => request.priority },
  {
    id: "state",
    header: "State",
    value: (request) => stateOf(request).text,
    cell: (request) => <State tone={stateOf(request).tone}>{stateOf(request).text}</State>,
  },
];

const ACTION: Column<RateRequest> = {
  id: "action",
  header: "Action",
  value: () => null,
  cell: (request) => <Release request={request} label="Remove" />,
};

export function QosPage() {
  const requests = useRateRequests();
  const mayAsk = useMay("application", "operator", "admin");
  const [open, setOpen] = useState(false);
  const queries = useQueryClient();
  return (
    <Stack>
      <PageHeader
        title="QoS console"
        actions={
          mayAsk ? (
            <Button
              onClick={() => {
                setOpen(true);
              }}
            >
              New rule
            </Button>
          ) : null
        }
      >
        A rule gives the packets of an application, a code point or a port a rate that the network keeps.
      </PageHeader>
      <Enforcement />
      <SessionRules />
      <Edges />
      <PlatformSettings />
      <Fetched query={requests} what="the rules">
        {({ items }) => (
          <DataTable
            label="Rules in force"
            rows={items.filter(isOpen)}
            columns={mayAsk ? [...RULES, ACTION] : RULES}
            rowKey={({ id }) => id}
            empty="No rules: every flow is on its default congestion control."
            minWidth={1060}
          />
        )}
      </Fetched>
      <Drawer
        opened={open}
        onClose={() => {
          setOpen(false);
        }}
        title="New rule"
        position="right"
        size="lg"
        closeButtonProps={{ "aria-label": "Close the form" }}
      >
        <RuleForm
          onSaved={() => {
            setOpen(false);
            void queries.invalidateQueries({ queryKey: ["rate-requests"] });
          }}
        />
      </Drawer>
    </Stack>
  );
}
