/** The form of a group of pairs, new or changed. */
import { TagsInput, Textarea, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "../../api/client";
import type { PairGroup } from "../../api/types";
import { useNodes } from "../../api/useLive";
import { Stated } from "../security/Stated";
import { pairsOf, pairText } from "./pairs";

export function PairGroupForm({ group, onDone }: { group: PairGroup | null; onDone: () => void }) {
  const nodes = useNodes();
  const names = (nodes.data ?? []).map(({ id }) => id);
  const form = useForm({
    initialValues: {
      id: group?.id ?? "",
      description: group?.description ?? "",
      source_nodes: group?.source_nodes ?? [],
      destination_nodes: group?.destination_nodes ?? [],
      pairs: group?.pairs.map(pairText).join("\n") ?? "",
    },
    validate: {
      id: (value) => (value ? null : "Give the group a name, such as branches"),
      pairs: (value) => (pairsOf(value) ? null : "One pair a line, sender and receiver, such as alpha,delta"),
    },
  });
  return (
    <Stated
      form={form}
      put={({ id, pairs, ...body }) =>
        api.putPairGroup(id, { ...body, pairs: pairsOf(pairs) ?? [] }, group?.revision ?? null)
      }
      onDone={onDone}
    >
      <TextInput label="Group" required disabled={group !== null} {...form.getInputProps("id")} />
      <TextInput label="Description" maxLength={200} {...form.getInputProps("description")} />
      <TagsInput
        label="Sources"
        description="None: any node"
        data={names}
        {...form.getInputProps("source_nodes")}
      />
      <TagsInput
        label="Destinations"
        description="Every source with every destination; none: any node"
        data={names}
        {...form.getInputProps("destination_nodes")}
      />
      <Textarea
        label="Single pairs"
        description="Besides those, or alone: one a line, such as alpha,delta"
        rows={4}
        {...form.getInputProps("pairs")}
      />
    </Stated>
  );
}
