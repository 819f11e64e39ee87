/** The rate requests: what was asked, what became of it, and a form for a new one. */
import { Button, Drawer, Stack } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";

import type { RateRequest } from "../../api/types";
import { useLinks, useRateRequests } from "../../api/useLive";
import { requestsRoute } from "../../router";
import { useMay, useNow } from "../../shared/hooks";
import { Empty, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { formatRate } from "../../shared/units";
import { RequestForm } from "./RequestForm";
import { RequestTable } from "./RequestTable";

export function RequestsPage() {
  const requests = useRateRequests();
  const links = useLinks();
  const queries = useQueryClient();
  const { form, like } = requestsRoute.useSearch();
  const navigate = useNavigate();
  const show = (open: boolean) =>
    void navigate({ to: "/requests", search: open ? { form: true } : {}, replace: !open });
  const now = useNow(10_000);
  const mayAsk = useMay("application", "operator", "admin");
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
  const model = requests.data?.items.find(({ id }) => id === like);
  return (
    <Stack>
      <PageHeader
        title="Rate requests"
        actions={
          mayAsk ? (
            <Button
              onClick={() => {
                show(true);
              }}
            >
              New request
            </Button>
          ) : null
        }
      >
        A rate request gives the flows between two nodes a rate that the network keeps, until it ends or is
        released.
      </PageHeader>
      <Fetched query={requests} what="rate requests">
        {({ items, next_cursor }) =>
          items.length === 0 ? (
            <Empty title="No rate requests yet">
              {mayAsk
                ? "The form shows whether a request would be granted before it is sent."
                : "Read only: new requests need the role application or operator."}
            </Empty>
          ) : (
            <RequestTable
              items={items}
              links={links.data ?? []}
              now={now}
              mayRelease={mayAsk}
              more={Boolean(next_cursor)}
            />
          )
        }
      </Fetched>
      <Drawer
        opened={form === true && mayAsk && (like === undefined || !requests.isPending)}
        onClose={() => {
          show(false);
        }}
        title="New rate request"
        position="right"
        size="lg"
        closeButtonProps={{ "aria-label": "Close the form" }}
      >
        <RequestForm onCreated={created} like={model?.request} />
      </Drawer>
    </Stack>
  );
}
