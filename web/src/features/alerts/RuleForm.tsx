/** State an alert rule; a refusal stands on the field that it names. */
import { Button, Group, NumberInput, Select, Stack, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useMutation } from "@tanstack/react-query";

import { api, ApiError } from "../../api/client";
import type { AlertRuleBody } from "../../api/types";
import { useNodes } from "../../api/useLive";
import { Failed } from "../../shared/Notices";
import { METRICS } from "../paths/matrix";

const KINDS = [
  { value: "above", label: "the value is above" },
  { value: "below", label: "the value is below" },
  { value: "no_data", label: "no data arrives" },
  { value: "change", label: "the path changes" },
];

/** What a threshold is typed in, and how much of the interface's unit that is. */
function unitOf(kind: string, metric: string): { suffix: string; factor: number } {
  if (kind === "change" || metric === "loss_ratio") return { suffix: " %", factor: 0.01 };
  return metric === "rtt_us" ? { suffix: " ms", factor: 1000 } : { suffix: " Mb/s", factor: 1e6 };
}

export function RuleForm({ onStated }: { onStated: () => void }) {
  const nodes = useNodes();
  const names = (nodes.data ?? []).map(({ id }) => id);
  const form = useForm({
    initialValues: {
      id: "",
      kind: "above",
      metric: "rtt_us",
      source_node: null as string | null,
      destination_node: null as string | null,
      threshold: 100 as number | string,
      for_s: 60 as number | string,
      description: "",
    },
    validate: { id: (value) => (value ? null : "Give the rule a name, such as slow-path") },
  });
  const put = useMutation({
    mutationFn: ({ id, ...body }: typeof form.values) =>
      api.putAlertRule(id, {
        ...body,
        threshold: Number(body.threshold) * unitOf(body.kind, body.metric).factor,
        for_s: Number(body.for_s),
        statistic: "p50",
      } as AlertRuleBody),
    onSuccess: onStated,
    onError: (error) => {
      const field = error instanceof ApiError ? error.problem.field : null;
      if (field && field in form.values) form.setFieldError(field, error.message);
    },
  });
  const { kind, metric } = form.values;
  return (
    <form
      noValidate
      onSubmit={form.onSubmit((values) => {
        put.mutate(values);
      })}
    >
      <Stack>
        <TextInput label="Name" required {...form.getInputProps("id")} />
        <Select label="Fires when" data={KINDS} allowDeselect={false} {...form.getInputProps("kind")} />
        <Select
          label="Metric"
          data={METRICS.map(({ id, label }) => ({ value: id, label }))}
          allowDeselect={false}
          {...form.getInputProps("metric")}
        />
        <Select
          label="From"
          placeholder="any"
          data={names}
          clearable
          {...form.getInputProps("source_node")}
        />
        <Select
          label="To"
          placeholder="any"
          data={names}
          clearable
          {...form.getInputProps("destination_node")}
        />
        {kind === "no_data" ? null : (
          <NumberInput
            label="Threshold"
            description={kind === "change" ? "Relative to the value before the change" : undefined}
            suffix={unitOf(kind, metric).suffix}
            min={0}
            {...form.getInputProps("threshold")}
          />
        )}
        <NumberInput label="For" suffix=" s" min={0} {...form.getInputProps("for_s")} />
        <TextInput label="Description" {...form.getInputProps("description")} />
        {put.isError ? <Failed error={put.error} /> : null}
        <Group justify="flex-end">
          <Button type="submit" loading={put.isPending}>
            Save the rule
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
