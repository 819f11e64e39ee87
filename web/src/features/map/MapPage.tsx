/** The network at a glance: map and table of links, both live. */
import { Badge, Card, Group, Stack, Title } from "@mantine/core";
import { useNavigate } from "@tanstack/react-router";
import { useCallback } from "react";

import { useLinks, useNodes, useRecentLoss } from "../../api/useLive";
import { useNow, usePageTitle } from "../../shared/hooks";
import { Empty, Failed, Loading } from "../../shared/Notices";
import { nodeStatus } from "./linkLabel";
import { LinkTable } from "./LinkTable";
import { NetworkGraph } from "./NetworkGraph";

export function MapPage() {
  const nodes = useNodes();
  const links = useRecentLoss(useLinks());
  const navigate = useNavigate();
  const now = useNow();
  usePageTitle("Network");
  const openLink = useCallback(
    (id: string) => void navigate({ to: "/links/$linkId", params: { linkId: id } }),
    [navigate],
  );

  if (nodes.isPending || links.isPending) return <Loading what="the network" />;
  if (nodes.isError && !nodes.data) return <Failed error={nodes.error} retry={() => void nodes.refetch()} />;
  if (links.isError && !links.data) return <Failed error={links.error} retry={() => void links.refetch()} />;
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
      <Group justify="space-between">
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
      </Group>
      <Card withBorder padding={0}>
        <NetworkGraph nodes={nodes.data} links={links.data} now={now} onSelectLink={openLink} />
      </Card>
      <LinkTable links={links.data} now={now} />
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
