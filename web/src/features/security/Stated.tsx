/** The frame of a form that states something: a refusal stands on the field that it names. */
import { Button, Group, Stack } from "@mantine/core";
import type { UseFormReturnType } from "@mantine/form";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";

import { ApiError } from "../../api/client";
import { Failed } from "../../shared/Notices";

interface Props<Values> {
  form: UseFormReturnType<Values>;
  put: (values: Values) => Promise<unknown>;
  onDone: () => void;
  children: ReactNode;
}

export function Stated<Values extends Record<string, unknown>>({
  form,
  put,
  onDone,
  children,
}: Props<Values>) {
  const save = useMutation({
    mutationFn: put,
    onSuccess: onDone,
    onError: (error) => {
      const field = error instanceof ApiError ? error.problem.field : null;
      if (field && field in form.values) form.setFieldError(field, error.message);
    },
  });
  return (
    <form
      noValidate
      onSubmit={form.onSubmit((values) => {
        save.mutate(values);
      })}
    >
      <Stack>
        {children}
        {save.isError ? <Failed error={save.error} /> : null}
        <Group justify="flex-end">
          <Button type="submit" loading={save.isPending}>
            Save
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
