/** Enrol a node: a one-time token, shown this once, and the command that uses it there. */
import { Alert, Button, Code, CopyButton, Group, Select, Stack, Text, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useMutation } from "@tanstack/react-query";
import { useState } from "react";

import { api, ApiError } from "../../api/client";
import type { NewEnrolment } from "../../api/types";
import { useNodes } from "../../api/useLive";
import { Failed } from "../../shared/Notices";
import { commandOf } from "./trust";

const LIVES = [
  { value: "600", label: "10 minutes" },
  { value: "3600", label: "1 hour" },
  { value: "86400", label: "1 day" },
];
const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/;

export function EnrolForm({ onDone }: { onDone: () => void }) {
  const nodes = useNodes();
  const [key, setKey] = useState(() => crypto.randomUUID());
  const form = useForm({
    initialValues: { name: "", life: "3600" },
    validate: {
      name: (value) =>
        NAME.test(value) ? null : "Give the name of the node: small letters, digits, - and dots",
    },
  });
  const enrol = useMutation({
    mutationFn: ({ name, life }: typeof form.values) =>
      api.createEnrolment({ identity: `node/${name}`, life_s: Number(life) }, key),
    onError: (error) => {
      setKey(crypto.randomUUID());
      if (error instanceof ApiError && error.problem.field === "identity")
        form.setFieldError("name", error.message);
    },
  });
  if (enrol.data) return <Made made={enrol.data} onDone={onDone} />;
  return (
    <form
      noValidate
      onSubmit={form.onSubmit((values) => {
        enrol.mutate(values);
      })}
    >
      <Stack>
        <TextInput
          label="Node"
          required
          list="nodes-to-enrol"
          autoComplete="off"
          {...form.getInputProps("name")}
        />
        <datalist id="nodes-to-enrol">
          {(nodes.data ?? []).map(({ id }) => (
            <option key={id} value={id} />
          ))}
        </datalist>
        <Select
          label="The token can be used for"
          data={LIVES}
          allowDeselect={false}
          {...form.getInputProps("life")}
        />
        {enrol.isError ? <Failed error={enrol.error} /> : null}
        <Group justify="flex-end">
          <Button type="submit" loading={enrol.isPending}>
            Make a token
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

function Made({ made, onDone }: { made: NewEnrolment; onDone: () => void }) {
  return (
    <Stack>
      <Alert color="orange" variant="outline" role="status" title="Shown this once">
        <Text size="sm">
          The token enrols {made.identity} once, until {new Date(made.expires_at).toLocaleString("en-GB")}. It
          is kept nowhere: copy it now.
        </Text>
      </Alert>
      <Copied label="Token" what="the token" text={made.token} />
      <Copied
        label="Certificate of the authority"
        what="the authority's certificate"
        text={made.authority_ca_pem}
      />
      <Copied label="On the node, with both in files" what="the command" text={commandOf(made)} />
      <Group justify="flex-end">
        <Button onClick={onDone}>Done</Button>
      </Group>
    </Stack>
  );
}

/** A text to take along; `what` names it on the button. */
function Copied({ label, what, text }: { label: string; what: string; text: string }) {
  return (
    <Stack gap={4}>
      <Group justify="space-between">
        <Text size="sm" fw={600}>
          {label}
        </Text>
        <CopyButton value={text}>
          {({ copied, copy }) => (
            <Button size="compact-sm" variant="default" aria-label={`Copy ${what}`} onClick={copy}>
              {copied ? "Copied" : "Copy"}
            </Button>
          )}
        </CopyButton>
      </Group>
      <Code
        block
        tabIndex={0}
        mah={160}
        style={{ overflow: "auto", overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}
      >
        {text}
      </Code>
    </Stack>
  );
}
