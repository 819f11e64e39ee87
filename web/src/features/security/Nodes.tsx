/** Nodes with their certificates and keys, and the tokens that wait to be used. */
import { api } from "../../api/client";
import type { Enrolment } from "../../api/types";
import type { Column } from "../../shared/DataTable";
import { State, type Tone } from "../../shared/State";
import { EditableTable } from "./EditableTable";
import { EnrolForm } from "./EnrolForm";
import { nodesOf, type TrustedNode } from "./trust";

const until = (moment: string | null | undefined) =>
  moment ? new Date(moment).toLocaleString("en-GB", { dateStyle: "short", timeStyle: "short" }) : "–";

const TONES: Record<TrustedNode["state"], Tone> = {
  enrolled: "good",
  expired: "bad",
  revoked: "bad",
  "not enrolled": "off",
};

const agentWords = ({ keys }: TrustedNode) => (keys === null ? "no agent" : keys.stale ? "silent" : "heard");

const NODES: Column<TrustedNode>[] = [
  { id: "node", header: "Node", value: ({ node }) => node },
  {
    id: "state",
    header: "State",
    value: ({ state }) => state,
    cell: ({ state }) => <State tone={TONES[state]}>{state}</State>,
  },
  {
    id: "until",
    header: "Certificate until",
    align: "right",
    value: ({ identity }) => identity?.certificate_expires_at ?? null,
    cell: ({ identity }) => until(identity?.certificate_expires_at),
  },
  {
    id: "epoch",
    header: "Key epoch",
    align: "right",
    value: ({ keys }) => keys?.key_epoch || null,
    cell: ({ keys }) => (keys?.key_epoch ? keys.key_epoch : "no key"),
  },
  { id: "kernel", header: "Kernel", value: ({ keys }) => keys?.kernel_release ?? null },
  {
    id: "agent",
    header: "Agent",
    value: agentWords,
    cell: (one) => (
      <State tone={one.keys === null ? "off" : one.keys.stale ? "bad" : "good"}>{agentWords(one)}</State>
    ),
  },
  { id: "reason", header: "Remark", value: ({ identity }) => identity?.reason || null },
];

const WAITING: Column<Enrolment>[] = [
  { id: "identity", header: "For", value: ({ identity }) => identity },
  {
    id: "state",
    header: "State",
    value: ({ state }) => state,
    cell: ({ state }) => <State tone={state === "open" ? "busy" : "off"}>{state}</State>,
  },
  { id: "by", header: "Made by", value: ({ created_by }) => created_by },
  {
    id: "until",
    header: "Token until",
    align: "right",
    value: ({ expires_at }) => expires_at,
    cell: ({ expires_at }) => until(expires_at),
  },
  {
    id: "used",
    header: "Used",
    align: "right",
    value: ({ used_at }) => used_at,
    cell: ({ used_at }) => until(used_at),
  },
];

async function fetchNodes(): Promise<TrustedNode[]> {
  const [identities, keys] = await Promise.all([api.identities(), api.nodeKeys()]);
  return nodesOf(identities, keys);
}

export function Nodes() {
  return (
    <>
      <EditableTable
        label="Nodes"
        queryKey={["identities"]}
        fetch={fetchNodes}
        columns={NODES}
        name={({ node }) => node}
        empty="No node is enrolled, and no agent has reported yet."
        add="Enrol a node"
        form={(_, done) => <EnrolForm onDone={done} />}
        removal={{
          verb: "Revoke",
          offered: ({ state }) => state === "enrolled" || state === "expired",
          words: ({ node }) =>
            `The authority believes ${node} no more, its keys end, and its neighbours refuse its signals within` +
            " seconds. It can be enrolled again with a new token.",
          remove: ({ node }, reason) => api.revoke({ identity: `node/${node}`, reason }),
          reason: true,
        }}
      />
      <EditableTable
        label="Enrolments"
        queryKey={["enrolments"]}
        fetch={api.enrolments}
        columns={WAITING}
        name={({ identity, id }) => `${identity} (${id})`}
        empty="No token was made lately."
        removal={{
          verb: "Withdraw",
          offered: ({ state }) => state === "open",
          words: ({ identity }) => `The token of ${identity} enrols nobody any more.`,
          remove: ({ id }) => api.withdrawEnrolment(id),
        }}
      />
    </>
  );
}
