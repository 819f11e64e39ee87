/** Next hops and neighbouring domains, as the authority tells them to the elements. */
import { Textarea, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "../../api/client";
import type { NextHop, Peer } from "../../api/types";
import type { Column } from "../../shared/DataTable";
import { EditableTable } from "./EditableTable";
import { Stated } from "./Stated";
import { pairsOf, pairsText } from "./trust";

const HOPS: Column<NextHop>[] = [
  { id: "element", header: "Element", value: ({ element }) => element },
  { id: "prefix", header: "Towards", value: ({ prefix }) => prefix },
  { id: "next", header: "Next", value: ({ next_element }) => next_element },
  { id: "source", header: "Source", value: ({ source }) => source },
  { id: "shim", header: "Shim address", value: ({ shim_address }) => shim_address },
];

const PEERS: Column<Peer>[] = [
  { id: "domain", header: "Domain", value: ({ domain }) => domain },
  { id: "url", header: "Authority", value: ({ url }) => url },
  {
    id: "pairs",
    header: "Pairs",
    value: ({ pairs }) => pairs.map((one) => one.join(" > ")).join(", ") || null,
  },
  { id: "ca", header: "Fingerprint", value: ({ ca_sha256 }) => ca_sha256.slice(0, 16) },
];

export function Neighbours() {
  return (
    <>
      <EditableTable
        label="Next hops"
        queryKey={["next-hops"]}
        fetch={api.nextHops}
        columns={HOPS}
        name={({ element, prefix }) => `${element} towards ${prefix}`}
        empty="No next hop is known: the topology has no links, or no addresses of nodes."
        add="New next hop"
        editable
        form={(hop, done) => <HopForm hop={hop} onDone={done} />}
        removal={{
          verb: "Delete",
          offered: ({ source }) => source !== "topology",
          words: ({ element, prefix }) =>
            `${element} follows the topology towards ${prefix} again, within a minute.`,
          remove: (hop) => api.deleteNextHop(hop),
        }}
      />
      <EditableTable
        label="Neighbouring domains"
        queryKey={["peers"]}
        fetch={api.peers}
        columns={PEERS}
        name={({ domain }) => domain}
        empty="No neighbouring domain is entered."
        add="New neighbouring domain"
        editable
        form={(peer, done) => <PeerForm peer={peer} onDone={done} />}
        removal={{
          verb: "Delete",
          words: ({ domain }) => `Certificates of ${domain} are believed no more, and its border keys end.`,
          remove: ({ domain }) => api.deletePeer(domain),
        }}
      />
    </>
  );
}

function HopForm({ hop, onDone }: { hop: NextHop | null; onDone: () => void }) {
  const form = useForm({
    initialValues: {
      element: hop?.element ?? "",
      network: hop?.prefix ?? "",
      next_element: hop?.next_element ?? "",
      shim_address: hop?.shim_address ?? "",
    },
    validate: {
      element: (value) => (value ? null : "Give the element whose next hop it is"),
      network: (value) => (/^[0-9a-fA-F.:]+\/\d+$/.test(value) ? null : "Give a prefix, such as 10.9.0.0/16"),
      next_element: (value) => (value ? null : "Give the next element"),
    },
  });
  return (
    <Stated
      form={form}
      put={({ element, network, next_element, shim_address }) =>
        api.putNextHop({ element, prefix: network }, { next_element, shim_address: shim_address || null })
      }
      onDone={onDone}
    >
      <TextInput label="Element" required disabled={hop !== null} {...form.getInputProps("element")} />
      <TextInput label="Towards" required disabled={hop !== null} {...form.getInputProps("network")} />
      <TextInput label="Next element" required {...form.getInputProps("next_element")} />
      <TextInput
        label="Shim address"
        description="Where the next element takes the UDP shim"
        {...form.getInputProps("shim_address")}
      />
    </Stated>
  );
}

function PeerForm({ peer, onDone }: { peer: Peer | null; onDone: () => void }) {
  const form = useForm({
    initialValues: {
      domain: peer?.domain ?? "",
      url: peer?.url ?? "https://",
      ca_pem: "",
      pairs: pairsText(peer?.pairs ?? []),
    },
    validate: {
      domain: (value) => (value ? null : "Give the name of the domain"),
      ca_pem: (value) =>
        value.includes("BEGIN CERTIFICATE") ? null : "Paste the certificate of its authority",
      pairs: (value) => (pairsOf(value) ? null : "One pair in each line: sender receiver"),
    },
  });
  return (
    <Stated
      form={form}
      put={({ domain, url, ca_pem, pairs }) =>
        api.putPeer(domain, { url, ca_pem, pairs: pairsOf(pairs) ?? [] })
      }
      onDone={onDone}
    >
      <TextInput label="Domain" required disabled={peer !== null} {...form.getInputProps("domain")} />
      <TextInput label="Address of its authority" required {...form.getInputProps("url")} />
      <Textarea
        label="Certificate of its authority"
        description="PEM, from its operator over a way that you trust"
        required
        autosize
        minRows={3}
        maxRows={10}
        {...form.getInputProps("ca_pem")}
      />
      <Textarea
        label="Pairs"
        description="One in each line, sender and receiver: edge border@example.net"
        autosize
        minRows={2}
        {...form.getInputProps("pairs")}
      />
    </Stated>
  );
}
