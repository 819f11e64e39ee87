/** Choose the time that a page shows; it stands in the address, so that a link shows the same to somebody else. */
import { Alert, Button, Group, Popover, Select, Stack, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";

import { useRange } from "./hooks";
import { DEFAULT_PRESET, parseRange, type Preset, PRESETS, type RangeSearch } from "./timeRange";

const FIXED = "fixed";
/** Local time as <input type="datetime-local"> wants it. */
const local = (ms: number) =>
  new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16);

export function RangePicker() {
  const navigate = useNavigate();
  const search: RangeSearch = useSearch({ strict: false });
  const range = useRange();
  const [opened, fixed] = useDisclosure();
  const [from, setFrom] = useState("");
  const [until, setUntil] = useState("");
  const [wrong, setWrong] = useState(false);
  const show = (chosen: RangeSearch) =>
    void navigate({
      to: ".",
      search: (before: object) => ({
        ...before,
        range: undefined,
        from: undefined,
        until: undefined,
        ...chosen,
      }),
    });
  const open = () => {
    setFrom(local(range.fromMs));
    setUntil(local(range.untilMs));
    setWrong(false);
    fixed.open();
  };
  const apply = () => {
    const [first, last] = [new Date(from), new Date(until)];
    const good = !Number.isNaN(first.getTime()) && !Number.isNaN(last.getTime());
    const chosen = good ? parseRange({ from: first.toISOString(), until: last.toISOString() }) : {};
    setWrong(chosen.from === undefined);
    if (chosen.from === undefined) return;
    show(chosen);
    fixed.close();
  };
  return (
    <Popover opened={opened} onChange={fixed.set} position="bottom-end" trapFocus withinPortal={false}>
      <Popover.Target>
        <Select
          aria-label="Time range"
          w={170}
          size="xs"
          allowDeselect={false}
          value={search.from ? FIXED : (search.range ?? DEFAULT_PRESET)}
          data={[
            ...PRESETS.map(({ value, label }) => ({ value: value, label: `Last ${label}` })),
            { value: FIXED, label: "Fixed times …" },
          ]}
          onChange={(value) => {
            if (value === FIXED) open();
            else show(value === DEFAULT_PRESET ? {} : { range: value as Preset });
          }}
          onOptionSubmit={(value) => {
            // Choosing it again changes nothing and would not be told.
            if (value === FIXED && search.from) open();
          }}
        />
      </Popover.Target>
      <Popover.Dropdown>
        <Stack gap="xs">
          <TextInput
            type="datetime-local"
            label="From"
            value={from}
            onChange={(event) => {
              setFrom(event.currentTarget.value);
            }}
          />
          <TextInput
            type="datetime-local"
            label="Until"
            value={until}
            onChange={(event) => {
              setUntil(event.currentTarget.value);
            }}
          />
          {wrong ? (
            <Alert color="red" variant="outline" role="alert">
              Until must be after From, by at most 31 days.
            </Alert>
          ) : null}
          <Group justify="flex-end">
            <Button size="xs" variant="default" onClick={fixed.close}>
              Cancel
            </Button>
            <Button size="xs" onClick={apply}>
              Show
            </Button>
          </Group>
        </Stack>
      </Popover.Dropdown>
    </Popover>
  );
}
