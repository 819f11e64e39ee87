/** One link: what it carries now and in the last minutes, what it offers, what sensing found. */
import { Anchor, Card, Group, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useQueries } from "@tanstack/react-query";
import { Link as RouterLink } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";

import { api } from "../../api/client";
import type { LinkSample } from "../../api/events";
import { useLinks, useLinkSamples } from "../../api/useLive";
import { linkRoute } from "../../router";
import { Empty, Failed, Loading } from "../../shared/Notices";
import { formatAge, formatBytes, formatMs, formatRate, formatShare } from "../../shared/units";
import { LiveChart, type ChartSeries } from "./LiveChart";
import { append, columns, LOAD_METRICS, type Row, rowOfLoad, rowsOfSeries, WINDOW_S } from "./window";

const RATES: ChartSeries[] = [
  { label: "sent", color: "cyan", fill: true },
  { label: "at explicit rates", color: "teal" },
  { label: "legacy", color: "orange", dashed: true },
];
const QUEUE: ChartSeries[] = [{ label: "queue", color: "grape", fill: true }];

function Figure({ label, value, note }: { label: string; value: string; note?: string | undefined }) {
  return (
    <Card withBorder padding="sm">
      <Text size="sm">{label}</Text>
      <Text size="xl" fw={600}>
        {value}
      </Text>
      {note ? <Text size="xs">{note}</Text> : null}
    </Card>
  );
}

function useHistory(id: string): Row[] {
  // One look back when the page opens; afterwards the event stream brings what is new.
  const [{ from, until }] = useState(() => {
    const now = Date.now();
    return { from: new Date(now - WINDOW_S * 1000), until: new Date(now) };
  });
  return useQueries({
    queries: LOAD_METRICS.map((metric) => ({
      queryKey: ["series", "link", id, metric, from.getTime()],
      queryFn: () => api.series("link", id, metric, from, until, 1000),
      staleTime: Infinity,
    })),
    combine: useCallback((results: { data: Awaited<ReturnType<typeof api.series>> | undefined }[]) => {
      const fetched = results.map((result) => result.data);
      return fetched.every((series) => series !== undefined) ? rowsOfSeries(fetched) : [];
    }, []),
  });
}

export function LinkPage() {
  const { linkId } = linkRoute.useParams();
  return <LinkDetail key={linkId} linkId={linkId} />;
}

function LinkDetail({ linkId }: { linkId: string }) {
  const links = useLinks();
  const history = useHistory(linkId);
  const [live, setLive] = useState<Row[]>([]);
  useLinkSamples(
    linkId,
    useCallback(({ load }: LinkSample) => {
      if (load) setLive((rows) => append(rows, [rowOfLoad(load)], Date.now() / 1000));
    }, []),
  );
  const rows = useMemo(
    () => append(history, live, live.at(-1)?.at ?? history.at(-1)?.at ?? 0),
    [history, live],
  );
  const data = useMemo(() => columns(rows, LOAD_METRICS.length), [rows]);

  if (links.isPending) return <Loading what="the link" />;
  if (links.isError) return <Failed error={links.error} retry={() => void links.refetch()} />;
  const link = links.data.find((candidate) => candidate.id === linkId);
  if (!link)
    return (
      <Empty title="There is no such link">
        Nothing is known of <code>{linkId}</code>. <RouterLink to="/">Back to the network</RouterLink>
      </Empty>
    );

  const [times, sent, explicit, legacy, queue] = data;
  const { load, rate, measured } = link;
  const age = (at: string | undefined) => (at ? formatAge(at) : undefined);
  return (
    <Stack>
      <Group justify="space-between">
        <Title order={1} size="h3">
          {link.from_node} → {link.to_node}
        </Title>
        <Anchor component={RouterLink} to="/" c="var(--mantine-color-text)" underline="always">
          All links
        </Anchor>
      </Group>
      <Text size="sm">
        <code>{link.id}</code>, {formatRate(link.capacity_bps)}
        {link.delay_us ? `, ${formatMs(link.delay_us)} one way as configured` : ""}
      </Text>
      <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }}>
        <Figure label="Utilisation" value={formatShare(load?.utilisation)} note={age(load?.at)} />
        <Figure label="Sent" value={formatRate(load?.sent_bps)} />
        <Figure label="Offered rate" value={formatRate(rate?.available_bps)} note="to each flow" />
        <Figure
          label="Loss"
          value={formatShare(measured?.loss_ratio?.value, 1)}
          note={age(measured?.loss_ratio?.at)}
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
        />
      </Card>
      <Card withBorder>
        <LiveChart
          title="Queue"
          series={QUEUE}
          data={[times, queue ?? []]}
          format={formatBytes}
          height={160}
        />
      </Card>
    </Stack>
  );
}
