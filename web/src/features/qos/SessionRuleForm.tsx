/** The form of a session rule, new or changed. */
import { NumberInput, Select, Switch, TagsInput, Textarea, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "../../api/client";
import type { SessionRule, SessionRuleBody } from "../../api/types";
import { Stated } from "../security/Stated";
import { selectorsOf, selectorText, tagsOf, tagTexts } from "./sessionRules";

const CLASSES: SessionRuleBody["session_class"][] = ["voice", "video", "data"];
const SERVICES: SessionRuleBody["service"][] = ["available", "guaranteed", "maximum", "variable"];
const GUARANTEES = ["guaranteed", "variable"];

const bps = (kbit: number | string) => Math.round(Number(kbit) * 1000);

interface Values extends Record<string, unknown> {
  id: string;
  name: string;
  session_class: SessionRuleBody["session_class"];
  selectors: string;
  service: SessionRuleBody["service"];
  guaranteed_bps: number | string;
  available_bps: number | string;
  delay_class: number | string;
  priority: number | string;
  burst_tolerance: number | string;
  nodes: string[];
  node_tags: string[];
  enabled: boolean;
  authorised: boolean;
}

function bodyOf(values: Values): SessionRuleBody {
  const { service } = values;
  return {
    name: values.name,
    session_class: values.session_class,
    selectors: selectorsOf(values.selectors) ?? [],
    service,
    guaranteed_bps: GUARANTEES.includes(service) ? bps(values.guaranteed_bps) : 0,
    available_bps: service === "guaranteed" ? 0 : bps(values.available_bps),
    delay_class: Number(values.delay_class),
    priority: Number(values.priority),
    burst_tolerance: Number(values.burst_tolerance),
    nodes: values.nodes,
    node_tags: tagsOf(values.node_tags),
    enabled: values.enabled,
    authorised: values.authorised,
  };
}

export function SessionRuleForm({ rule, onDone }: { rule: SessionRule | null; onDone: () => void }) {
  const form = useForm<Values>({
    initialValues: {
      id: rule?.id ?? "",
      name: rule?.name ?? "",
      session_class: rule?.session_class ?? "data",
      selectors: rule?.selectors.map(selectorText).join("\n") ?? "",
      service: rule?.service ?? "guaranteed",
      guaranteed_bps: (rule?.guaranteed_bps ?? 100_000) / 1000,
      available_bps: (rule?.available_bps ?? 0) / 1000,
      delay_class: rule?.delay_class ?? 0,
      priority: rule?.priority ?? 0,
      burst_tolerance: rule?.burst_tolerance ?? 0,
      nodes: rule?.nodes ?? [],
      node_tags: tagTexts(rule?.node_tags ?? {}),
      enabled: rule?.enabled ?? true,
      authorised: rule?.authorised ?? true,
    },
    validate: {
      id: (value) => (value ? null : "Give the rule a name, such as calls"),
      selectors: (value) => (selectorsOf(value) ? null : "One selector a line, such as protocol=udp,dscp=46"),
    },
  });
  const { service } = form.values;
  return (
    <Stated
      form={form}
      put={(values) => api.putSessionRule(values.id, bodyOf(values), rule?.revision ?? null)}
      onDone={onDone}
    >
      <TextInput label="Rule" required disabled={rule !== null} {...form.getInputProps("id")} />
      <TextInput label="Name" {...form.getInputProps("name")} />
      <Select label="Class" data={CLASSES} allowDeselect={false} {...form.getInputProps("session_class")} />
      <Textarea
        label="Sessions with"
        description="One selector a line, of protocol, local-ports, remote-ports, local, remote, dscp"
        required
        rows={4}
        {...form.getInputProps("selectors")}
      />
      <Select label="Service" data={SERVICES} allowDeselect={false} {...form.getInputProps("service")} />
      {GUARANTEES.includes(service) ? (
        <NumberInput label="Guaranteed" suffix=" kb/s" min={1} {...form.getInputProps("guaranteed_bps")} />
      ) : null}
      {service === "guaranteed" ? null : (
        <NumberInput
          label="Available, at most"
          suffix=" kb/s"
          min={1}
          {...form.getInputProps("available_bps")}
        />
      )}
      <NumberInput
        label="Delay class"
        description="From 4 on, sessions with a guaranteed rate are expedited"
        min={0}
        max={7}
        {...form.getInputProps("delay_class")}
      />
      <NumberInput label="Pre-emption priority" min={0} max={255} {...form.getInputProps("priority")} />
      <NumberInput
        label="Burst tolerance"
        description="(n + 1)/4 round trips; expedited sessions: at most 3"
        min={0}
        max={15}
        {...form.getInputProps("burst_tolerance")}
      />
      <TagsInput
        label="Nodes"
        description="That ask; none and no tags: every node"
        {...form.getInputProps("nodes")}
      />
      <TagsInput
        label="Nodes with tags"
        description="Such as site=lab; those with all of them ask too"
        {...form.getInputProps("node_tags")}
      />
      <Switch
        label="The rule authorises its sessions"
        description="Otherwise the authorisations of their addresses decide"
        {...form.getInputProps("authorised", { type: "checkbox" })}
      />
      <Switch label="Enabled" {...form.getInputProps("enabled", { type: "checkbox" })} />
    </Stated>
  );
}
