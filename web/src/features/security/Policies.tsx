/** Who may be authorised for what. */
import { Checkbox, MultiSelect, NumberInput, TagsInput, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "../../api/client";
import type { AuthorisationPolicy } from "../../api/types";
import type { Column } from "../../shared/DataTable";
import { formatRate } from "../../shared/units";
import { EditableTable } from "./EditableTable";
import { Stated } from "./Stated";

const SERVICES: AuthorisationPolicy["services"] = ["available", "guaranteed", "maximum", "variable"];

const POLICIES: Column<AuthorisationPolicy>[] = [
  { id: "id", header: "Policy", value: ({ id }) => id },
  { id: "subjects", header: "For", value: ({ subjects }) => subjects.join(", ") },
  { id: "services", header: "Services", value: ({ services }) => services.join(", ") },
  {
    id: "rate",
    header: "Up to",
    align: "right",
    value: ({ max_guaranteed_bps }) => max_guaranteed_bps,
    cell: ({ max_guaranteed_bps }) => formatRate(max_guaranteed_bps),
  },
  { id: "priority", header: "Priority", align: "right", value: ({ max_priority }) => max_priority },
  {
    id: "duration",
    header: "For at most",
    align: "right",
    value: ({ max_duration_s }) => max_duration_s,
    cell: ({ max_duration_s }) => `${Math.round(max_duration_s / 60)} min`,
  },
  { id: "address", header: "Addresses", value: ({ any_address }) => (any_address ? "any" : "own") },
];

export function Policies() {
  return (
    <EditableTable
      label="Policies of authorisations"
      queryKey={["authorisation-policies"]}
      fetch={api.authorisationPolicies}
      columns={POLICIES}
      name={({ id }) => id}
      empty="No policy is stated: the default of the authority holds for everybody."
      add="New policy"
      editable
      form={(policy, done) => <PolicyForm policy={policy} onDone={done} />}
      removal={{
        verb: "Delete",
        words: () =>
          "Authorisations that it gave stand until their end; new ones follow the other policies, or the default.",
        remove: ({ id }) => api.deleteAuthorisationPolicy(id),
      }}
    />
  );
}

function PolicyForm({ policy, onDone }: { policy: AuthorisationPolicy | null; onDone: () => void }) {
  const form = useForm({
    initialValues: {
      id: policy?.id ?? "",
      subjects: policy?.subjects ?? [],
      services: policy?.services ?? SERVICES,
      rate_mbit: ((policy?.max_guaranteed_bps ?? 100_000_000) / 1e6) as number | string,
      max_priority: (policy?.max_priority ?? 127) as number | string,
      max_delay_class: (policy?.max_delay_class ?? 3) as number | string,
      duration_min: ((policy?.max_duration_s ?? 8 * 3600) / 60) as number | string,
      any_address: policy?.any_address ?? false,
    },
    validate: {
      id: (value) => (value ? null : "Give the policy a name, such as apps"),
      subjects: (value) => (value.length > 0 ? null : "State whom it is for"),
      services: (value) => (value.length > 0 ? null : "Choose a service"),
    },
  });
  return (
    <Stated
      form={form}
      put={({ id, rate_mbit, duration_min, max_priority, max_delay_class, ...stated }) =>
        api.putAuthorisationPolicy(id, {
          ...stated,
          max_guaranteed_bps: Math.round(Number(rate_mbit) * 1e6),
          max_priority: Number(max_priority),
          max_duration_s: Math.round(Number(duration_min) * 60),
          max_delay_class: Number(max_delay_class),
          charging: policy?.charging ?? 0,
        })
      }
      onDone={onDone}
    >
      <TextInput label="Policy" required disabled={policy !== null} {...form.getInputProps("id")} />
      <TagsInput
        label="For"
        description="user/name, role/application, or * for everybody; Enter after each"
        required
        {...form.getInputProps("subjects")}
      />
      <MultiSelect label="Services" data={SERVICES} required {...form.getInputProps("services")} />
      <NumberInput label="Up to" suffix=" Mb/s" min={0} {...form.getInputProps("rate_mbit")} />
      <NumberInput label="Priority" min={0} max={255} {...form.getInputProps("max_priority")} />
      <NumberInput
        label="Delay class"
        description="From 4 on, flows with a guaranteed rate may be expedited"
        min={0}
        max={7}
        {...form.getInputProps("max_delay_class")}
      />
      <NumberInput label="For at most" suffix=" min" min={1} {...form.getInputProps("duration_min")} />
      <Checkbox
        label="Also for other addresses than the asker's own"
        {...form.getInputProps("any_address", { type: "checkbox" })}
      />
    </Stated>
  );
}
