/** Which node runs which end of a tunnel, and what the nodes' proxies take; operators change both here. */
import { NumberInput, Select, Textarea, TextInput, Title } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "../../api/client";
import type { NetworkNode, TunnelEnd } from "../../api/types";
import { useNodes } from "../../api/useLive";
import type { Column } from "../../shared/DataTable";
import { EditableTable } from "../security/EditableTable";
import { Stated } from "../security/Stated";
import {
  applicationsOf,
  applicationsText,
  classesOf,
  classesText,
  type EndRow,
  endRows,
  type ProxiedRow,
  proxiedRows,
  withEnd,
  withoutEnd,
  withProxied,
  wordsOf,
} from "./ends";

const ROLES = ["origin", "destination"] as const;
const CONGESTION = ["cubic", "reno"] as const;
const MODES = [
  { value: "same-ports", label: "same ports" },
  { value: "new-ports", label: "new ports: the node tracks connections" },
];

const joined = (words: string[] | undefined) => words?.join(", ") || null;

const ENDS: Column<EndRow>[] = [
  { id: "node", header: "Node", value: ({ node }) => node.id },
  { id: "tunnel", header: "Tunnel", value: ({ end }) => end.tunnel },
  { id: "role", header: "Role", value: ({ end }) => end.role },
  { id: "peer", header: "Other end", value: ({ end }) => end.peer_node },
  { id: "at", header: "Destination", value: ({ end }) => `${end.address} port ${end.port}` },
  { id: "device", header: "Device", value: ({ end }) => end.interface },
  { id: "prefixes", header: "Networks", value: ({ end }) => joined(end.prefixes) },
  {
    id: "classes",
    header: "Classes",
    value: ({ end }) => classesText(end.classes).split("\n").join(", ") || null,
  },
  {
    id: "applications",
    header: "Applications",
    value: ({ end }) => applicationsText(end.applications).split("\n").join(", ") || null,
  },
];

const PROXIED: Column<ProxiedRow>[] = [
  { id: "node", header: "Node", value: ({ node }) => node.id },
  { id: "interfaces", header: "Interfaces", value: ({ proxied }) => joined(proxied.interfaces) },
  { id: "hosts", header: "Hosts", value: ({ proxied }) => joined(proxied.prefixes) ?? "all" },
  {
    id: "mode",
    header: "Ports",
    value: ({ proxied }) => (proxied.mode === "new-ports" ? "new" : "the hosts' own"),
  },
];

export function NodeEnds() {
  return (
    <>
      <Title order={2} size="h4">
        Ends on nodes
      </Title>
      <EditableTable
        label="Tunnel ends"
        queryKey={["nodes", "ends"]}
        fetch={() => api.nodes().then(endRows)}
        columns={ENDS}
        name={({ node, end }) => `the end of ${end.tunnel} on ${node.id}`}
        empty="No node runs an end of a tunnel."
        add="New tunnel end"
        editable
        form={(row, done) => <EndForm row={row} onDone={done} />}
        removal={{
          verb: "Delete",
          words: ({ node, end }) => `${node.id} ends it: packets of ${end.tunnel} take the ordinary route.`,
          remove: ({ node, end }) => api.putNode(node.id, withoutEnd(node, end.tunnel), node.revision),
        }}
      />
      <Title order={2} size="h4">
        Proxied traffic
      </Title>
      <EditableTable
        label="Proxied traffic"
        queryKey={["nodes", "proxied"]}
        fetch={() => api.nodes().then(proxiedRows)}
        columns={PROXIED}
        name={({ node }) => `proxied traffic of ${node.id}`}
        empty="No node's proxy takes connections."
        add="New proxied traffic"
        editable
        form={(row, done) => <ProxiedForm row={row} onDone={done} />}
        removal={{
          verb: "Delete",
          words: ({ node }) => `New connections pass ${node.id} without its proxy; open ones go on.`,
          remove: ({ node }) =>
            api.putNode(
              node.id,
              withProxied(node, { interfaces: [], prefixes: [], mode: "same-ports" }),
              node.revision,
            ),
        }}
      />
    </>
  );
}

const nodeOf = (nodes: NetworkNode[], id: string): NetworkNode => {
  const found = nodes.find((one) => one.id === id);
  if (!found) throw new Error(`There is no node ${id}.`);
  return found;
};

