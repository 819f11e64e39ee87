/** Groups of pairs: made and changed, and what was measured between the pairs of one. */
import { SegmentedControl, Select, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";

import { api } from "../../api/client";
import { pairGroupsRoute, type PairGroupsSearch } from "../../router";
import { useRange } from "../../shared/hooks";
import { PageHeader } from "../../shared/PageHeader";
import { RangePicker } from "../../shared/RangePicker";
import { metricOf, METRICS } from "../paths/matrix";
import { PairGroupDetail } from "./PairGroupDetail";
import { GROUPS_KEY, PairGroups } from "./PairGroups";

export function PairGroupsPage() {
  const search = pairGroupsRoute.useSearch();
  const navigate = useNavigate();
  const range = useRange();
  const metric = metricOf(search.metric);
  const groups = useQuery({ queryKey: GROUPS_KEY, queryFn: api.pairGroups, refetchInterval: 10_000 });
  const known = groups.data ?? [];
  const shown = known.find(({ id }) => id === search.group) ?? known[0];
  const go = (change: PairGroupsSearch) =>
    void navigate({ to: "/pair-groups", search: (before) => ({ ...before, ...change }), replace: true });
  return (
    <Stack>
      <PageHeader
        title="Groups of pairs"
        fetchedAt={groups.dataUpdatedAt}
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
        Pairs that are looked at together: mean, median and 95th percentile of what was measured between them.
      </PageHeader>
      <PairGroups groups={groups} />
      {known.length > 1 ? (
        <Select
          label="Series of"
          w={240}
          data={known.map(({ id }) => id)}
          value={shown?.id ?? null}
          onChange={(value) => {
            go({ group: value ?? undefined });
          }}
          allowDeselect={false}
        />
      ) : null}
      {shown ? (
        <PairGroupDetail key={`${shown.id} ${metric.id}`} group={shown} metric={metric} range={range} />
      ) : null}
    </Stack>
  );
}
