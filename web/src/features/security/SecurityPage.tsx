/** Authorisations, ages of keys, validity of certificates, and refused signals. */
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
import { Quotas } from "./Quotas";
import { Records } from "./Records";
import { Tenants } from "./Tenants";
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
        The authority decides which address may request rates in band. A flow without an authorisation is best
        effort.
      </PageHeader>
      {operator ? (
        <>
          <Tenants />
          <Quotas />
          <Nodes />
          <Neighbours />
          <Policies />
          <Records />
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
            aria-label={`Revoke ${one.owner}'s authorisation ${one.id}`}
            onClick={() => {
              setRevoking(one);
            }}
          >
            Revoke
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
        empty="No authorisations: every flow that requests a rate in band is best effort."
      />
      <Modal
        opened={revoking !== null}
        onClose={() => {
          setRevoking(null);
        }}
        title="Revoke this authorisation?"
        closeButtonProps={{ "aria-label": "Cancel" }}
      >
        <Stack>
          <Text size="sm">
            Flows of {revoking?.client_address} under this authorisation become best effort at the elements'
            next poll.
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
              Revoke
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}

function heldColumns(now: number, what: string, number: string): Column<Held>[] {
  const state = (held: Held) =>
    held.revoked ? "revoked" : held.expires !== null && held.expires < now ? "expired" : "valid";
  return [
    { id: "subject", header: what, value: ({ subject }) => subject },
    { id: "number", header: number, value: (held) => held.number },
    {
      id: "state",
      header: "State",
      value: state,
      cell: (held) => <State tone={state(held) === "valid" ? "good" : "bad"}>{state(held)}</State>,
    },
    {
      id: "since",
      header: "Created",
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
  { id: "words", header: "Meaning", value: ({ reason }) => reasonWords(reason) },
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
                note="one per ordered pair of neighbours"
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
              columns={heldColumns(now, "Elements", "Generation")}
              rowKey={({ subject }) => subject}
              empty="No key was created within the audit records kept here."
              minWidth={560}
            />
            <DataTable
              label="Certificates"
              rows={certificates}
              columns={heldColumns(now, "Identity", "Serial")}
              rowKey={({ subject }) => subject}
              empty="No certificate was issued within the audit records kept here."
              minWidth={560}
            />
            <DataTable
              label="Refused signals"
              rows={refused}
              columns={REFUSED}
              rowKey={({ node, reason }) => `${node} ${reason}`}
              empty={nodes.error?.message ?? "No signals refused since the agents started."}
              minWidth={560}
            />
            <DataTable
              label="Refusals of the authority"
              rows={refusals}
              columns={[
                { id: "at", header: "Time", value: ({ at }) => at, cell: ({ at }) => formatAge(at, now) },
                { id: "actor", header: "Reported by", value: ({ actor }) => actor },
                { id: "action", header: "Action", value: ({ action }) => action },
                { id: "subject", header: "Subject", value: ({ subject }) => subject },
                { id: "detail", header: "Details", value: ({ detail }) => detailWords(detail) || null },
              ]}
              rowKey={({ id }) => id}
              empty="No refusals."
            />
          </>
        );
      }}
    </Fetched>
  );
}
