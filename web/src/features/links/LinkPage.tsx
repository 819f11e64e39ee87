/** One link: what it carries now and in the last minutes, what it offers, what sensing found. */
import { Alert, Anchor, Card, Group, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { Link as RouterLink } from "@tanstack/react-router";
import { useMemo } from "react";

import type { Link } from "../../api/types";
import { meanOfSeries, useLinks } from "../../api/useLive";
import { linkRoute } from "../../router";
import { useNow, usePageTitle } from "../../shared/hooks";
import { Empty, Failed, Loading } from "../../shared/Notices";
import { formatAge, formatBytes, formatMs, formatRate, formatShare } from "../../shared/units";
import { loadIsStale } from "../map/linkLabel";
import { LiveChart, type ChartSeries } from "./LiveChart";
import { useLoadRows, useSensed } from "./useLinkRows";
import { columns, LOAD_METRICS, WINDOW_S } from "./window";

/** Sensing runs come every few seconds; a longer silence than this is drawn as a gap. */
const SENSED_GAP_S = 15;

const RATES: ChartSeries[] = [
  { label: "sent", color: "cyan", fill: true },
  { label: "at explicit rates", color: "teal" },
  { label: "legacy", color: "orange", dashed: true },
];
const QUEUE: ChartSeries[] = [{ label: "queue", color: "grape", fill: true }];
const RTT: ChartSeries[] = [{ label: "round trip", color: "indigo" }];

function Figure({ label, value, note }: { label: string; value: string; note?: string | undefined }) {
  return (
    <Card withBorder padding="sm">
      <Text size="sm">{label}</Text>
      <Text
        size="xl"
        fw={600}
        style={{ fontVariantNumeric: "tabular-nums", whiteSpace: "nowrap" }}
        data-testid={label.toLowerCase()}
      >
        {value}
      </Text>
      {note ? <Text size="xs">{note}</Text> : null}
    </Card>
  );
}

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
      <Empty title="There is no such link" level={1}>
        Nothing is known of <code>{linkId}</code>. <RouterLink to="/network">Back to the network</RouterLink>
      </Empty>
    );
  return (
    <Stack>
      <div>
        <Group justify="space-between">
          <Title order={1} size="h3">
            {link.from_node} → {link.to_node}
          </Title>
          <Anchor
            renderRoot={(props) => <RouterLink to="/network" {...props} />}
            c="var(--mantine-color-text)"
            underline="always"
            size="sm"
          >
            All links
          </Anchor>
        </Group>
        <Text size="sm">
          <code>{link.id}</code>, {formatRate(link.capacity_bps)}
          {link.delay_us ? `, ${formatMs(link.delay_us)} one way as configured` : ""}
        </Text>
      </div>
      {loadIsStale(link, now) ? (
        <Alert color="orange" variant="outline" title="This link is silent" data-testid="stale">
          {link.load
            ? `Its agent last said ${formatAge(link.load.at, now)} what it carries; what is shown of its load is from then.`
            : "No agent has said yet what it carries."}
        </Alert>
      ) : null}
      <LinkFigures link={link} now={now} />
    </Stack>
  );
}

function LinkFigures({ link, now }: { link: Link; now: number }) {
  const rows = useLoadRows(link.id);
  const sensed = useSensed(link);
  const [times, sent, explicit, legacy, queue] = useMemo(() => columns(rows, LOAD_METRICS.length), [rows]);
  const [sensedAt, rtt] = useMemo(() => columns(sensed.rtt, 1, SENSED_GAP_S), [sensed.rtt]);
  const { load, rate, measured } = link;
  const age = (at: string | undefined) => (at ? formatAge(at, now) : undefined);
  const meanLoss = sensed.loss ? meanOfSeries(sensed.loss) : null;
  const axis = { untilS: now / 1000, windowS: WINDOW_S };
  return (
    <>
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }} spacing="sm">
        <Figure label="Utilisation" value={formatShare(load?.utilisation)} note={age(load?.at)} />
        <Figure label="Sent" value={formatRate(load?.sent_bps)} note={age(load?.at)} />
        <Figure label="Offered rate" value={formatRate(rate?.available_bps)} note="to each flow" />
        <Figure
          label="Loss, both ways"
          value={formatShare(meanLoss ?? measured?.loss_ratio?.value, 1)}
          note="mean of five minutes"
        />
        <Figure label="RTT" value={formatMs(measured?.rtt_us?.value)} note={age(measured?.rtt_us?.at)} />
        <Figure
          label="Sensed free"
          value={formatRate(measured?.available_bandwidth_bps?.value)}
          note={age(measured?.available_bandwidth_bps?.at)}
        />
      </SimpleGrid>
      <Card withBorder>
        <LiveChart
          title="Rate, last five minutes"
          series={RATES}
          data={[times, sent ?? [], explicit ?? [], legacy ?? []]}
          format={formatRate}
          floor={link.capacity_bps / 10}
          ceiling={link.capacity_bps * 1.25}
          {...axis}
        />
      </Card>
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <Card withBorder>
          <LiveChart
            title="Queue"
            series={QUEUE}
            data={[times, queue ?? []]}
            format={formatBytes}
            floor={10_000}
            height={150}
            {...axis}
          />
        </Card>
        <Card withBorder>
          <LiveChart
            title="Sensed round-trip time"
            series={RTT}
            data={[sensedAt, rtt ?? []]}
            format={formatMs}
            floor={5000}
            height={150}
            {...axis}
          />
        </Card>
      </SimpleGrid>
    </>
  );
}