function EndForm({ row, onDone }: { row: EndRow | null; onDone: () => void }) {
  const nodes = useNodes().data ?? [];
  const names = nodes.map(({ id }) => id);
  const form = useForm({
    initialValues: {
      node: row?.node.id ?? "",
      tunnel: row?.end.tunnel ?? "",
      role: row?.end.role ?? "origin",
      peer_node: row?.end.peer_node ?? "",
      address: row?.end.address ?? "",
      port: row?.end.port ?? 7400,
      interface: row?.end.interface ?? "chart-itm0",
      prefixes: row?.end.prefixes?.join(" ") ?? "",
      classes: classesText(row?.end.classes),
      applications: applicationsText(row?.end.applications),
      period_ms: row?.end.period_ms ?? 1000,
      congestion: row?.end.congestion ?? "cubic",
    },
    validate: {
      node: (value) => (value ? null : "Choose the node that runs the end"),
      tunnel: (value) => (value ? null : "Give the name of the tunnel"),
      peer_node: (value) => (value ? null : "Choose the node of the other end"),
      address: (value) => (value ? null : "Give the address of the destination, such as 10.0.0.6"),
      applications: (value) => (applicationsOf(value) ? null : "One in each line: NAME=FILE.so ARGUMENT"),
      classes: (value) => (classesOf(value) ? null : "One class in each line: NAME=WEIGHT:SELECTOR"),
    },
  });
  const origin = form.values.role === "origin";
  const put = (values: typeof form.values) => {
    const node = nodeOf(nodes, values.node);
    const end: TunnelEnd = {
      tunnel: values.tunnel,
      role: values.role,
      peer_node: values.peer_node,
      address: values.address,
      port: values.port,
      interface: values.interface,
      prefixes: origin ? wordsOf(values.prefixes) : [],
      classes: origin ? (classesOf(values.classes) ?? []) : [],
      period_ms: origin ? values.period_ms : null,
      congestion: origin ? values.congestion : null,
      applications: applicationsOf(values.applications, row?.end.applications) ?? [],
    };
    return api.putNode(node.id, withEnd(node, end), node.revision);
  };
  return (
    <Stated form={form} put={put} onDone={onDone}>
      <Select
        label="Node"
        required
        searchable
        data={names}
        disabled={row !== null}
        {...form.getInputProps("node")}
      />
      <TextInput label="Tunnel" required disabled={row !== null} {...form.getInputProps("tunnel")} />
      <Select label="Role" allowDeselect={false} data={ROLES} {...form.getInputProps("role")} />
      <Select
        label="Node of the other end"
        required
        searchable
        data={names}
        {...form.getInputProps("peer_node")}
      />
      <TextInput
        label="Address of the destination"
        description="The same at both ends"
        required
        {...form.getInputProps("address")}
      />
      <NumberInput label="Port" min={1} max={65_535} {...form.getInputProps("port")} />
      <TextInput label="Device" {...form.getInputProps("interface")} />
      <Textarea
        label="Applications"
        description="Traffic controllers of the node, one in each line: pacing=itm-aimd.so 5000000,100000,500000; with off before it: loaded, asked nothing"
        rows={2}
        {...form.getInputProps("applications")}
      />
      {origin ? (
        <>
          <TextInput
            label="Networks"
            description="Led into the tunnel: 192.0.2.0/24 198.51.100.0/24"
            {...form.getInputProps("prefixes")}
          />
          <Textarea
            label="Classes"
            description="One in each line: gold=3:from=10.1.0.0/16"
            rows={3}
            {...form.getInputProps("classes")}
          />
          <NumberInput
            label="Measurement period, ms"
            min={10}
            max={60_000}
            {...form.getInputProps("period_ms")}
          />
          <Select
            label="Congestion control"
            allowDeselect={false}
            data={CONGESTION}
            {...form.getInputProps("congestion")}
          />
        </>
      ) : null}
    </Stated>
  );
}

function ProxiedForm({ row, onDone }: { row: ProxiedRow | null; onDone: () => void }) {
  const nodes = useNodes().data ?? [];
  const form = useForm({
    initialValues: {
      node: row?.node.id ?? "",
      interfaces: row?.proxied.interfaces?.join(" ") ?? "",
      prefixes: row?.proxied.prefixes?.join(" ") ?? "",
      mode: row?.proxied.mode ?? "same-ports",
    },
    validate: {
      node: (value) => (value ? null : "Choose the node whose proxy it is"),
      interfaces: (value) => (wordsOf(value).length > 0 ? null : "Give the interfaces, such as eth1 eth2"),
    },
  });
  const put = ({ node: id, interfaces, prefixes, mode }: typeof form.values) => {
    const node = nodeOf(nodes, id);
    const proxied = { interfaces: wordsOf(interfaces), prefixes: wordsOf(prefixes), mode };
    return api.putNode(node.id, withProxied(node, proxied), node.revision);
  };
  return (
    <Stated form={form} put={put} onDone={onDone}>
      <Select
        label="Node"
        required
        searchable
        data={nodes.map(({ id }) => id)}
        disabled={row !== null}
        {...form.getInputProps("node")}
      />
      <TextInput
        label="Interfaces"
        description="Where connections come in, from the hosts and towards them"
        required
        {...form.getInputProps("interfaces")}
      />
      <TextInput label="Hosts" description="Networks; empty: all" {...form.getInputProps("prefixes")} />
      <Select label="Source ports" allowDeselect={false} data={MODES} {...form.getInputProps("mode")} />
    </Stated>
  );
}
