/** A new rate request: the form previews the answer while it is filled in, and names the field that a refusal is about. */
import {
  Button,
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
  CHECK_ENDS,
  type FormValues,
  MEGABITS,
  PORT,
  PRIORITY,
  refusedField,
  SERVICES,
  toBody,
  valuesLike,
} from "./formValues";

interface Props {
  onCreated: (request: RateRequest) => void;
  /** What the form begins with. */
  like?: RateRequest["request"] | undefined;
}

export function RequestForm({ onCreated, like }: Props) {
  const nodes = useNodes();
  const links = useLinks();
  const [idempotencyKey, setIdempotencyKey] = useState(() => crypto.randomUUID());
  const form = useForm<FormValues>({
    initialValues: valuesLike(like),
    validate: CHECK_ENDS,
  });
  const complete =
    form.values.source !== "" &&
    form.values.destination !== "" &&
    form.values.source !== form.values.destination;
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
      if (field) form.setFieldError(field, error.message);
    },
  });
  const options = (nodes.data ?? []).map((node) => node.id);

  return (
    <form
      noValidate
      onSubmit={form.onSubmit((values) => {
        create.mutate(values);
      })}
    >
      <Stack>
        <SimpleGrid cols={{ base: 1, sm: 2 }}>
          <Select label="Sender" data={options} searchable required {...form.getInputProps("source")} />
          <Select
            label="Receiver"
            data={options}
            searchable
            required
            {...form.getInputProps("destination")}
          />
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
            disabled={form.values.service === "available"}
            {...form.getInputProps("rateMbit")}
          />
          <NumberInput label="Duration" suffix=" min" min={1} {...form.getInputProps("durationMin")} />
          <Select
            label="Protocol"
            data={["tcp", "udp"]}
            allowDeselect={false}
            {...form.getInputProps("protocol")}
          />
          <NumberInput
            label="Receiver's port"
            description="Empty: any port"
            {...PORT}
            {...form.getInputProps("destinationPort")}
          />
          <NumberInput
            label="Priority"
            description="0 lowest, 255 highest"
            {...PRIORITY}
            {...form.getInputProps("priority")}
          />
          <TextInput label="Description" {...form.getInputProps("description")} />
        </SimpleGrid>
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
