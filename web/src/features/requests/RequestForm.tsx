/** A new rate request: the form previews the answer while it is filled in, and names the field that a refusal is about. */
import {
  Button,
  Collapse,
  Group,
  NumberInput,
  SegmentedControl,
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
import type { RateRequest } from "../../api/types";
import { useLinks, useNodes } from "../../api/useLive";
import { Failed } from "../../shared/Notices";
import { Answer } from "./Answer";
import {
  bounded,
  CHECK_REQUEST,
  type FormValues,
  guarantees,
  MEGABITS,
  PORT,
  refusedField,
  SERVICES,
  toBody,
  valuesLike,
} from "./formValues";
import { MORE, MoreOptions } from "./MoreOptions";

interface Props {
  onCreated: (request: RateRequest) => void;
  /** What the form begins with. */
  like?: RateRequest["request"] | undefined;
}

export function RequestForm({ onCreated, like }: Props) {
  const nodes = useNodes();
  const links = useLinks();
  const [idempotencyKey, setIdempotencyKey] = useState(() => crypto.randomUUID());
  const [more, setMore] = useState(false);
  const form = useForm<FormValues>({
    initialValues: valuesLike(like),
    validate: CHECK_REQUEST,
  });
  const complete =
    form.values.source !== "" &&
    form.values.destination !== "" &&
    form.values.source !== form.values.destination &&
    CHECK_REQUEST.maximumMbit(form.values.maximumMbit, form.values) === null &&
    CHECK_REQUEST.tags(form.values.tags) === null;
  const [debounced] = useDebouncedValue(form.values, 300);
  const preview = useQuery({
    queryKey: ["preview", debounced],
    queryFn: () => api.previewRateRequest(toBody(debounced)),
    enabled: complete,
    retry: false,
  });
  const create = useMutation({
    mutationFn: (values: FormValues) => api.createRateRequest(toBody(values), idempotencyKey),
    onSuccess: onCreated,
    onError: (error) => {
      setIdempotencyKey(crypto.randomUUID());
      const field = refusedField(error, form.values);
      if (!field) return;
      form.setFieldError(field, error.message);
      if (MORE.has(field)) setMore(true);
    },
  });
  const foreseen = complete && preview.error ? refusedField(preview.error, form.values) : null;
  const fault = (name: keyof FormValues) =>
    form.errors[name] ?? (foreseen === name ? preview.error?.message : undefined);
  const input = (name: keyof FormValues) => ({ ...form.getInputProps(name), error: fault(name) });
  const options = (nodes.data ?? []).map((node) => node.id);
  const { service } = form.values;

  return (
    <form
      noValidate
      onSubmit={form.onSubmit(
        (values) => {
          create.mutate(values);
        },
        (errors) => {
          if (Object.keys(errors).some((name) => MORE.has(name as keyof FormValues))) setMore(true);
        },
      )}
    >
      <Stack>
        <SimpleGrid cols={{ base: 1, sm: 2 }}>
          <Select label="Sender" data={options} searchable required {...input("source")} />
          <Select label="Receiver" data={options} searchable required {...input("destination")} />
        </SimpleGrid>
        <div>
          <Text size="sm" fw={500} id="service-label">
            Service
          </Text>
          <SegmentedControl
            aria-labelledby="service-label"
            size="xs"
            data={SERVICES}
            fullWidth
            {...form.getInputProps("service")}
          />
        </div>
        <SimpleGrid cols={{ base: 1, sm: 2 }}>
          <NumberInput
            label="Guaranteed rate"
            {...MEGABITS}
            disabled={!guarantees(service)}
            {...input("rateMbit")}
          />
          <NumberInput
            label="Maximum rate"
            description={service === "maximum" ? "Guaranteed and available together" : "Empty: no bound"}
            {...MEGABITS}
            required={service === "maximum"}
            disabled={!bounded(service)}
            {...input("maximumMbit")}
          />
          <TextInput type="datetime-local" label="Start" description="Empty: now" {...input("start")} />
          <NumberInput
            label="Duration"
            description="Empty: until released"
            suffix=" min"
            min={1}
            {...input("durationMin")}
          />
          <Select
            label="Protocol"
            data={["tcp", "udp", "any"]}
            allowDeselect={false}
            {...input("protocol")}
          />
          <NumberInput
            label="Receiver's port"
            description="Empty: any port"
            {...PORT}
            {...input("destinationPort")}
          />
        </SimpleGrid>
        <TextInput label="Description" {...input("description")} />
        <Group>
          <Button
            variant="default"
            size="xs"
            aria-expanded={more}
            onClick={() => {
              setMore(!more);
            }}
          >
            {more ? "Fewer options" : "More options"}
          </Button>
        </Group>
        <Collapse expanded={more}>
          <MoreOptions
            input={input}
            values={form.values}
            places={[...options, ...(links.data ?? []).map(({ id }) => id)]}
          />
        </Collapse>
        {complete && preview.data ? (
          <Answer answer={preview.data} links={links.data ?? []} testId="preview" />
        ) : null}
        {complete && preview.isError ? <Failed error={preview.error} /> : null}
        {create.isError ? <Failed error={create.error} /> : null}
        <Group justify="flex-end">
          <Button type="submit" loading={create.isPending}>
            Request this rate
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
