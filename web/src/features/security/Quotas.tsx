/** What one application may have at once. */
import { NumberInput, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";

import { api } from "../../api/client";
import type { Quota } from "../../api/types";
import type { Column } from "../../shared/DataTable";
import { formatRate } from "../../shared/units";
import { EditableTable } from "./EditableTable";
import { Stated } from "./Stated";

const DAY_S = 86_400;
type Entry = number | string;

const bounded = (used: string | null, most: string | null) =>
  used === null ? (most ?? "unlimited") : `${used} of ${most ?? "unlimited"}`;
const rates = (used: number | null, most: number | null) =>
  bounded(used === null ? null : formatRate(used), most === null ? null : formatRate(most));

const QUOTAS: Column<Quota>[] = [
  {
    id: "application",
    header: "Application",
    value: ({ application }) => (application === "default" ? "all others" : application),
  },
  {
    id: "requests",
    header: "Requests",
    align: "right",
    value: ({ used_requests, max_requests }) =>
      bounded(used_requests === null ? null : String(used_requests), max_requests?.toString() ?? null),
  },
  {
    id: "rate",
    header: "Guaranteed together",
    align: "right",
    value: ({ used_total_bps, max_total_bps }) => rates(used_total_bps, max_total_bps),
  },
  {
    id: "held",
    header: "Held",
    align: "right",
    value: ({ used_held_bps, max_held_bps }) => rates(used_held_bps, max_held_bps),
  },
  { id: "priority", header: "Priority", align: "right", value: ({ max_priority }) => max_priority ?? "any" },
  {
    id: "horizon",
    header: "Ends within",
    align: "right",
    value: ({ horizon_s }) =>
      horizon_s === null ? "unlimited" : `${Number((horizon_s / DAY_S).toFixed(2))} d`,
  },
];

export function Quotas() {
  return (
    <EditableTable
      label="Quotas"
      queryKey={["quotas"]}
      fetch={api.quotas}
      columns={QUOTAS}
      name={({ application }) => application}
      empty="No quota is stated: applications are not limited."
      add="New quota"
      editable
      form={(quota, done) => <QuotaForm quota={quota} onDone={done} />}
      removal={{
        verb: "Delete",
        words: ({ application }) =>
          application === "default"
            ? "Applications without a quota of their own are not limited any more."
            : "The quota of all others applies to it from then on.",
        remove: ({ application }) => api.deleteQuota(application),
      }}
    />
  );
}

/** An empty field is no limit. */
const limit = (entry: Entry, factor = 1) => (entry === "" ? null : Math.round(Number(entry) * factor));
const shown = (value: number | null | undefined, factor = 1): Entry =>
  value === null || value === undefined ? "" : value / factor;

function QuotaForm({ quota, onDone }: { quota: Quota | null; onDone: () => void }) {
  const form = useForm({
    initialValues: {
      application: quota?.application ?? "",
      max_requests: shown(quota?.max_requests),
      max_total_bps: shown(quota?.max_total_bps, 1e6),
      max_held_bps: shown(quota?.max_held_bps, 1e6),
      max_priority: shown(quota?.max_priority),
      horizon_s: shown(quota?.horizon_s, DAY_S),
    },
    validate: {
      application: (value) => (value ? null : "The subject of the application's token"),
    },
  });
  return (
    <Stated
      form={form}
      put={(values) =>
        api.putQuota(
          values.application,
          {
            max_requests: limit(values.max_requests),
            max_total_bps: limit(values.max_total_bps, 1e6),
            max_held_bps: limit(values.max_held_bps, 1e6),
            max_priority: limit(values.max_priority),
            horizon_s: limit(values.horizon_s, DAY_S),
          },
          quota?.revision ?? null,
        )
      }
      onDone={onDone}
    >
      <TextInput
        label="Application"
        description="Subject of its token; default: all without a quota of their own"
        required
        disabled={quota !== null}
        {...form.getInputProps("application")}
      />
      <NumberInput label="Requests" min={1} {...form.getInputProps("max_requests")} />
      <NumberInput
        label="Guaranteed together"
        suffix=" Mb/s"
        min={0}
        {...form.getInputProps("max_total_bps")}
      />
      <NumberInput label="Held" suffix=" Mb/s" min={0} {...form.getInputProps("max_held_bps")} />
      <NumberInput label="Priority" min={0} max={255} {...form.getInputProps("max_priority")} />
      <NumberInput
        label="Ends within"
        description="Of a request without an end this is its end"
        suffix=" d"
        min={0}
        {...form.getInputProps("horizon_s")}
      />
    </Stated>
  );
}
