/** Every path at a glance: a heat map of all pairs, what was measured and what was inferred, and one path's history. */
import { Alert, SegmentedControl, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";

import { api } from "../../api/client";
import { pathsRoute, type PathsSearch } from "../../router";
import { Empty, Fetched } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { RangePicker } from "../../shared/RangePicker";
import { HeatMap } from "./HeatMap";
import { EstimateTable } from "./EstimateTable";
import { matrixOf, metricOf, METRICS, pair } from "./matrix";
import { PathDetail } from "./PathDetail";

export function PathsPage() {
  const search = pathsRoute.useSearch();
  const navigate = useNavigate();
  const metric = metricOf(search.metric);
  const estimates = useQuery({
    queryKey: ["estimates", metric.id],
    queryFn: () => api.estimates(metric.id),
    refetchInterval: 5000,
  });
  const matrix = useMemo(() => matrixOf(estimates.data?.items ?? []), [estimates.data]);
  const go = (change: PathsSearch) =>
    void navigate({ to: "/paths", search: (before) => ({ ...before, ...change }), replace: true });
  const select = (source: string, destination: string) => {
    go({ source, destination });
  };
  const chosen = search.source && search.destination ? [search.source, search.destination] : null;
  return (
    <Stack>
      <PageHeader
        title="Paths"
        fetchedAt={estimates.dataUpdatedAt}
        staleMs={30_000}
        actions={
          <>
            <SegmentedControl
              size="xs"
              aria-label="Metric"
              value={metric.id}
              data={METRICS.map(({ id, short }) => ({ value: id, label: short }))}
              onChange={(value) => {
                go({ metric: value });
              }}
            />
            <RangePicker />
          </>
        }
      >
        From the sending node (rows) to the receiving node (columns). Pairs that no sensor measured are
        inferred from measured pairs, with a 90 % interval.
      </PageHeader>
      <Fetched query={estimates} what="estimates">
        {({ items, more }) =>
          items.length === 0 ? (
            <Empty title={`No estimate of ${metric.label.toLowerCase()} yet`}>
              Estimates come once sensors have measured some pairs. Configure measurements under Sensing.
            </Empty>
          ) : (
            <>
              {more ? (
                <Alert color="orange" variant="outline" title="Some pairs are not shown">
                  The network has more than {items.length} pairs; only the first are shown.
                </Alert>
              ) : null}
              <HeatMap matrix={matrix} metric={metric} chosen={chosen} onSelect={select} />
              {chosen?.[0] && chosen[1] ? (
                <PathDetail
                  source={chosen[0]}
                  destination={chosen[1]}
                  metric={metric}
                  estimate={matrix.cells.get(pair(chosen[0], chosen[1]))}
                />
              ) : null}
              <EstimateTable items={items} metric={metric} />
            </>
          )
        }
      </Fetched>
    </Stack>
  );
}
