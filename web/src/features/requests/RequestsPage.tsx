/** The rate requests: what was asked, what became of it, and a form for a new one. */
import { Badge, Button, Card, Drawer, Group, Modal, Stack, Table, Text, Title } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api } from "../../api/client";
import type { RateRequest } from "../../api/types";
import { useRateRequests, useSession } from "../../api/useLive";
import { Empty, Failed, Loading } from "../../shared/Notices";
import { formatAge, formatRate } from "../../shared/units";
import { RequestForm } from "./RequestForm";

const OPEN: RateRequest["lifecycle"][] = ["HELD", "RESERVED", "ACTIVE"];

function state(request: RateRequest): { color: string; text: string } {
  if (!OPEN.includes(request.lifecycle)) return { color: "gray", text: request.lifecycle.toLowerCase() };
  if (request.enforcement === "ENFORCED") return { color: "teal", text: "enforced" };
  if (request.enforcement === "FAILED") return { color: "red", text: "not enforced" };
  return { color: "orange", text: "pending" };
}

function RequestRow({
  request,
  mayRelease,
  onRelease,
}: {
  request: RateRequest;
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
        <Badge color={color} variant="outline" styles={{ label: { color: "var(--mantine-color-text)" } }}>
          {text}
        </Badge>
        {request.reason ? <Text size="xs">{request.reason}</Text> : null}
      </Table.Td>
      <Table.Td>{request.request.service}</Table.Td>
      <Table.Td>{formatRate(request.granted_bps)}</Table.Td>
      <Table.Td>{open && used > 0 ? formatRate(used) : "–"}</Table.Td>
      <Table.Td>
        <Text size="xs">{request.path.join(", ")}</Text>
      </Table.Td>
      <Table.Td>{request.owner}</Table.Td>
      <Table.Td>{formatAge(request.created_at)}</Table.Td>
      <Table.Td>
        {open && mayRelease ? (
          <Button size="compact-sm" variant="default" onClick={onRelease}>
            Release
          </Button>
        ) : null}
      </Table.Td>
    </Table.Tr>
  );
}

export function RequestsPage() {
  const requests = useRateRequests();
  const session = useSession();
  const queries = useQueryClient();
  const [formOpen, form] = useDisclosure();
  const [releasing, setReleasing] = useState<RateRequest | null>(null);
  const release = useMutation({
    mutationFn: (id: string) => api.releaseRateRequest(id),
    onSuccess: () => {
      setReleasing(null);
      void queries.invalidateQueries({ queryKey: ["rate-requests"] });
    },
  });
  const roles = session.data?.roles ?? [];
  const mayAsk = roles.some((role) => role !== "viewer");
  const created = (request: RateRequest) => {
    form.close();
    void queries.invalidateQueries({ queryKey: ["rate-requests"] });
    notifications.show({
      title: "Rate granted",
      message: `${formatRate(request.granted_bps)} from ${request.request.source} to ${request.request.destination}`,
      color: "teal",
    });
  };

  if (requests.isPending) return <Loading what="rate requests" />;
  if (requests.isError) return <Failed error={requests.error} retry={() => void requests.refetch()} />;
  const items = requests.data.items;
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={1} size="h3">
          Rate requests
        </Title>
        {mayAsk ? <Button onClick={form.open}>New request</Button> : null}
      </Group>
      {items.length === 0 ? (
        <Empty title="Nobody has asked for a rate yet">
          A rate request gives the flows between two nodes a rate that the network keeps.
        </Empty>
      ) : (
        <Card withBorder>
          <Table.ScrollContainer minWidth={900}>
            <Table>
              <Table.Thead>
                <Table.Tr>
                  {[
                    "Request",
                    "State",
                    "Service",
                    "Guaranteed",
                    "In the kernel",
                    "Path",
                    "Owner",
                    "Asked",
                    "Action",
                  ].map((heading) => (
                    <Table.Th key={heading} scope="col">
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
                    mayRelease={mayAsk}
                    onRelease={() => {
                      setReleasing(request);
                    }}
                  />
                ))}
              </Table.Tbody>
            </Table>
          </Table.ScrollContainer>
        </Card>
      )}
      <Drawer
        opened={formOpen}
        onClose={form.close}
        title="Ask for a rate"
        position="right"
        size="lg"
        closeButtonProps={{ "aria-label": "Close the form" }}
      >
        <RequestForm onCreated={created} />
      </Drawer>
      <Modal
        opened={releasing !== null}
        onClose={() => {
          setReleasing(null);
        }}
        title="Release this rate?"
        closeButtonProps={{ "aria-label": "Keep the rate" }}
      >
        <Stack>
          <Text size="sm">
            The flows of {releasing?.request.source} → {releasing?.request.destination} go on under the
            default congestion control.
          </Text>
          {release.isError ? <Failed error={release.error} /> : null}
          <Group justify="flex-end">
            <Button
              color="red.9"
              loading={release.isPending}
              onClick={() => {
                if (releasing) release.mutate(releasing.id);
              }}
            >
              Release
            </Button>
          </Group>
        </Stack>
      </Modal>
    </Stack>
  );
}
