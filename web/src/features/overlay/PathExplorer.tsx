/** Where packets of the overlay go: from a node, to a node or an address, now or at a time of the past, and why. */
import {
  Alert,
  Autocomplete,
  Button,
  Card,
  Group,
  Select,
  Stack,
  Text,
  TextInput,
  Title,
} from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { OverlayTrace } from "../../api/types";
import { Fetched } from "../../shared/Notices";
import type { OverlaySearch } from "../../router";
import { TracedPath } from "./TracedPath";

/** So often the present is asked for anew. */
const NOW_MS = 2000;
const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });
/** Local time as <input type="datetime-local"> wants it. */
const local = (at: string) =>
  new Date(Date.parse(at) - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);

interface Props {
  nodes: string[];
  search: OverlaySearch;
  go: (change: OverlaySearch) => void;
}

export function PathExplorer({ nodes, search, go }: Props) {
  const source = search.source ?? nodes[0] ?? null;
  const destination = search.destination ?? nodes.find((node) => node !== source) ?? "";
  const { at } = search;
  const trace = useQuery({
    queryKey: ["overlay-trace", source, destination, at ?? "now"],
    queryFn: () => api.overlayTrace(source ?? "", destination, at),
    enabled: Boolean(source && destination),
    placeholderData: keepPreviousData,
    refetchInterval: at ? false : NOW_MS,
  });
  return (
    <Card withBorder component="section" aria-label="Path explorer">
      <Title order={2} size="h4" mb="xs">
        Path explorer
      </Title>
      <Group align="flex-end" gap="sm" mb="md">
        <Select
          label="From"
          searchable
          allowDeselect={false}
          value={source}
          data={nodes}
          onChange={(value) => {
            go({ source: value ?? undefined });
          }}
        />
        <Destination
          key={destination}
          nodes={nodes.filter((node) => node !== source)}
          value={destination}
          go={go}
        />
        <Moment key={at ?? "now"} at={at} go={go} />
      </Group>
      <Fetched query={trace} what="the paths">
        {(found) => <Found trace={found} />}
      </Fetched>
    </Card>
  );
}

/** A node or an address: what is typed counts when it is left. */
function Destination({ nodes, value, go }: { nodes: string[]; value: string; go: Props["go"] }) {
  const [typed, setTyped] = useState(value);
  const take = (text: string) => {
    if (text && text !== value) go({ destination: text });
  };
  return (
    <Autocomplete
      label="To: a node, or an address"
      value={typed}
      data={nodes}
      onChange={setTyped}
      onOptionSubmit={take}
      onBlur={() => {
        take(typed.trim());
      }}
      onKeyDown={(event) => {
        if (event.key === "Enter") take(typed.trim());
      }}
    />
  );
}

function Moment({ at, go }: { at: string | undefined; go: Props["go"] }) {
  const [typed, setTyped] = useState(at ? local(at) : "");
  const take = () => {
    const moment = new Date(typed);
    go({ at: Number.isNaN(moment.getTime()) ? undefined : moment.toISOString() });
  };
  return (
    <>
      <TextInput
        label="When"
        type="datetime-local"
        step={1}
        value={typed}
        onChange={(event) => {
          setTyped(event.currentTarget.value);
        }}
        onBlur={take}
        onKeyDown={(event) => {
          if (event.key === "Enter") take();
        }}
      />
      <Button
        variant="default"
        disabled={!at}
        onClick={() => {
          go({ at: undefined });
        }}
      >
        Now
      </Button>
    </>
  );
}

function Found({ trace }: { trace: OverlayTrace }) {
  const behind = trace.owner
    ? trace.prefix
      ? `${trace.destination} is behind ${trace.owner} (${trace.prefix}). `
      : ""
    : "";
  return (
    <Stack gap="sm">
      <Text size="sm" data-testid="trace">
        {behind}
        {trace.past ? `As it was at ${CLOCK.format(Date.parse(trace.at))}.` : "As it is now."}
      </Text>
      {trace.why.map((sentence) => (
        <Alert key={sentence} color="orange" variant="outline">
          {sentence}
        </Alert>
      ))}
      {trace.paths.map((path) => (
        <TracedPath key={path.colour} path={path} />
      ))}
    </Stack>
  );
}
