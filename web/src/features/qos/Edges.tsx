/** Interfaces at which nodes police what comes in from other domains. */
import { NumberInput, Select, Stack, Text, TextInput, Title } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "../../api/client";
import type { NodeBody } from "../../api/types";
import { useNodes } from "../../api/useLive";
import { type Column, DataTable } from "../../shared/DataTable";
import { useMay } from "../../shared/hooks";
import { Fetched } from "../../shared/Notices";
import { formatRate } from "../../shared/units";
import { EditableTable } from "../security/EditableTable";
import { Stated } from "../security/Stated";
import { type EdgeRow, edgeRows, withEdge, withoutEdge } from "./edges";

const EXCEED = [
  { value: "remark", label: "goes on as best effort" },
  { value: "drop", label: "is dropped" },
];

const COLUMNS: Column<EdgeRow>[] = [
  { id: "node", header: "Node", value: ({ node }) => node },
  { id: "interface", header: "Interface", value: (row) => row.interface },
  {
    id: "aggregate",
    header: "EF without a grant",
    align: "right",
    value: ({ aggregate_bps }) => aggregate_bps,
    cell: ({ aggregate_bps }) => (aggregate_bps ? formatRate(aggregate_bps) : "loses its mark"),
  },
  {
    id: "exceed",
    header: "Above the rate",
    value: ({ exceed }) => EXCEED.find(({ value }) => value === exceed)?.label ?? exceed,
  },
  {
    id: "depth",
    header: "Bucket depth",
    align: "right",
    value: ({ depth_ms }) => depth_ms,
    cell: ({ depth_ms }) => `${depth_ms} ms`,
  },
];

const name = (row: EdgeRow) => `${row.node} ${row.interface}`;

/** Reads the node again first, so that nothing else of it is undone. */
async function change(id: string, body: (node: Awaited<ReturnType<typeof api.node>>) => NodeBody) {
  const node = await api.node(id);
  return api.putNode(id, body(node), node.revision);
}

export function Edges() {
  const mayChange = useMay("operator", "admin");
  const nodes = useNodes();
  return (
    <Stack gap="xs" component="section" aria-label="Edges">
      <Title order={2} size="h4">
        Edges
      </Title>
      <Text size="sm" c="dimmed">
        An edge is an interface that another domain sends through. While its node enforces, each grant is held
        to its rate there, and expedited packets (EF) without a grant to what was agreed with that domain.
      </Text>
      {mayChange ? (
        <EditableTable
          label="Edges"
          queryKey={["nodes", "edges"]}
          fetch={() => api.nodes().then(edgeRows)}
          columns={COLUMNS}
          name={name}
          empty="No edges: incoming traffic is not policed."
          add="New edge"
          editable
          form={(edge, done) => (
            <EdgeForm edge={edge} nodes={(nodes.data ?? []).map(({ id }) => id)} onDone={done} />
          )}
          removal={{
            verb: "Delete",
            words: () => "What comes in there is no longer policed, and keeps its marks.",
            remove: (row) => change(row.node, (node) => withoutEdge(node, row.interface)),
          }}
        />
      ) : (
        <Fetched query={nodes} what="the edges">
          {(data) => (
            <DataTable
              label="Edges"
              rows={edgeRows(data)}
              columns={COLUMNS}
              rowKey={name}
              empty="No edges: incoming traffic is not policed."
              minWidth={560}
            />
          )}
        </Fetched>
      )}
    </Stack>
  );
}

interface FormProps {
  edge: EdgeRow | null;
  nodes: string[];
  onDone: () => void;
}

function EdgeForm({ edge, nodes, onDone }: FormProps) {
  const form = useForm({
    initialValues: {
      node: edge?.node ?? "",
      interface: edge?.interface ?? "",
      aggregate_mbit: ((edge?.aggregate_bps ?? 0) / 1e6) as number | string,
      exceed: edge?.exceed ?? "remark",
      depth_ms: (edge?.depth_ms ?? 100) as number | string,
    },
    validate: {
      node: (value) => (value ? null : "Choose the node"),
      interface: (value) =>
        /^[^\s/:]{1,15}$/.test(value) ? null : "Name the interface, such as eth1: 1 to 15 characters",
      depth_ms: (value) => (Number(value) >= 1 ? null : "At least 1 ms"),
    },
  });
  return (
    <Stated
      form={form}
      put={({ node, aggregate_mbit, depth_ms, exceed, ...stated }) =>
        change(node, (found) =>
          withEdge(found, {
            interface: stated.interface,
            aggregate_bps: Math.round(Number(aggregate_mbit) * 1e6),
            exceed: exceed === "drop" ? "drop" : "remark",
            depth_ms: Number(depth_ms),
          }),
        )
      }
      onDone={onDone}
    >
      <Select label="Node" data={nodes} required disabled={edge !== null} {...form.getInputProps("node")} />
      <TextInput label="Interface" required disabled={edge !== null} {...form.getInputProps("interface")} />
      <NumberInput
        label="EF without a grant"
        description="Agreed with the other domain; 0: such packets lose their mark"
        suffix=" Mb/s"
        min={0}
        {...form.getInputProps("aggregate_mbit")}
      />
      <Select
        label="What is above its rate"
        data={EXCEED}
        allowDeselect={false}
        {...form.getInputProps("exceed")}
      />
      <NumberInput
        label="Bucket depth"
        description="As time at the rate"
        suffix=" ms"
        min={1}
        max={65_535}
        {...form.getInputProps("depth_ms")}
      />
    </Stated>
  );
}
