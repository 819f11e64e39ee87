/** What the map shows, in words and numbers: one row per direction of a link. */
import { Badge } from "@mantine/core";
import { memo, useMemo } from "react";

import type { Link } from "../../api/types";
import { useLiveEvents } from "../../api/useLive";
import { type Column, DataTable } from "../../shared/DataTable";
import { HeartbeatBar } from "../../shared/HeartbeatBar";
import { TextLink } from "../../shared/TextLink";
import { formatAge, formatMs, formatRate, formatShare } from "../../shared/units";
import { loadIsStale } from "./linkLabel";

const number = (
  id: string,
  header: string,
  value: (link: Link) => number | null | undefined,
  format: (value: number | null) => string,
): Column<Link> => ({
  id,
  header,
  align: "right",
  value: (link) => value(link) ?? null,
  cell: (link) => format(value(link) ?? null),
});

const percent = (value: number | null) => formatShare(value, 1);

const testId = (link: Link) => `link-row-${link.id}`;

/** Drawn anew only with other links or another moment: the map above it changes more often. */
export const LinkTable = memo(function LinkTable({ links, now }: { links: Link[]; now: number }) {
  const live = useLiveEvents();
  const columns = useMemo<Column<Link>[]>(() => {
    const fresh = (link: Link) => (loadIsStale(link, now) ? null : link.load);
    return [
      {
        id: "link",
        header: "Link",
        value: (link) => `${link.from_node} → ${link.to_node}`,
        cell: (link) => (
          <TextLink to="/links/$linkId" params={{ linkId: link.id }} style={{ whiteSpace: "nowrap" }}>
            {link.from_node} → {link.to_node}
          </TextLink>
        ),
      },
      {
        id: "heartbeat",
        header: "Recent load",
        value: () => null,
        cell: (link) => (
          <HeartbeatBar slots={live.heartbeat(link.id, now)} label={`${link.id}, last minutes`} />
        ),
      },
      number("capacity_bps", "Capacity", (link) => link.capacity_bps, formatRate),
      {
        id: "utilisation",
        header: "Utilisation",
        align: "right",
        value: (link) => fresh(link)?.utilisation ?? null,
        cell: (link) => {
          const load = fresh(link);
          return load ? formatShare(load.utilisation) : <Stale at={link.load?.at} now={now} />;
        },
      },
      number("sent_bps", "Sent", (link) => fresh(link)?.sent_bps, formatRate),
      number("explicit_rate_bps", "Explicit rate", (link) => fresh(link)?.explicit_rate_bps, formatRate),
      number("available_bps", "Fair share", (link) => link.rate?.available_bps, formatRate),
      number("loss_ratio", "Round-trip loss", (link) => link.measured?.loss_ratio?.value, percent),
      number("rtt_us", "RTT", (link) => link.measured?.rtt_us?.value, formatMs),
      number(
        "free_bps",
        "Available bandwidth",
        (link) => link.measured?.available_bandwidth_bps?.value,
        formatRate,
      ),
    ];
  }, [now, live]);
  return (
    <DataTable
      label="Links"
      note="one row per direction; loss is the mean of the last minute"
      rows={links}
      columns={columns}
      rowKey={(link) => link.id}
      rowTestId={testId}
      minWidth={1040}
      empty="No links registered yet."
    />
  );
});

function Stale({ at, now }: { at: string | undefined; now: number }) {
  return (
    <Badge variant="default" tt="none" title="No recent load report for this link">
      {at ? `stale, ${formatAge(at, now)}` : "no report yet"}
    </Badge>
  );
}
