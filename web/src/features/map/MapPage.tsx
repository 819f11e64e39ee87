/** The network at a glance: map and table of links, both live. */
import { Badge, Box, Card, Group, Stack, Text } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useCallback, useDeferredValue, useEffect, useState } from "react";

import { MANY_LINKS } from "../../api/events";
import { useEarlierBeats, useLinks, useNodes, useRecentLoss } from "../../api/useLive";
import type { Link, NetworkNode } from "../../api/types";
import { useNow, useSampled } from "../../shared/hooks";
import { Empty, Failed, Loading } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { UTILISATION_LEVELS } from "../../theme";
import { mapHeight, nodeStatus, overlayColor, overlayStates } from "./linkLabel";
import { LinkTable } from "./LinkTable";

/** The graph library is large: heading and table do not wait for it. */
const NetworkGraph = lazy(async () => ({ default: (await import("./NetworkGraph")).NetworkGraph }));

/** More nodes than this are counted by their state instead of named. */
const NODES_NAMED = 24;
/** So often the table of a large network is renewed. */
const TABLE_MS = 2000;

/** false in the first picture of a page, true from then on. */
function useAfterPaint(): boolean {
  const [after, setAfter] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => {
      setAfter(true);
    });
    return () => {
      clearTimeout(timer);
    };
  }, []);
  return after;
}

const ABOUT =
  "Colour and width of a line show the utilisation of the link in that direction; a dashed line has no recent report. Select a line or a row for its charts.";

export function MapPage() {
  const nodes = useNodes();
  const links = useRecentLoss(useLinks());
  useEarlierBeats(links.data);
  // Map and table come after the page's first picture: who goes here sees at once that it was heard.
  const shown = useAfterPaint();
  const navigate = useNavigate();
  const now = useNow();
  const openLink = useCallback(
    (id: string) => void navigate({ to: "/links/$linkId", params: { linkId: id } }),
    [navigate],
  );

  if (nodes.isPending || links.isPending)
    return (
      <Stack>
        <PageHeader title="Network">{ABOUT}</PageHeader>
        <Loading what="the network" />
      </Stack>
    );
  if (nodes.isError && !nodes.data) return <Failed error={nodes.error} retry={() => void nodes.refetch()} />;
  if (links.isError && !links.data) return <Failed error={links.error} retry={() => void links.refetch()} />;
  if (nodes.data.length === 0)
    return (
      <Stack>
        <PageHeader title="Network" />
        <Empty title="No nodes registered yet">
          Start the lab with <code>chart lab up demo --platform</code>, or register nodes and links over REST.
        </Empty>
      </Stack>
    );

  const room = <Box h={mapHeight(links.data)} role="status" aria-label="Loading the map" />;
  return (
    <Stack>
      <PageHeader title="Network" actions={<NodeStates nodes={nodes.data} />}>
        {ABOUT}
      </PageHeader>
      <Card withBorder padding={0}>
        {shown ? (
          <Suspense fallback={room}>
            <NetworkGraph nodes={nodes.data} links={links.data} now={now} onSelectLink={openLink} />
          </Suspense>
        ) : (
          room
        )}
        <Legend overlay={overlayStates(nodes.data).size > 0} />
      </Card>
      {shown ? <Table links={links.data} now={now} /> : null}
    </Stack>
  );
}

/** The table, of a large network less often and when there is time for it. */
function Table(live: { links: Link[]; now: number }) {
  const many = live.links.length > MANY_LINKS;
  const sampled = useDeferredValue(useSampled(live, many ? TABLE_MS : 0));
  return <LinkTable {...(many ? sampled : live)} />;
}

function NodeStates({ nodes }: { nodes: NetworkNode[] }) {
  if (nodes.length <= NODES_NAMED)
    return (
      <Group gap="xs" role="list" aria-label="Nodes">
        {nodes.map((node) => {
          const { text, color } = nodeStatus(node);
          return <StateBadge key={node.id} color={color} text={`${node.id}: ${text}`} />;
        })}
      </Group>
    );
  const counts = new Map<string, { color: string; count: number }>();
  for (const node of nodes) {
    const { text, color } = nodeStatus(node);
    counts.set(text, { color, count: (counts.get(text)?.count ?? 0) + 1 });
  }
  return (
    <Group gap="xs" role="list" aria-label="Nodes">
      {[...counts].map(([text, { color, count }]) => (
        <StateBadge key={text} color={color} text={`${count} nodes: ${text}`} />
      ))}
    </Group>
  );
}

function StateBadge({ color, text }: { color: string; text: string }) {
  return (
    <Badge role="listitem" variant="default" tt="none" leftSection={<Dot color={color} />}>
      {text}
    </Badge>
  );
}

function Dot({ color }: { color: string }) {
  return (
    <svg width={10} height={10} aria-hidden>
      <circle cx={5} cy={5} r={5} fill={color} />
    </svg>
  );
}

/** What the colours of the lines mean; the table says it in numbers. */
function Legend({ overlay }: { overlay: boolean }) {
  return (
    <Group gap="md" px="md" py={6} aria-hidden>
      {UTILISATION_LEVELS.map(({ color, label }) => (
        <Group key={label} gap={6} wrap="nowrap">
          <svg width={22} height={6}>
            <line
              x1={0}
              y1={3}
              x2={22}
              y2={3}
              stroke={color}
              strokeWidth={4}
              strokeDasharray={label === "no report" ? "5 4" : undefined}
            />
          </svg>
          <Text size="xs">{label}</Text>
        </Group>
      ))}
      {(overlay ? ["alive", "failed"] : []).map((state) => (
        <Group key={state} gap={6} wrap="nowrap">
          <svg width={22} height={12}>
            <rect width={22} height={12} fill={overlayColor(state === "alive") ?? "none"} opacity={0.45} />
          </svg>
          <Text size="xs">overlay link, {state}</Text>
        </Group>
      ))}
    </Group>
  );
}
