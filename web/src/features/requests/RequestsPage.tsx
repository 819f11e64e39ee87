/** The rate requests: what was asked, what became of it, and a form for a new one. */
import { Button, Drawer, Group, Modal, Stack, Text, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";

import { api } from "../../api/client";
import type { RateRequest } from "../../api/types";
import { useLinks, useRateRequests, useSession } from "../../api/useLive";
import { requestsRoute } from "../../router";
import { useNow, usePageTitle } from "../../shared/hooks";
import { Empty, Failed, Loading } from "../../shared/Notices";
import { formatRate } from "../../shared/units";
import { RequestForm } from "./RequestForm";
import { RequestTable } from "./RequestTable";

export function RequestsPage() {
  const requests = useRateRequests();
  const links = useLinks();
  const session = useSession();
  const queries = useQueryClient();
  const formOpen = requestsRoute.useSearch().form === true;
  const navigate = useNavigate();
  const show = (open: boolean) =>
    void navigate({ to: "/requests", search: open ? { form: true } : {}, replace: !open });
  const [releasing, setReleasing] = useState<RateRequest | null>(null);
  const release = useMutation({
    mutationFn: (id: string) => api.releaseRateRequest(id),
    onSuccess: () => {
      setReleasing(null);
      void queries.invalidateQueries({ queryKey: ["rate-requests"] });
    },
  });
  const now = useNow(10_000);
  usePageTitle("Rate requests");
  const roles = session.data?.roles ?? [];
  const mayAsk = roles.some((role) => role !== "viewer");
  const created = (request: RateRequest) => {
    show(false);
    void queries.invalidateQueries({ queryKey: ["rate-requests"] });
    notifications.show({
      title: "Rate granted",
      message: `${formatRate(request.granted_bps)} from ${request.request.source} to ${request.request.destination}`,
      color: "teal",
      closeButtonProps: { "aria-label": "Dismiss" },
    });
  };

  if (requests.isPending) return <Loading what="rate requests" />;
  if (requests.isError && !requests.data)
    return <Failed error={requests.error} retry={() => void requests.refetch()} />;
  const items = requests.data.items;
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={1} size="h3">
          Rate requests
        </Title>
        {mayAsk ? (
          <Button
            onClick={() => {
              show(true);
            }}
          >
            New request
          </Button>
        ) : null}
      </Group>
      {items.length === 0 ? (
        <Empty title="Nobody has asked for a rate yet">
          A rate request gives the flows between two nodes a rate that the network keeps.
        </Empty>
      ) : (
        <RequestTable
          items={items}
          links={links.data ?? []}
          now={now}
          mayRelease={mayAsk}
          onRelease={setReleasing}
        />
      )}
      <Drawer
        opened={formOpen}
        onClose={() => {
          show(false);
        }}
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
