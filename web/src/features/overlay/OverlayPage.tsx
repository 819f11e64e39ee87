/** The overlay: its links, where packets go and why, and what happened. */
import { Alert, Button, SegmentedControl, Stack } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useMemo, useState } from "react";

import { useLinks, useNodes } from "../../api/useLive";
import type { OverlayEvent } from "../../api/types";
import { overlayRoute, type OverlaySearch } from "../../router";
import { type Column, DataTable } from "../../shared/DataTable";
import { useRange } from "../../shared/hooks";
import { Empty, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { RangePicker } from "../../shared/RangePicker";
import { State } from "../../shared/State";
import { TextLink } from "../../shared/TextLink";
import { formatMs, formatShare } from "../../shared/units";
import { PathExplorer } from "./PathExplorer";
import { useOverlayEvents } from "./useOverlayEvents";
import { type OverlayLinkRow, overlayLinks, overlayNodes, subjectOf, toneOf, wordsOf } from "./words";

const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "medium" });

type Of = "links" | "paths" | "all";
const OF = [
  { value: "links", label: "Links" },
  { value: "paths", label: "Paths" },
  { value: "all", label: "Both" },
];

const LINKS: Column<OverlayLinkRow>[] = [
  {
    id: "link",
    header: "Overlay link",
    value: ({ id }) => id,
    cell: ({ id }) => (
      <TextLink to="/links/$linkId" params={{ linkId: id }}>
        {id}
      </TextLink>
    ),
  },
  { id: "to", header: "To", value: ({ to }) => to },
  {
    id: "state",
    header: "State",
    value: ({ alive }) => (alive ? "alive" : "failed"),
    cell: ({ alive }) => <State tone={alive ? "good" : "bad"}>{alive ? "alive" : "failed"}</State>,
  },
  {
    id: "rtt",
    header: "RTT",
    align: "right",
    value: ({ rttMs }) => rttMs,
    cell: ({ rttMs }) => formatMs(rttMs * 1000),
  },
  {
    id: "loss",
    header: "Round-trip loss",
    align: "right",
    value: ({ loss }) => loss,
    cell: ({ loss }) => formatShare(loss, 1),
  },
  { id: "failures", header: "Failures", align: "right", value: ({ failures }) => failures },
  { id: "packets", header: "Packets", align: "right", value: ({ packets }) => packets },
];

export function OverlayPage() {
  const search = overlayRoute.useSearch();
  const navigate = useNavigate();
  const nodes = useNodes();
  const links = useLinks();
  const rows = useMemo(() => overlayLinks(nodes.data ?? [], links.data ?? []), [nodes.data, links.data]);
  const go = (change: OverlaySearch) =>
    void navigate({ to: "/overlay", search: (before) => ({ ...before, ...change }), replace: true });
  return (
    <Stack>
      <PageHeader title="Overlay" actions={<RangePicker />}>
        Between overlay nodes packets take overlay links, and others within tens of milliseconds when one of
        these fails.
      </PageHeader>
      <Fetched query={nodes} what="the nodes">
        {(known) => {
          const { members, silent } = overlayNodes(known);
          if (members.length === 0)
            return (
              <Empty title="No overlay nodes">
                Let nodes join with <code>chart overlay join</code>, or with the field <code>overlay</code> of
                nodes over REST.
              </Empty>
            );
          return (
            <>
              {silent.length > 0 ? (
                <Alert
                  color="orange"
                  variant="outline"
                  title="The overlay does not run on every overlay node"
                >
                  No report of {silent.join(", ")}: its agent is away, has no overlay links, or could not
                  start it.
                </Alert>
              ) : null}
              <PathExplorer nodes={members.map(({ id }) => id)} search={search} go={go} />
              <DataTable
                label="Overlay links"
                rows={rows}
                columns={LINKS}
                rowKey={({ id }) => id}
                empty="no node reports an overlay link"
              />
              <Happened go={go} />
            </>
          );
        }}
      </Fetched>
    </Stack>
  );
}

/** What happened in the page's time range; each event opens the explorer at its time. */
function Happened({ go }: { go: (change: OverlaySearch) => void }) {
  const range = useRange();
  const [of, setOf] = useState<Of>("links");
  const events = useOverlayEvents(of === "all" ? {} : { of }, range);
  const columns = useMemo<Column<OverlayEvent>[]>(
    () => [
      {
        id: "at",
        header: "When",
        value: ({ at }) => at,
        cell: ({ at }) => CLOCK.format(Date.parse(at)),
      },
      { id: "node", header: "Node", value: ({ node }) => node },
      { id: "subject", header: "Of", value: subjectOf },
      {
        id: "what",
        header: "What",
        value: wordsOf,
        cell: (event) => <State tone={toneOf(event)}>{wordsOf(event)}</State>,
      },
      {
        id: "show",
        header: "Paths then",
        value: () => null,
        cell: (event) => (
          <Button
            size="compact-xs"
            variant="default"
            aria-label={`Show paths of ${event.node} at ${CLOCK.format(Date.parse(event.at))}`}
            onClick={() => {
              go({
                source: event.node,
                ...(event.owner ? { destination: event.owner } : {}),
                // A second later neighbours have noticed it too.
                at: new Date(Date.parse(event.at) + 1000).toISOString(),
              });
            }}
          >
            Show
          </Button>
        ),
      },
    ],
    [go],
  );
  return (
    <Stack gap="xs">
      <SegmentedControl
        size="xs"
        w="max-content"
        aria-label="What happened to"
        value={of}
        data={OF}
        onChange={(value) => {
          setOf(value as Of);
        }}
      />
      <Fetched query={events} what="what happened">
        {(items) => (
          <DataTable
            label={`What happened, ${range.label}`}
            rows={items}
            columns={columns}
            rowKey={({ node, at, kind, link_id, owner, colour }) =>
              [node, at, kind, link_id, owner, colour].join(" ")
            }
            empty="nothing"
          />
        )}
      </Fetched>
    </Stack>
  );
}
