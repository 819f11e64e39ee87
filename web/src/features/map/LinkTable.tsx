/** What the map shows, in words and numbers: one row per direction of a link. */
import { Anchor, Badge, Card, Table, Text } from "@mantine/core";
import { Link as RouterLink } from "@tanstack/react-router";

import type { Link } from "../../api/types";
import { formatAge, formatMs, formatRate, formatShare } from "../../shared/units";
import { loadIsStale } from "./linkLabel";

const HEADINGS = [
  "Capacity",
  "Utilisation",
  "Sent",
  "At explicit rates",
  "Offered rate",
  "Loss, both ways",
  "RTT",
  "Sensed free",
];

function LinkRow({ link, now }: { link: Link; now: number }) {
  const stale = loadIsStale(link, now);
  const load = stale ? null : link.load;
  const cells = [
    formatRate(link.capacity_bps),
    load ? formatShare(load.utilisation) : <Stale key="stale" at={link.load?.at} now={now} />,
    formatRate(load?.sent_bps),
    formatRate(load?.explicit_rate_bps),
    formatRate(link.rate?.available_bps),
    formatShare(link.measured?.loss_ratio?.value, 1),
    formatMs(link.measured?.rtt_us?.value),
    formatRate(link.measured?.available_bandwidth_bps?.value),
  ];
  return (
    <Table.Tr data-testid={`link-row-${link.id}`}>
      <Table.Th scope="row">
        <Anchor
          renderRoot={(props) => <RouterLink to="/links/$linkId" params={{ linkId: link.id }} {...props} />}
          size="sm"
          underline="always"
          c="var(--mantine-color-text)"
        >
          {link.from_node} → {link.to_node}
        </Anchor>
      </Table.Th>
      {cells.map((cell, index) => (
        <Table.Td key={HEADINGS[index]} ta="right" style={{ whiteSpace: "nowrap" }}>
          {cell}
        </Table.Td>
      ))}
    </Table.Tr>
  );
}

function Stale({ at, now }: { at: string | undefined; now: number }) {
  return (
    <Badge variant="default" tt="none" title="No agent has said lately what this link carries">
      {at ? `stale, ${formatAge(at, now)}` : "never heard"}
    </Badge>
  );
}

export function LinkTable({ links, now }: { links: Link[]; now: number }) {
  return (
    <Card withBorder>
      <Table.ScrollContainer minWidth={860} scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}>
        <Table highlightOnHover captionSide="top">
          <Table.Caption>
            <Text size="sm" ta="left" c="var(--mantine-color-text)">
              Links, one row per direction; loss is the mean of the last minute
            </Text>
          </Table.Caption>
          <Table.Thead>
            <Table.Tr>
              <Table.Th scope="col">Link</Table.Th>
              {HEADINGS.map((heading) => (
                <Table.Th key={heading} scope="col" ta="right">
                  {heading}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {links.map((link) => (
              <LinkRow key={link.id} link={link} now={now} />
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}
