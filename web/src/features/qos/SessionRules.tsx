/** Session rules: what nodes ask in band for every session of a kind; switches to enable and to expedite them. */
import { Stack, Switch, Text, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { api } from "../../api/client";
import type { SessionRule, SessionRuleBody } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { useMay } from "../../shared/hooks";
import { Failed, Fetched } from "../../shared/Notices";
import { EditableTable } from "../security/EditableTable";
import { SessionRuleForm } from "./SessionRuleForm";
import { asks, faults, isExpedited, selectorText, stated, whichNodes, withExpedited } from "./sessionRules";

const KEY = ["session-rules"];
const title = ({ name, id }: SessionRule) => name || id;

const FACTS: Column<SessionRule>[] = [
  { id: "rule", header: "Rule", value: title },
  { id: "class", header: "Class", value: ({ session_class }) => session_class },
  {
    id: "sessions-of",
    header: "Sessions with",
    value: ({ selectors }) => selectors.map(selectorText).join(" or "),
  },
  { id: "asks", header: "Each asks", value: asks },
  { id: "nodes", header: "Nodes", value: whichNodes },
  { id: "sessions", header: "Running", align: "right", value: ({ sessions }) => sessions },
  {
    id: "expedited-sessions",
    header: "Expedited now",
    align: "right",
    value: ({ expedited_sessions }) => expedited_sessions,
  },
  { id: "faults", header: "Faults", value: faults },
];

interface Change {
  rule: SessionRule;
  body: SessionRuleBody;
}

export function SessionRules() {
  const mayChange = useMay("operator", "admin");
  const queries = useQueryClient();
  const put = useMutation({
    mutationFn: ({ rule, body }: Change) => api.putSessionRule(rule.id, body, rule.revision),
    onSettled: () => void queries.invalidateQueries({ queryKey: KEY }),
  });
  const switches: Column<SessionRule>[] = [
    {
      id: "enabled",
      header: "Enabled",
      value: ({ enabled }) => (enabled ? "yes" : "no"),
      cell: (rule) => (
        <Switch
          aria-label={`Enable ${title(rule)}`}
          checked={rule.enabled}
          disabled={!mayChange || put.isPending}
          onChange={(event) => {
            put.mutate({ rule, body: { ...stated(rule), enabled: event.currentTarget.checked } });
          }}
        />
      ),
    },
    {
      id: "expedited",
      header: "Expedited",
      value: (rule) => (isExpedited(rule) ? "yes" : "no"),
      cell: (rule) => (
        <Switch
          aria-label={`Expedite ${title(rule)}`}
          checked={isExpedited(rule)}
          disabled={!mayChange || put.isPending || rule.guaranteed_bps === 0}
          onChange={(event) => {
            put.mutate({ rule, body: withExpedited(rule, event.currentTarget.checked) });
          }}
        />
      ),
    },
  ];
  const columns = [...FACTS.slice(0, 1), ...switches, ...FACTS.slice(1)];
  return (
    <Stack gap="xs" component="section" aria-label="Sessions in band">
      <Title order={2} size="h4">
        Sessions in band
      </Title>
      <Text size="sm" c="dimmed">
        Every session that such a rule matches asks the nodes on its path for a rate of its own, within one
        round trip. Expedited sessions go before all others, up to their guaranteed rate.
      </Text>
      {put.isError ? <Failed error={put.error} /> : null}
      {mayChange ? (
        <EditableTable
          label="Session rules"
          queryKey={KEY}
          fetch={api.sessionRules}
          columns={columns}
          name={title}
          empty="No session rules."
          add="New session rule"
          editable
          form={(rule, done) => <SessionRuleForm rule={rule} onDone={done} />}
          removal={{
            verb: "Delete",
            offered: ({ built_in }) => !built_in,
            words: () => "Its sessions give their rates back and go on as ordinary traffic.",
            remove: ({ id }) => api.deleteSessionRule(id),
          }}
        />
      ) : (
        <Seen columns={columns} />
      )}
    </Stack>
  );
}

function Seen({ columns }: { columns: Column<SessionRule>[] }) {
  const rules = useQuery({ queryKey: KEY, queryFn: api.sessionRules, refetchInterval: 10_000 });
  return (
    <Fetched query={rules} what="the session rules">
      {(rows) => (
        <DataTable
          label="Session rules"
          rows={rows}
          columns={columns}
          rowKey={({ id }) => id}
          empty="No session rules."
          minWidth={900}
        />
      )}
    </Fetched>
  );
}
