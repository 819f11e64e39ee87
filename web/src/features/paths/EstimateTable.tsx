/** What the heat map shows, in words and numbers. */
import { useMemo } from "react";

import type { Estimate } from "../../api/types";
import { type Column, DataTable } from "../../shared/DataTable";
import { State } from "../../shared/State";
import { intervalOf, isMeasured, type Metric } from "./matrix";

export function EstimateTable({ items, metric }: { items: Estimate[]; metric: Metric }) {
  const columns = useMemo<Column<Estimate>[]>(
    () => [
      {
        id: "path",
        header: "Path",
        value: ({ source_node, destination_node }) => `${source_node} → ${destination_node}`,
      },
      {
        id: "value",
        header: metric.label,
        align: "right",
        value: ({ value }) => value,
        cell: ({ value }) => metric.format(value),
      },
      {
        id: "method",
        header: "Method",
        value: ({ method }) => method,
        cell: (estimate) => (
          <State tone={isMeasured(estimate) ? "good" : "busy"}>
            {isMeasured(estimate) ? "measured" : `inferred: ${estimate.method}`}
          </State>
        ),
      },
      {
        id: "interval",
        header: "90 % interval",
        align: "right",
        value: ({ interval_high, interval_low }) => interval_high - interval_low,
        cell: (estimate) => intervalOf(estimate, metric),
      },
      {
        id: "age_s",
        header: "Age",
        align: "right",
        value: ({ age_s }) => Math.round(age_s),
        cell: ({ age_s }) => `${Math.round(age_s)} s`,
      },
    ],
    [metric],
  );
  return (
    <DataTable
      label="Pairs"
      rows={items}
      columns={columns}
      rowKey={({ source_node, destination_node }) => `${source_node},${destination_node}`}
      minWidth={600}
    />
  );
}
