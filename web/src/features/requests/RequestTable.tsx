/** The list of rate requests: what was asked, what became of it. */
import { Badge, Button, Card, Table, Text } from "@mantine/core";

import type { Link, RateRequest } from "../../api/types";
import { formatAge, formatRate } from "../../shared/units";
import { pathLabel } from "./path";

const OPEN: RateRequest["lifecycle"][] = ["HELD", "RESERVED", "ACTIVE"];

function state(request: RateRequest): { color: string; text: string } {
  if (!OPEN.includes(request.lifecycle)) return { color: "gray", text: request.lifecycle.toLowerCase() };
  if (request.enforcement === "ENFORCED") return { color: "teal", text: "enforced" };
  if (request.enforcement === "FAILED") return { color: "red", text: "not enforced" };
  return { color: "orange", text: "pending" };
}

function RequestRow({
  request,
  links,
  now,
  mayRelease,
  onRelease,
}: {
  request: RateRequest;
  links: Link[];
  now: number;
  mayRelease: boolean;
  onRelease: () => void;
}) {
  const { color, text } = state(request);
  const used = Math.max(0, ...request.confirmations.map((confirmation) => confirmation.kernel_rate_bps));
  const open = OPEN.includes(request.lifecycle);
  return (
    <Table.Tr data-testid={`request-${request.id}`}>
      <Table.Th scope="row">
        <Text size="sm" fw={600}>
          {request.request.source} → {request.request.destination}
        </Text>
        <Text size="xs">{request.request.description || request.id}</Text>
      </Table.Th>
      <Table.Td>
        <Badge
          color={color}
          variant="outline"
          miw="max-content"
          styles={{ label: { color: "var(--mantine-color-text)" } }}
        >
          {text}
        </Badge>
        {request.reason ? <Text size="xs">{request.reason}</Text> : null}
      </Table.Td>
      <Table.Td>{request.request.service}</Table.Td>
      <Table.Td ta="right">{formatRate(request.granted_bps)}</Table.Td>
      <Table.Td ta="right">{open && used > 0 ? formatRate(used) : "–"}</Table.Td>
      <Table.Td>
        <Text size="xs" maw={220}>
          {pathLabel(request.path, links)}
        </Text>
      </Table.Td>
      <Table.Td>{request.owner}</Table.Td>
      <Table.Td ta="right" style={{ whiteSpace: "nowrap" }}>
        {formatAge(request.created_at, now)}
      </Table.Td>
      <Table.Td>
        {open && mayRelease ? (
          <Button
            size="compact-sm"
            variant="default"
            onClick={onRelease}
            aria-label={`Release ${request.request.source} to ${request.request.destination}, ${request.request.description || request.id}`}
          >
            Release
          </Button>
        ) : null}
      </Table.Td>
    </Table.Tr>
  );
}

interface Props {
  items: RateRequest[];
  links: Link[];
  now: number;
  mayRelease: boolean;
  onRelease: (request: RateRequest) => void;
}

const HEADINGS: [string, "left" | "right"][] = [
  ["Request", "left"],
  ["State", "left"],
  ["Service", "left"],
  ["Guaranteed", "right"],
  ["In the kernel", "right"],
  ["Path", "left"],
  ["Owner", "left"],
  ["Asked", "right"],
  ["Action", "left"],
];

export function RequestTable({ items, links, now, mayRelease, onRelease }: Props) {
  return (
    <Card withBorder>
      <Table.ScrollContainer minWidth={900} scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}>
        <Table highlightOnHover>
          <Table.Thead>
            <Table.Tr>
              {HEADINGS.map(([heading, align]) => (
                <Table.Th key={heading} scope="col" ta={align}>
                  {heading}
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {items.map((request) => (
              <RequestRow
                key={request.id}
                request={request}
                links={links}
                now={now}
                mayRelease={mayRelease}
                onRelease={() => {
                  onRelease(request);
                }}
              />
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}
