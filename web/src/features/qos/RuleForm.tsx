/** A rule: which packets, and what they get. Before it is saved it shows the flows it would match and whether it fits. */
import {
  Alert,
  Button,
  Group,
  List,
  NumberInput,
  Select,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
} from "@mantine/core";
import { useForm } from "@mantine/form";
import { useDebouncedValue } from "@mantine/hooks";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { RateRequestBody, ServiceType } from "../../api/types";
import { useFlows, useLinks, useNodes } from "../../api/useLive";
import { Failed } from "../../shared/Notices";
import { formatRate } from "../../shared/units";
import { end, flowKey } from "../flows/flow";
import { Answer } from "../requests/Answer";
import {
  CHECK_ENDS,
  MEGABITS,
  numberOrNull,
  PORT,
  PRIORITY,
  refusedField,
  SERVICES,
  toBody,
} from "../requests/formValues";
import { DSCP, matching, type Rule } from "./match";

const SHOWN = 5;
const TITLES = { granted: "This would be granted", refused: "This would be refused" };

interface Values {
  application: string;
  source: string;
  destination: string;
  protocol: "tcp" | "udp";
  sourcePort: number | string;
  destinationPort: number | string;
  dscp: string | null;
  service: ServiceType;
  rateMbit: number | string;
  priority: number | string;
  durationMin: number | string;
}

const EMPTY: Values = {
  application: "",
  source: "",
  destination: "",
  protocol: "tcp",
  sourcePort: "",
  destinationPort: "",
  dscp: null,
  service: "guaranteed",
  rateMbit: 10,
  priority: 0,
  durationMin: 1440,
};

function bodyOf(values: Values): RateRequestBody {
  const { application } = values;
  return {
    ...toBody({
      ...values,
      dscp: values.dscp ?? "",
      maximumMbit: values.service === "maximum" ? values.rateMbit : "",
      description: application ? `rule: ${application}` : "rule",
    }),
    tags: application ? { application } : {},
  };
}

const ruleOf = (values: Values): Rule => ({
  source: values.source,
  destination: values.destination,
  protocol: values.protocol,
  sourcePort: numberOrNull(values.sourcePort),
  destinationPort: numberOrNull(values.destinationPort),
  dscp: values.dscp === null ? null : Number(values.dscp),
});

export function RuleForm({ onSaved }: { onSaved: () => void }) {
  const nodes = useNodes();
  const [key, setKey] = useState(() => crypto.randomUUID());
  const form = useForm<Values>({
    initialValues: EMPTY,
    validate: CHECK_ENDS,
  });
  const save = useMutation({
    mutationFn: (values: Values) => api.createRateRequest(bodyOf(values), key),
    onSuccess: onSaved,
    onError: (error) => {
      setKey(crypto.randomUUID());
      const field = refusedField(error, form.values);
      if (field) form.setFieldError(field, error.message);
    },
  });
  const names = (nodes.data ?? []).map(({ id }) => id);
  return (
    <form
      noValidate
      onSubmit={form.onSubmit((values) => {
        save.mutate(values);
      })}
    >
      <Stack>
        <TextInput label="Application" placeholder="backup" {...form.getInputProps("application")} />
        <SimpleGrid cols={{ base: 1, sm: 2 }}>
          <Select label="Sender" data={names} searchable required {...form.getInputProps("source")} />
          <Select label="Receiver" data={names} searchable required {...form.getInputProps("destination")} />
          <Select
            label="Protocol"
            data={["tcp", "udp"]}
            allowDeselect={false}
            {...form.getInputProps("protocol")}
          />
          <Select label="DSCP" placeholder="any" data={DSCP} clearable {...form.getInputProps("dscp")} />
          <NumberInput
            label="Sender's port"
            placeholder="any"
            {...PORT}
            {...form.getInputProps("sourcePort")}
          />
          <NumberInput
            label="Receiver's port"
            placeholder="any"
            {...PORT}
            {...form.getInputProps("destinationPort")}
          />
          <Select label="Service" data={SERVICES} allowDeselect={false} {...form.getInputProps("service")} />
          <NumberInput label="Rate" {...MEGABITS} {...form.getInputProps("rateMbit")} />
          <NumberInput label="Priority" {...PRIORITY} {...form.getInputProps("priority")} />
          <NumberInput label="Duration" suffix=" min" min={1} {...form.getInputProps("durationMin")} />
        </SimpleGrid>
        {form.values.source && form.values.destination && form.values.source !== form.values.destination ? (
          <Before values={form.values} />
        ) : null}
        {save.isError ? <Failed error={save.error} /> : null}
        <Group justify="flex-end">
          <Button type="submit" loading={save.isPending}>
            Save the rule
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

/** What the rule would match and whether there is room for it. */
function Before({ values }: { values: Values }) {
  const flows = useFlows();
  const nodes = useNodes();
  const links = useLinks();
  const [settled] = useDebouncedValue(values, 300);
  const preview = useQuery({
    queryKey: ["preview-rule", settled],
    queryFn: () => api.previewRateRequest(bodyOf(settled)),
    retry: false,
  });
  const found = matching(ruleOf(values), flows.data ?? [], nodes.data ?? []);
  const answer = preview.data;
  return (
    <>
      <Alert
        color="cyan"
        variant="outline"
        role="status"
        data-testid="would-match"
        title={`${found.possible ? "Could match" : "Would match"} ${found.flows.length} of the running flows`}
      >
        {found.possible ? (
          <Text size="sm">
            Some nodes do not report the code point of their flows; of these, flows with the code point match.
          </Text>
        ) : null}
        <List size="sm">
          {found.flows.slice(0, SHOWN).map((flow) => (
            <List.Item key={flowKey(flow)}>
              {flow.protocol} {end(flow.source_address, flow.source_port)} →{" "}
              {end(flow.destination_address, flow.destination_port)}, {formatRate(flow.delivered_bps)}
              {flow.request_id ? ", already has a rate" : ""}
            </List.Item>
          ))}
        </List>
        {found.flows.length > SHOWN ? <Text size="sm">and {found.flows.length - SHOWN} more</Text> : null}
      </Alert>
      {answer ? (
        <Answer answer={answer} links={links.data ?? []} titles={TITLES} testId="rule-preview" />
      ) : null}
      {preview.isError ? <Failed error={preview.error} /> : null}
    </>
  );
}
