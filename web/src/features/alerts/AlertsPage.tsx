/** Alerts that fire, alerts that are resolved, and the rules behind them. */
import { Button, Drawer, SimpleGrid, Stack } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { Alert as Told, AlertRule } from "../../api/types";
import { useAlerts } from "../../api/useLive";
import { type Column, DataTable } from "../../shared/DataTable";
import { Figure } from "../../shared/Figure";
import { useMay, useNow } from "../../shared/hooks";
import { Failed, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { State } from "../../shared/State";
import { TextLink } from "../../shared/TextLink";
import { formatAge, formatShare } from "../../shared/units";
import { METRICS } from "../paths/matrix";
import { RuleForm } from "./RuleForm";
import { findingWords, metricLabel, subjectWords } from "./words";

/** In the metric's unit; a change is a share of what was before, and silence has no threshold. */
function thresholdWords({ kind, metric, threshold }: AlertRule): string {
  if (kind === "no_data") return "–";
  if (kind === "change") return formatShare(threshold);
  return METRICS.find(({ id }) => id === metric)?.format(threshold) ?? String(threshold);
}

const firing = (items: Told[]) => items.filter(({ resolved_at }) => resolved_at === null);

/** The path that it is about, with the metric that is wrong. */
function pathLink({ subject }: Told) {
  const [source, destination, metric] = subject.split(",");
  return source && destination && metric ? (
    <TextLink to="/paths" search={{ source, destination, metric }}>
      {subjectWords(subject)}
    </TextLink>
  ) : (
    subjectWords(subject)
  );
}

function told(now: number): Column<Told>[] {
  return [
    {
      id: "state",
      header: "State",
      value: ({ resolved_at }) => (resolved_at === null ? "firing" : "resolved"),
      cell: ({ resolved_at }) => (
        <State tone={resolved_at === null ? "bad" : "off"}>
          {resolved_at === null ? "firing" : "resolved"}
        </State>
      ),
    },
    { id: "rule", header: "Rule", value: ({ rule }) => rule },
    { id: "subject", header: "Subject", value: ({ subject }) => subjectWords(subject), cell: pathLink },
    { id: "summary", header: "Summary", value: findingWords },
    {
      id: "fired",
      header: "Fired",
      align: "right",
      value: ({ fired_at }) => fired_at,
      cell: ({ fired_at }) => formatAge(fired_at, now),
    },
    {
      id: "resolved",
      header: "Resolved",
      align: "right",
      value: ({ resolved_at }) => resolved_at,
      cell: ({ resolved_at }) => (resolved_at ? formatAge(resolved_at, now) : "–"),
    },
  ];
}

export function AlertsPage() {
  const alerts = useAlerts();
  const now = useNow(5000);
  const mayChange = useMay("operator", "admin");
  const [open, setOpen] = useState(false);
  return (
    <Stack>
      <PageHeader
        title="Alerts"
        fetchedAt={alerts.dataUpdatedAt}
        staleMs={30_000}
        actions={
          mayChange ? (
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
        Each rule is checked on every path that has its metric, including paths that stop reporting.
      </PageHeader>
      <Fetched query={alerts} what="alerts">
        {(items) => (
          <>
            <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="sm">
              <Figure
                label="Firing"
                value={String(firing(items).length)}
                color={firing(items).length > 0 ? "var(--chart-bad)" : undefined}
                note="now"
              />
              <Figure
                label="Resolved"
                value={String(items.length - firing(items).length)}
                note="in the alert history"
              />
            </SimpleGrid>
            <DataTable
              label="Alerts"
              rows={items}
              columns={told(now)}
              rowKey={({ id }) => id}
              empty="No alert has fired yet."
            />
          </>
        )}
      </Fetched>
      <Rules
        open={open}
        onClose={() => {
          setOpen(false);
        }}
      />
    </Stack>
  );
}

/** The rules, and the form for one more. */
function Rules({ open, onClose }: { open: boolean; onClose: () => void }) {
  const rules = useQuery({ queryKey: ["alert-rules"], queryFn: api.alertRules });
  const mayChange = useMay("operator", "admin");
  const queries = useQueryClient();
  const renew = () => void queries.invalidateQueries({ queryKey: ["alert-rules"] });
  const remove = useMutation({ mutationFn: (id: string) => api.deleteAlertRule(id), onSuccess: renew });
  const columns: Column<AlertRule>[] = [
    { id: "id", header: "Rule", value: ({ id }) => id },
    { id: "kind", header: "Fires when", value: ({ kind }) => kind.replace("_", " ") },
    { id: "metric", header: "Metric", value: ({ metric }) => metricLabel(metric) },
    {
      id: "path",
      header: "Path",
      value: ({ source_node, destination_node }) => `${source_node ?? "any"} → ${destination_node ?? "any"}`,
    },
    {
      id: "threshold",
      header: "Threshold",
      align: "right",
      value: ({ threshold }) => threshold,
      cell: thresholdWords,
    },
    {
      id: "for",
      header: "For",
      align: "right",
      value: ({ for_s }) => for_s,
      cell: ({ for_s }) => `${for_s} s`,
    },
    { id: "description", header: "Description", value: ({ description }) => description || null },
    {
      id: "action",
      header: "Action",
      value: () => null,
      cell: ({ id }) =>
        mayChange ? (
          <Button
            size="compact-sm"
            variant="default"
            aria-label={`Remove the rule ${id}`}
            loading={remove.isPending && remove.variables === id}
            onClick={() => {
              remove.mutate(id);
            }}
          >
            Remove
          </Button>
        ) : null,
    },
  ];
  return (
    <>
      {remove.isError ? <Failed error={remove.error} /> : null}
      <Fetched query={rules} what="rules">
        {(items) => (
          <DataTable
            label="Alert rules"
            rows={items}
            columns={columns}
            rowKey={({ id }) => id}
            empty="No alert rules."
          />
        )}
      </Fetched>
      <Drawer
        opened={open}
        onClose={onClose}
        title="New alert rule"
        position="right"
        closeButtonProps={{ "aria-label": "Close the form" }}
      >
        <RuleForm
          onStated={() => {
            onClose();
            renew();
          }}
        />
      </Drawer>
    </>
  );
}
