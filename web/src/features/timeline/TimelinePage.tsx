/** Reserved against used, link by link over time: what was promised, and what was made of it. */
import { Button, Card, Group, Stack, Switch, Table, Text, TextInput, VisuallyHidden } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { IconDownload, IconSearch } from "@tabler/icons-react";
import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { Link } from "../../api/types";
import { useLinks, useRateRequests } from "../../api/useLive";
import { download, toCsv } from "../../shared/csv";
import { useNow, useRange } from "../../shared/hooks";
import { Empty, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { RangePicker } from "../../shared/RangePicker";
import { TextLink } from "../../shared/TextLink";
import { refetchEvery, type TimeRange } from "../../shared/timeRange";
import { formatRate, formatShare } from "../../shared/units";
import classes from "./Timeline.module.css";
import { type Slot, slotLength, slotsOf, timelineOf } from "./slots";

/** So many slots from one written time to the next. */
const LABELLED = 6;
/** Fewer slots than this before the right edge have no room for a time. */
const LABEL_ROOM = 3;
/** Used is asked for in steps shorter than a slot. */
const STEPS = 4;
/** At least so much of the future is asked for. */
const AHEAD_MS = 60_000;
/** Each link costs two questions to the services. */
const MOST = 40;

export function TimelinePage() {
  const links = useLinks();
  const range = useRange();
  const [ahead, setAhead] = useState(false);
  const length = range.untilMs - range.fromMs;
  // Looking ahead, the present is in the middle.
  const shown = ahead
    ? { ...range, fromMs: range.untilMs - length / 2, untilMs: range.untilMs + length / 2 }
    : range;
  return (
    <Stack>
      <PageHeader
        title="Timeline"
        actions={
          <>
            <Switch
              size="sm"
              label="Look ahead"
              checked={ahead}
              onChange={(event) => {
                setAhead(event.currentTarget.checked);
              }}
            />
            <RangePicker />
          </>
        }
      >
        The upper half of a cell shows the reserved share of the link's capacity, the lower half the sent
        share. A hatched half has no data: no report, or in the future.
      </PageHeader>
      <Fetched query={links} what="the links">
        {(data) =>
          data.length === 0 ? (
            <Empty title="No links registered yet">Register nodes and links, or start the lab.</Empty>
          ) : (
            <Shown links={data} range={shown} ahead={ahead} />
          )
        }
      </Fetched>
    </Stack>
  );
}

interface Props {
  links: Link[];
  range: TimeRange;
  /** Half of the time is still to come. */
  ahead: boolean;
}

/** The links that somebody looks for, at most so many. */
function Shown({ links, range, ahead }: Props) {
  const [filter, setFilter] = useState("");
  const [wanted] = useDebouncedValue(filter.toLowerCase(), 200);
  const found = links
    .filter(({ id, to_node }) => `${id} ${to_node}`.toLowerCase().includes(wanted))
    .sort((a, b) => a.id.localeCompare(b.id));
  return (
    <>
      <TextInput
        size="xs"
        w={220}
        aria-label="Filter links"
        placeholder="Filter links"
        leftSection={<IconSearch size={14} aria-hidden />}
        value={filter}
        onChange={(event) => {
          setFilter(event.currentTarget.value);
        }}
      />
      {found.length === 0 ? (
        <Text size="sm">Nothing matches “{filter}”.</Text>
      ) : (
        <Grid links={found.slice(0, MOST)} range={range} ahead={ahead} />
      )}
      {found.length > MOST ? (
        <Text size="sm">
          The first {MOST} of {found.length} links are shown; use the filter to find others.
        </Text>
      ) : null}
    </>
  );
}

function Grid({ links, range, ahead }: Props) {
  const length = range.untilMs - range.fromMs;
  const end = `${range.live ? "now" : range.untilMs}${ahead ? " ahead" : ""}`;
  const edges = slotsOf(range.fromMs, range.untilMs);
  const slotMs = slotLength(length);
  const every = { refetchInterval: refetchEvery(range), placeholderData: keepPreviousData } as const;
  const reserved = useQueries({
    queries: links.map(({ id }) => ({
      queryKey: ["capacity", id, length, end],
      // The ledger knows of now and later; what was is told by the requests.
      queryFn: () => {
        const now = Date.now();
        return api.capacity(id, new Date(now), new Date(Math.max(range.untilMs, now + AHEAD_MS)));
      },
      ...every,
    })),
  });
  const used = useQueries({
    queries: links.map(({ id }) => ({
      queryKey: ["used", id, length, end],
      queryFn: () =>
        api.series(
          "link",
          id,
          "sent_bps",
          new Date(range.fromMs),
          new Date(range.untilMs),
          Math.max(1000, Math.round(slotMs / STEPS)),
        ),
      ...every,
    })),
  });
  const requests = useRateRequests();
  const now = useNow(5000);
  const rows = links.map((link, index) =>
    timelineOf(
      link,
      {
        capacity: reserved[index]?.data,
        used: used[index]?.data,
        requests: requests.data?.items,
        nowMs: now,
      },
      edges,
    ),
  );
  const save = () => {
    const lines = links.flatMap(({ id }, index) =>
      (rows[index] ?? []).map((slot) => [
        id,
        new Date(slot.fromMs).toISOString(),
        new Date(slot.untilMs).toISOString(),
        slot.reserved,
        slot.used,
      ]),
    );
    download("chart-timeline.csv", toCsv(["Link", "From", "Until", "Reserved share", "Used share"], lines));
  };
  const failed = reserved.find((one) => one.error)?.error ?? used.find((one) => one.error)?.error;
  return (
    <Card withBorder component="section" aria-label="Reserved against used">
      <Group justify="space-between" mb="xs">
        <Text size="sm" fw={600}>
          Reserved against used, share of each link
        </Text>
        <Group gap="md">
          <Group gap="xs" aria-hidden>
            <Text size="xs">0 %</Text>
            <span className={classes.scale} />
            <Text size="xs">100 %</Text>
            <span className={`${classes.sample ?? ""} ${classes.unknown ?? ""}`} />
            <Text size="xs">no data</Text>
          </Group>
          <Button
            size="xs"
            variant="default"
            leftSection={<IconDownload size={14} aria-hidden />}
            onClick={save}
            aria-label="Export the timeline as CSV"
          >
            CSV
          </Button>
        </Group>
      </Group>
      {failed ? <Text size="sm">Some data is missing: {failed.message}</Text> : null}
      <Table.ScrollContainer minWidth={760} scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}>
        <Table
          className={classes.grid}
          withRowBorders={false}
          aria-label="Reserved and used shares by link and time"
        >
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Link</Table.Th>
              {edges.map(([from], index) => (
                <Table.Th key={from} scope="col">
                  {from % (slotMs * LABELLED) === 0 && index <= edges.length - LABEL_ROOM ? (
                    <span className={classes.time}>{clock(from, length)}</span>
                  ) : (
                    <VisuallyHidden>{clock(from, length)}</VisuallyHidden>
                  )}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {links.map((link, index) => (
              <Table.Tr key={link.id}>
                <Table.Th scope="row">
                  <TextLink to="/links/$linkId" params={{ linkId: link.id }}>
                    {link.from_node} → {link.to_node}
                  </TextLink>
                  <Text size="xs" fw={400}>
                    {formatRate(link.capacity_bps)}
                  </Text>
                </Table.Th>
                {rows[index]?.map((slot) => (
                  <SlotCell key={slot.fromMs} slot={slot} length={length} />
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}

function SlotCell({ slot, length }: { slot: Slot; length: number }) {
  const words = `${clock(slot.fromMs, length)}: reserved ${formatShare(slot.reserved)}, used ${formatShare(slot.used)}`;
  return (
    <Table.Td title={words} className={classes.cell}>
      <VisuallyHidden>{words}</VisuallyHidden>
      <Half share={slot.reserved} />
      <Half share={slot.used} />
    </Table.Td>
  );
}

/** How much of the colour nothing at all has. */
const FAINT = 0.08;

function Half({ share }: { share: number | null }) {
  if (share === null) return <div className={`${classes.half ?? ""} ${classes.unknown ?? ""}`} />;
  return (
    <div
      className={`${classes.half ?? ""} ${classes.known ?? ""}`}
      style={{ opacity: FAINT + Math.min(1, share) * (1 - FAINT) }}
    />
  );
}

function clock(ms: number, length: number): string {
  return length > 86_400_000
    ? new Date(ms).toLocaleDateString("en-GB", { day: "numeric", month: "short", hour: "2-digit" })
    : new Date(ms).toLocaleTimeString("en-GB", {
        hour: "2-digit",
        minute: "2-digit",
        ...(length < 3_600_000 ? { second: "2-digit" } : {}),
      });
}
