/** A table of what operators state: one more in a form, a change in the same form, and a removal that asks first. */
import { Button, Drawer, Group, Modal, Stack, Text, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";

import { type Column, DataTable } from "../../shared/DataTable";
import { Failed, Fetched } from "../../shared/Notices";

interface Removal<Row> {
  /** What is done, in a verb: "Delete". */
  verb: string;
  /** Which rows it is offered for; all, when left out. */
  offered?: (row: Row) => boolean;
  /** What will come of it. */
  words: (row: Row) => string;
  remove: (row: Row, reason: string) => Promise<unknown>;
  /** Whether a reason can be given. */
  reason?: boolean;
}

interface Props<Row> {
  label: string;
  /** Under which the rows are kept, and fetched anew after a change. */
  queryKey: readonly string[];
  fetch: () => Promise<Row[]>;
  columns: Column<Row>[];
  /** Names a row to people and is different for each. */
  name: (row: Row) => string;
  empty: string;
  removal: Removal<Row>;
  /** Title of the form for a new one; without it nothing can be added here. */
  add?: string;
  /** Whether the form also changes what is there, and which rows. */
  editable?: boolean | ((row: Row) => boolean);
  form?: (row: Row | null, done: () => void) => ReactNode;
}

export function EditableTable<Row>(props: Props<Row>) {
  const { label, queryKey, fetch, columns, name, empty, removal, add, editable = false, form } = props;
  const rows = useQuery({ queryKey, queryFn: fetch, refetchInterval: 10_000 });
  const queries = useQueryClient();
  // undefined: the form is closed; null: it is for a new one.
  const [edited, setEdited] = useState<Row | null | undefined>(undefined);
  const [removing, setRemoving] = useState<Row | null>(null);
  const renew = () => void queries.invalidateQueries({ queryKey });
  const actions: Column<Row> = {
    id: "action",
    header: "Action",
    value: () => null,
    cell: (row) => (
      <Group gap="xs">
        {(typeof editable === "function" ? editable(row) : editable) ? (
          <Button
            size="compact-sm"
            variant="default"
            aria-label={`Change ${name(row)}`}
            onClick={() => {
              setEdited(row);
            }}
          >
            Change
          </Button>
        ) : null}
        {(removal.offered?.(row) ?? true) ? (
          <Button
            size="compact-sm"
            variant="default"
            aria-label={`${removal.verb} ${name(row)}`}
            onClick={() => {
              setRemoving(row);
            }}
          >
            {removal.verb}
          </Button>
        ) : null}
      </Group>
    ),
  };
  return (
    <Stack gap="xs">
      {add ? (
        <Group justify="flex-end">
          <Button
            variant="default"
            onClick={() => {
              setEdited(null);
            }}
          >
            {add}
          </Button>
        </Group>
      ) : null}
      <Fetched query={rows} what={label.toLowerCase()}>
        {(items) => (
          <DataTable
            label={label}
            rows={items}
            columns={[...columns, actions]}
            rowKey={name}
            empty={empty}
            minWidth={560}
          />
        )}
      </Fetched>
      <Drawer
        opened={edited !== undefined}
        onClose={() => {
          setEdited(undefined);
          renew();
        }}
        title={edited ? `Change ${name(edited)}` : add}
        position="right"
        closeButtonProps={{ "aria-label": "Close the form" }}
      >
        {edited === undefined
          ? null
          : form?.(edited, () => {
              setEdited(undefined);
              renew();
            })}
      </Drawer>
      {removing === null ? null : (
        <Confirm
          row={removing}
          name={name(removing)}
          removal={removal}
          onClose={(done) => {
            setRemoving(null);
            if (done) renew();
          }}
        />
      )}
    </Stack>
  );
}

interface ConfirmProps<Row> {
  row: Row;
  name: string;
  removal: Removal<Row>;
  onClose: (done: boolean) => void;
}

function Confirm<Row>({ row, name, removal, onClose }: ConfirmProps<Row>) {
  const [reason, setReason] = useState("");
  const remove = useMutation({
    mutationFn: () => removal.remove(row, reason),
    onSuccess: () => {
      onClose(true);
    },
  });
  return (
    <Modal
      opened
      onClose={() => {
        onClose(false);
      }}
      title={`${removal.verb} ${name}?`}
      closeButtonProps={{ "aria-label": "Keep it" }}
    >
      <Stack>
        <Text size="sm">{removal.words(row)}</Text>
        {removal.reason ? (
          <TextInput
            label="Reason"
            placeholder="for the audit"
            maxLength={200}
            value={reason}
            onChange={(event) => {
              setReason(event.currentTarget.value);
            }}
          />
        ) : null}
        {remove.isError ? <Failed error={remove.error} /> : null}
        <Group justify="flex-end">
          <Button
            color="red.9"
            loading={remove.isPending}
            onClick={() => {
              remove.mutate();
            }}
          >
            {removal.verb}
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
