/** The network at a glance: map and table of links, both live. */
import { Anchor, Badge, Card, Group, Stack, Table, Text, Title } from "@mantine/core";
import { Link as RouterLink, useNavigate } from "@tanstack/react-router";
import { useCallback, useEffect, useState } from "react";

import type { Link } from "../../api/types";
import { useLinks, useNodes } from "../../api/useLive";
import { Empty, Failed, Loading } from "../../shared/Notices";
import { formatMs, formatRate, formatShare } from "../../shared/units";
import { loadIsStale, nodeStatus } from "./linkLabel";
import { NetworkGraph } from "./NetworkGraph";

function useNow(periodMs: number): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    const timer = setInterval(() => {
      setNow(Date.now());
    }, periodMs);
    return () => {
      clearInterval(timer);
    };
  }, [periodMs]);
  return now;
}

function LinkRow({ link, now }: { link: Link; now: number }) {
  const stale = loadIsStale(link, now);
  const load = stale ? null : link.load;
  return (
    <Table.Tr data-testid={`link-row-${link.id}`}>
      <Table.Th scope="row">
        <Anchor
          component={RouterLink}
          to={`/links/${encodeURIComponent(link.id)}` as "/"}
          underline="always"
          c="var(--mantine-color-text)"
        >
          {link.from_node} → {link.to_node}
        </Anchor>
      </Table.Th>
      <Table.Td>{formatRate(link.capacity_bps)}</Table.Td>
      <Table.Td>{load ? formatShare(load.utilisation) : <Badge color="gray">stale</Badge>}</Table.Td>
      <Table.Td>{formatRate(load?.sent_bps)}</Table.Td>
      <Table.Td>{formatRate(load?.explicit_rate_bps)}</Table.Td>
      <Table.Td>{formatRate(link.rate?.available_bps)}</Table.Td>
      <Table.Td>{formatShare(link.measured?.loss_ratio?.value, 1)}</Table.Td>
      <Table.Td>{formatMs(link.measured?.rtt_us?.value)}</Table.Td>
      <Table.Td>{formatRate(link.measured?.available_bandwidth_bps?.value)}</Table.Td>
    </Table.Tr>
  );
}

export function MapPage() {
  const nodes = useNodes();
  const links = useLinks();
  const navigate = useNavigate();
  const now = useNow(1000);
  const openLink = useCallback(
    (id: string) => void navigate({ to: "/links/$linkId", params: { linkId: id } }),
    [navigate],
  );

  if (nodes.isPending || links.isPending) return <Loading what="the network" />;
  if (nodes.isError) return <Failed error={nodes.error} retry={() => void nodes.refetch()} />;
  if (links.isError) return <Failed error={links.error} retry={() => void links.refetch()} />;
  if (nodes.data.length === 0)
    return (
      <>
        <Title order={1} size="h3">
          Network
        </Title>
        <Empty title="No node is known yet">
          Start the lab with <code>chart lab up demo --platform</code>, or register nodes and links over REST.
        </Empty>
      </>
    );

  return (
    <Stack>
      <Title order={1} size="h3">
        Network
      </Title>
      <Group gap="xs" role="list" aria-label="Nodes">
        {nodes.data.map((node) => {
          const status = nodeStatus(node);
          return (
            <Badge
              key={node.id}
              role="listitem"
              variant="default"
              tt="none"
              leftSection={<Dot color={status.color} />}
            >
              {node.id}: {status.text}
            </Badge>
          );
        })}
      </Group>
      <Card withBorder padding={0}>
        <NetworkGraph nodes={nodes.data} links={links.data} now={now} onSelectLink={openLink} />
      </Card>
      <Card withBorder>
        <Table.ScrollContainer minWidth={760}>
          <Table highlightOnHover captionSide="top">
            <Table.Caption>
              <Text size="sm" ta="left">
                Links, one row per direction
              </Text>
            </Table.Caption>
            <Table.Thead>
              <Table.Tr>
                {[
                  "Link",
                  "Capacity",
                  "Utilisation",
                  "Sent",
                  "At explicit rates",
                  "Offered rate",
                  "Loss",
                  "RTT",
                  "Sensed free",
                ].map((heading) => (
                  <Table.Th key={heading} scope="col">
                    {heading}
                  </Table.Th>
                ))}
              </Table.Tr>
            </Table.Thead>
            <Table.Tbody>
              {links.data.map((link) => (
                <LinkRow key={link.id} link={link} now={now} />
              ))}
            </Table.Tbody>
          </Table>
        </Table.ScrollContainer>
      </Card>
    </Stack>
  );
}

function Dot({ color }: { color: string }) {
  return (
    <svg width={10} height={10} aria-hidden>
      <circle cx={5} cy={5} r={5} fill={color} />
    </svg>
  );
}
