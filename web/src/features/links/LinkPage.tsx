/** One link: its load now and in the last minutes, its fair share, and what sensors measured. */
import { Alert, SimpleGrid, Stack } from "@mantine/core";
import { Link as RouterLink } from "@tanstack/react-router";

import type { Link } from "../../api/types";
import { meanOfSeries, useLinks } from "../../api/useLive";
import { linkRoute } from "../../router";
import { Figure } from "../../shared/Figure";
import { useNow, usePageTitle, useRange } from "../../shared/hooks";
import { Empty, Failed, Loading } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { RangePicker } from "../../shared/RangePicker";
import { TextLink } from "../../shared/TextLink";
import { formatAge, formatMs, formatRate, formatShare } from "../../shared/units";
import { loadIsStale } from "../map/linkLabel";
import { ArchivedCharts, isLive, LiveCharts, useMarks } from "./LinkCharts";
import { useSensed } from "./useLinkRows";

export function LinkPage() {
  const { linkId } = linkRoute.useParams();
  return <LinkDetail key={linkId} linkId={linkId} />;
}

function LinkDetail({ linkId }: { linkId: string }) {
  const links = useLinks();
  const link = links.data?.find((candidate) => candidate.id === linkId);
  const now = useNow();
  usePageTitle(link ? `${link.from_node} → ${link.to_node}` : "Link");

  if (links.isPending) return <Loading what="the link" />;
  if (links.isError && !links.data) return <Failed error={links.error} retry={() => void links.refetch()} />;
  if (!link)
    return (
      <Empty title="Link not found" level={1}>
        No link has the id <code>{linkId}</code>. <RouterLink to="/network">Back to the network</RouterLink>
      </Empty>
    );
  return (
    <Stack>
      <PageHeader title={`${link.from_node} → ${link.to_node}`} actions={<RangePicker />}>
        <code>{link.id}</code>, {formatRate(link.capacity_bps)}
        {link.delay_us ? `, ${formatMs(link.delay_us)} one-way delay, as configured` : ""}. {adviceOf(link)}
        <TextLink to="/network">All links</TextLink>
      </PageHeader>
      {loadIsStale(link, now) ? (
        <Alert color="orange" variant="outline" title="No recent load report" data-testid="stale">
          {link.load
            ? `The last load report arrived ${formatAge(link.load.at, now)}; the load shown is from then.`
            : "No agent has reported the load of this link yet."}
        </Alert>
      ) : null}
      <LinkFigures link={link} now={now} />
    </Stack>
  );
}

/** What flows without an explicit rate are told here (docs/advice.md). */
function adviceOf(link: Link): string {
  const { scone, scone_police, quick_start, quick_start_threshold, quick_start_share, advice_prefixes } =
    link;
  const policed = scone_police ? ", and lose what they send above it" : "";
  const share =
    quick_start_share < 1 ? `, each with up to ${formatShare(quick_start_share)} of what is spare` : "";
  const upTo = `up to ${formatShare(quick_start_threshold)} of the capacity`;
  const told = [
    ...(scone ? [`QUIC connections are advised of their rate (SCONE)${policed}. `] : []),
    ...(quick_start ? [`Quick-Start requests are approved ${upTo}${share}. `] : []),
    ...((scone || quick_start) && advice_prefixes.length > 0
      ? [`Both are for flows from or to ${advice_prefixes.join(", ")} alone. `]
      : []),
  ];
  return told.join("");
}

function LinkFigures({ link, now }: { link: Link; now: number }) {
  const range = useRange();
  const sensed = useSensed(link);
  const marks = useMarks(link, range);
  const { load, rate, measured } = link;
  const age = (at: string | undefined) => (at ? formatAge(at, now) : undefined);
  const meanLoss = sensed.loss ? meanOfSeries(sensed.loss) : null;
  return (
    <>
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }} spacing="sm">
        <Figure label="Utilisation" value={formatShare(load?.utilisation)} note={age(load?.at)} />
        <Figure label="Sent" value={formatRate(load?.sent_bps)} note={age(load?.at)} />
        <Figure
          label="Fair share"
          value={formatRate(rate?.available_bps)}
          note="per user, above guaranteed rates"
        />
        <Figure
          label="Round-trip loss"
          value={formatShare(meanLoss ?? measured?.loss_ratio?.value, 1)}
          note="mean of 5 minutes"
        />
        <Figure label="RTT" value={formatMs(measured?.rtt_us?.value)} note={age(measured?.rtt_us?.at)} />
        <Figure
          label="Available bandwidth"
          value={formatRate(measured?.available_bandwidth_bps?.value)}
          note={age(measured?.available_bandwidth_bps?.at)}
        />
      </SimpleGrid>
      {isLive(range) ? (
        <LiveCharts link={link} now={now} sensed={sensed} label={range.label} marks={marks} />
      ) : (
        <ArchivedCharts link={link} range={range} marks={marks} />
      )}
    </>
  );
}
