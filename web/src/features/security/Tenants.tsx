/** Which ends of flows belong to whom: applications ask only for what is their tenant's. */
import { TagsInput, Textarea, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "../../api/client";
import type { Tenant } from "../../api/types";
import type { Column } from "../../shared/DataTable";
import { EditableTable } from "./EditableTable";
import { Stated } from "./Stated";
import { endsOf, endText } from "./tenantEnds";

const DEFAULT = "default";
const textsOf = (tenant: Tenant | null) => tenant?.ends.map(endText);

const TENANTS: Column<Tenant>[] = [
  { id: "id", header: "Tenant", value: ({ id }) => id },
  { id: "description", header: "Description", value: ({ description }) => description || null },
  {
    id: "members",
    header: "Members",
    value: ({ id, members, namespaces }) =>
      id === DEFAULT
        ? "who belongs to no other"
        : [...members, ...namespaces.map((one) => `namespace ${one}`)].join(", ") || "nobody",
  },
  { id: "owns", header: "Owns", value: (tenant) => textsOf(tenant)?.join(" ") || "nothing" },
];

export function Tenants() {
  return (
    <EditableTable
      label="Tenants"
      queryKey={["tenants"]}
      fetch={api.tenants}
      columns={TENANTS}
      name={({ id }) => id}
      empty="No tenant is stated: applications may ask for no flow."
      add="New tenant"
      editable
      form={(tenant, done) => <TenantForm tenant={tenant} onDone={done} />}
      removal={{
        verb: "Delete",
        offered: ({ id }) => id !== DEFAULT,
        words: () =>
          "Its members belong to the tenant default from then on. What was granted to them stays until its end.",
        remove: ({ id }) => api.deleteTenant(id),
      }}
    />
  );
}

function TenantForm({ tenant, onDone }: { tenant: Tenant | null; onDone: () => void }) {
  const form = useForm({
    initialValues: {
      id: tenant?.id ?? "",
      description: tenant?.description ?? "",
      members: tenant?.members ?? [],
      namespaces: tenant?.namespaces ?? [],
      ends: textsOf(tenant)?.join("\n") ?? "",
    },
    validate: {
      id: (value) => (value ? null : "Give the tenant a name, such as shop"),
      ends: (value) =>
        endsOf(value) ? null : "One a line, such as prefix=10.4.0.0/16,protocol=tcp,ports=8000-8099",
    },
  });
  return (
    <Stated
      form={form}
      put={({ id, ends, ...stated }) =>
        api.putTenant(id, { ...stated, ends: endsOf(ends) ?? [] }, tenant?.revision ?? null)
      }
      onDone={onDone}
    >
      <TextInput label="Tenant" required disabled={tenant !== null} {...form.getInputProps("id")} />
      <TextInput label="Description" {...form.getInputProps("description")} />
      {tenant?.id === DEFAULT ? null : (
        <>
          <TagsInput
            label="Members"
            description="Subjects and client ids of tokens; Enter after each"
            {...form.getInputProps("members")}
          />
          <TagsInput
            label="Kubernetes namespaces"
            description="Tokens of their service accounts belong to the tenant"
            {...form.getInputProps("namespaces")}
          />
        </>
      )}
      <Textarea
        label="Owns"
        description="Its flows start or end at one of these; fields: node, prefix, protocol, ports, cgroup"
        rows={4}
        {...form.getInputProps("ends")}
      />
    </Stated>
  );
}
