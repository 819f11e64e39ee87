/** Who may ask for what, how old keys are, whose certificates hold, and what was refused. */
import { Button, Group, Modal, SimpleGrid, Stack, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { Authorisation } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { Figure } from "../../shared/Figure";
import { useMay, useNow } from "../../shared/hooks";
import { Failed, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { State } from "../../shared/State";
import { formatAge, formatRate } from "../../shared/units";
import { detailWords } from "../audit/detail";
import { Neighbours } from "./Neighbours";
import { Nodes } from "./Nodes";
import { Policies } from "./Policies";
import {
  certificatesOf,
  type Held,
  keysOf,
  reasonWords,
  refusalsOf,
  type RefusedSignals,
  refusedSignalsOf,
} from "./trust";

const iso = (ms: number) => new Date(ms).toISOString();
const until = (ms: number) =>
  new Date(ms).toLocaleString("en-GB", { dateStyle: "short", timeStyle: "short" });

export function SecurityPage() {
  const authorisations = useQuery({
    queryKey: ["authorisations"],
    queryFn: api.authorisations,
    refetchInterval: 10_000,
  });
  const operator = useMay("operator", "admin");
  return (
    <Stack>
      <PageHeader title="Security" fetchedAt={authorisations.dataUpdatedAt}>
        A rate comes from an authority that knows who asks. Without an authorisation a flow gets the free
        level.
      </PageHeader>
      {operator ? (
        <>
          <Nodes />
          <Neighbours />
          <Policies />
          <Trust />
        </>
      ) : null}
      <Fetched query={authorisations} what="authorisations">
        {(items) => <Authorisations items={items} />}
      </Fetched>
    </Stack>
  );
}

function Authorisations({ items }: { items: Authorisation[] }) {
  const mayRevoke = useMay("application", "operator", "admin");
  const queries = useQueryClient();
  const [revoking, setRevoking] = useState<Authorisation | null>(null);
  const revoke = useMutation({
    mutationFn: (id: string) => api.deleteAuthorisation(id),
    onSuccess: () => {
      setRevoking(null);
      void queries.invalidateQueries({ queryKey: ["authorisations"] });
    },
  });
  const columns: Column<Authorisation>[] = [
    { id: "owner", header: "Application", value: ({ owner }) => owner },
    { id: "address", header: "Address", value: ({ client_address }) => client_address },
    { id: "service", header: "Service", value: ({ service }) => service },
    {
      id: "rate",
      header: "Up to",
      align: "right",
      value: ({ max_guaranteed_bps }) => max_guaranteed_bps,
      cell: ({ max_guaranteed_bps }) => formatRate(max_guaranteed_bps),
    },
    { id: "priority", header: "Priority", align: "right", value: ({ max_priority }) => max_priority },
    {
      id: "expires",
      header: "Until",
      align: "right",
      value: ({ expires_at_us }) => expires_at_us,
      cell: ({ expires_at_us }) => until(expires_at_us / 1000),
    },
    {
      id: "action",
      header: "Action",
      value: () => null,
      cell: (one) =>
        mayRevoke ? (
          <Button
            size="compact-sm"
            variant="default"
            aria-label={`Take back ${one.owner}'s authorisation ${one.id}`}
            onClick={() => {
              setRevoking(one);
            }}
          >
            Take back
          </Button>
        ) : null,
    },
  ];
  return (
    <>
      <DataTable
        label="Authorisations"
        rows={items}
        columns={columns}
        rowKey={({ id }) => id}
        empty="Nobody is authorised now: every flow gets the free level."
      />
      <Modal
        opened={revoking !== null}
        onClose={() => {
          setRevoking(null);
        }}
        title="Take this authorisation back?"
        closeButtonProps={{ "aria-label": "Keep it" }}
      >
        <Stack>
          <Text size="sm">
            Flows of {revoking?.client_address} that run under it fall back to the free level within a poll of
            the elements.
          </Text>
          {revoke.isError ? <Failed error={revoke.error} /> : null}
          <Group justify="flex-end">
            <Button
              color="red.9"
              loading={revoke.isPending}
              onClick={() => {
                if (revoking) revoke.mutate(revoking.id);
              }}
            >
              Take back
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}

function heldColumns(now: number, what: string, number: string): Column<Held>[] {
  const state = (held: Held) =>
    held.revoked ? "revoked" : held.expires !== null && held.expires < now ? "ran out" : "holds";
  return [
    { id: "subject", header: what, value: ({ subject }) => subject },
    { id: "number", header: number, value: (held) => held.number },
    {
      id: "state",
      header: "State",
      value: state,
      cell: (held) => <State tone={state(held) === "holds" ? "good" : "bad"}>{state(held)}</State>,
    },
    {
      id: "since",
      header: "Made",
      align: "right",
      value: ({ since }) => since,
      cell: ({ since }) => formatAge(iso(since), now),
    },
    {
      id: "expires",
      header: "Until",
      align: "right",
      value: ({ expires }) => expires,
      cell: ({ expires }) => (expires === null ? "–" : until(expires)),
    },
  ];
}

const REFUSED: Column<RefusedSignals>[] = [
  { id: "node", header: "Node", value: ({ node }) => node },
  { id: "reason", header: "Reason", value: ({ reason }) => reason },
  { id: "words", header: "In words", value: ({ reason }) => reasonWords(reason) },
  { id: "count", header: "Signals", align: "right", value: ({ count }) => count },
];

/** What the authority notes of keys, certificates, and who was refused. */
const TRUST = ["key", "certificate", "next-hop"];

/** For operators alone: the gateway refuses others. */
function Trust() {
  const audit = useQuery({
    queryKey: ["audit", ...TRUST],
    // Asked for by their kind: keys that are renewed all the time would crowd out certificates.
    queryFn: async () => {
      const found = await Promise.all(TRUST.map((action) => api.audit(action)));
      return found.flat().sort((a, b) => b.at.localeCompare(a.at));
    },
    refetchInterval: 10_000,
  });
  const nodes = useQuery({ queryKey: ["node-keys"], queryFn: api.nodeKeys, refetchInterval: 10_000 });
  const now = useNow(5000);
  return (
    <Fetched query={audit} what="keys and certificates">
      {(records) => {
        const [keys, certificates, refusals] = [
          keysOf(records),
          certificatesOf(records),
          refusalsOf(records),
        ];
        const refused = refusedSignalsOf(nodes.data ?? []);
        const oldest = keys.reduce((least, key) => Math.min(least, key.since), Infinity);
        return (
          <>
            <SimpleGrid cols={{ base: 2, sm: 4 }} spacing="sm">
              <Figure
                label="Keys in use"
                value={String(keys.length)}
                note="one for each pair of neighbours"
              />
              <Figure
                label="Oldest key"
                value={Number.isFinite(oldest) ? formatAge(iso(oldest), now) : "–"}
              />
              <Figure
                label="Certificates"
                value={String(certificates.filter(({ revoked }) => !revoked).length)}
                note={`${certificates.filter(({ revoked }) => revoked).length} revoked`}
              />
              <Figure
                label="Signals refused"
                value={String(refused.reduce((total, { count }) => total + count, 0))}
                note="since the agents started"
              />
            </SimpleGrid>
            <DataTable
              label="Signalling keys"
              rows={keys}
              columns={heldColumns(now, "From and to", "Generation")}
              rowKey={({ subject }) => subject}
              empty="No key was made in what the audit here reaches back to."
              minWidth={560}
            />
            <DataTable
              label="Certificates"
              rows={certificates}
              columns={heldColumns(now, "Identity", "Serial")}
              rowKey={({ subject }) => subject}
              empty="No certificate was issued in what the audit here reaches back to."
              minWidth={560}
            />
            <DataTable
              label="Refused signals"
              rows={refused}
              columns={REFUSED}
              rowKey={({ node, reason }) => `${node} ${reason}`}
              empty={nodes.error?.message ?? "No node has refused a signal since its agent started."}
              minWidth={560}
            />
            <DataTable
              label="Refusals of the authority"
              rows={refusals}
              columns={[
                { id: "at", header: "When", value: ({ at }) => at, cell: ({ at }) => formatAge(at, now) },
                { id: "actor", header: "Told by", value: ({ actor }) => actor },
                { id: "action", header: "What", value: ({ action }) => action },
                { id: "subject", header: "Whom", value: ({ subject }) => subject },
                { id: "detail", header: "In detail", value: ({ detail }) => detailWords(detail) || null },
              ]}
              rowKey={({ id }) => id}
              empty="Nothing was refused."
            />
          </>
        );
      }}
    </Fetched>
  );
}
