/** The form of a mesh, new or changed. */
import { NumberInput, Switch, TagsInput, Textarea, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "../../api/client";
import type { SensingMesh, SensingMeshBody } from "../../api/types";
import { tagsOf, tagTexts } from "../qos/sessionRules";
import { Stated } from "../security/Stated";
import { sensorsOf, sensorText } from "./mesh";

interface Values extends Record<string, unknown> {
  id: string;
  description: string;
  nodes: string[];
  node_tags: string[];
  sensors: string;
  budget_share: number | string;
  priority: number | string;
  enabled: boolean;
  active: boolean;
}

const bodyOf = (values: Values): SensingMeshBody => ({
  description: values.description,
  nodes: values.nodes,
  node_tags: tagsOf(values.node_tags),
  sensors: sensorsOf(values.sensors) ?? [],
  budget_share: Number(values.budget_share) / 100,
  priority: Number(values.priority),
  enabled: values.enabled,
  active: values.active,
});

export function MeshForm({ mesh, onDone }: { mesh: SensingMesh | null; onDone: () => void }) {
  const form = useForm<Values>({
    initialValues: {
      id: mesh?.id ?? "",
      description: mesh?.description ?? "",
      nodes: mesh?.nodes ?? [],
      node_tags: tagTexts(mesh?.node_tags ?? {}),
      sensors: mesh?.sensors.map(sensorText).join("\n") ?? "ping=10",
      budget_share: (mesh?.budget_share ?? 0.005) * 100,
      priority: mesh?.priority ?? 0,
      enabled: mesh?.enabled ?? true,
      active: mesh?.active ?? true,
    },
    validate: {
      id: (value) => (value ? null : "Give the mesh a name, such as sites"),
      sensors: (value) => (sensorsOf(value) ? null : "One sensor a line with its period, such as ping=10"),
    },
  });
  return (
    <Stated
      form={form}
      put={(values) => api.putSensingMesh(values.id, bodyOf(values), mesh?.revision ?? null)}
      onDone={onDone}
    >
      <TextInput label="Mesh" required disabled={mesh !== null} {...form.getInputProps("id")} />
      <TextInput label="Description" {...form.getInputProps("description")} />
      <TagsInput
        label="Nodes"
        description="None and no tags: every node with a sensor pod"
        {...form.getInputProps("nodes")}
      />
      <TagsInput
        label="Nodes with tags"
        description="Such as site=lab; those with all of them are members too"
        {...form.getInputProps("node_tags")}
      />
      <Textarea
        label="Sensors"
        description="One a line: sensor=seconds, then parameters, such as ping=10,count=5"
        required
        rows={3}
        {...form.getInputProps("sensors")}
      />
      <NumberInput
        label="Budget"
        description="Most of each link that probes and answers take"
        suffix=" %"
        min={0.001}
        max={1}
        step={0.1}
        decimalScale={3}
        {...form.getInputProps("budget_share")}
      />
      <NumberInput label="Priority" min={0} max={255} {...form.getInputProps("priority")} />
      <Switch
        label="Inference chooses pairs"
        description="Where the budget has no room for all of them"
        {...form.getInputProps("active", { type: "checkbox" })}
      />
      <Switch label="Enabled" {...form.getInputProps("enabled", { type: "checkbox" })} />
    </Stated>
  );
}
