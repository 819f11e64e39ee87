/** Health, bandwidth and what is wrong now, on one screen. */
import {
  Alert,
  Anchor,
  Card,
  Group,
  List,
  Progress,
  SimpleGrid,
  Stack,
  Text,
  ThemeIcon,
} from "@mantine/core";
import { IconAlertTriangle, IconCheck, IconExclamationCircle } from "@tabler/icons-react";
import { Link as RouterLink } from "@tanstack/react-router";
import { useState } from "react";

import type { Link } from "../../api/types";
import { useAlerts, useLinks, useNodes, useRateRequests, useTunnels } from "../../api/useLive";
import { Figure } from "../../shared/Figure";
import { HistoryChart } from "../../shared/HistoryChart";
import { useNow, useRange } from "../../shared/hooks";
import { Failed, Loading } from "../../shared/Notices";
import { PageHeader } from "../../shared/PageHeader";
import { RangePicker } from "../../shared/RangePicker";
import { TextLink } from "../../shared/TextLink";
import { formatRate, formatShare } from "../../shared/units";
import { loadIsStale } from "../map/linkLabel";
import { isOpen, stateOf } from "../requests/state";
import { type Trouble, troubles } from "./troubles";

const BUSIEST = 5;
const COLORS = ["cyan", "orange", "grape"];
const SHOWN = 8;

export function OverviewPage() {
  const nodes = useNodes();
  const links = useLinks();
  const requests = useRateRequests();
  const alerts = useAlerts();
  const tunnels = useTunnels();
  const now = useNow();
  const needed = [nodes, links];
  const failed = needed.find((query) => query.isError && !query.data);
  if (failed?.error) return <Failed error={failed.error} retry={() => void failed.refetch()} />;
  if (!nodes.data || !links.data) return <Loading what="the overview" />;
  const known = {
    nodes: nodes.data,
    links: links.data,
    requests: requests.data?.items ?? [],
    alerts: alerts.data ?? [],
    tunnels: tunnels.data ?? [],
  };
  const found = troubles(known, now);
  const busiest = busiestOf(links.data, BUSIEST);
  const away = [
    ["requests", requests],
    ["alerts", alerts],
    ["tunnels", tunnels],
  ].flatMap(([what, query]) => (typeof query !== "string" && query?.isError ? [what as string] : []));
  return (
    <Stack>
      <PageHeader title="Overview" actions={<RangePicker />} />
      {away.length > 0 ? (
        <Alert color="orange" variant="outline" role="status" title="Some data is missing">
          No update of {away.join(", ")}: the service does not respond.
        </Alert>
      ) : null}
      <Health {...known} now={now} />
      <SimpleGrid cols={{ base: 1, lg: 2 }}>
        <Troubles found={found} />
        <Busiest links={busiest} now={now} />
      </SimpleGrid>
      <Bandwidth key={links.data.length > 0 ? "some" : "none"} links={links.data} />
    </Stack>
  );
}

function Health({ nodes, links, requests, alerts, now }: Parameters<typeof troubles>[0] & { now: number }) {
  const well = nodes.filter((node) => node.state && !node.state.stale && node.state.faults.length === 0);
  const heard = links.filter((link) => !loadIsStale(link, now));
  const open = requests.filter(isOpen);
  const enforced = open.filter((request) => stateOf(request).tone === "good");
  const firing = alerts.filter((alert) => alert.resolved_at === null);
  const sent = heard.reduce((sum, link) => sum + (link.load?.sent_bps ?? 0), 0);
  const explicit = heard.reduce((sum, link) => sum + (link.load?.explicit_rate_bps ?? 0), 0);
  const bad = (wrong: boolean) => (wrong ? "var(--chart-bad)" : undefined);
  return (
    <SimpleGrid cols={{ base: 2, sm: 3, lg: 5 }} spacing="sm">
      <Figure
        label="Nodes reporting"
        value={`${well.length} of ${nodes.length}`}
        color={bad(well.length < nodes.length)}
        note="agents without faults"
      />
      <Figure
        label="Links reporting"
        value={`${heard.length} of ${links.length}`}
        color={bad(heard.length < links.length)}
        note="load reports of the last 3 s"
      />
      <Figure
        label="Rates enforced"
        value={`${enforced.length} of ${open.length}`}
        color={bad(enforced.length < open.length)}
        note={`${formatRate(open.reduce((sum, one) => sum + one.granted_bps, 0))} granted`}
      />
      <Figure
        label="Sent, all links"
        value={formatRate(sent)}
        note={`${formatShare(sent > 0 ? explicit / sent : null)} with an explicit rate`}
      />
      <Figure label="Alerts firing" value={String(firing.length)} color={bad(firing.length > 0)} />
    </SimpleGrid>
  );
}

function Troubles({ found }: { found: Trouble[] }) {
  return (
    <Card withBorder component="section" aria-label="Active problems">
      <Text size="sm" fw={600} mb="xs">
        Active problems
      </Text>
      {found.length === 0 ? (
        <Group gap="xs">
          <ThemeIcon color="teal" variant="outline" radius="xl" size="sm">
            <IconCheck size={14} aria-hidden />
          </ThemeIcon>
          <Text size="sm">None. All agents, links, rates and tunnels work as configured.</Text>
        </Group>
      ) : (
        <List spacing="xs" center listStyleType="none">
          {found.slice(0, SHOWN).map(({ id, severity, title, detail, to }) => (
            <List.Item
              key={id}
              icon={
                <ThemeIcon
                  color={severity === "bad" ? "red" : "orange"}
                  variant="outline"
                  radius="xl"
                  size="sm"
                >
                  {severity === "bad" ? (
                    <IconExclamationCircle size={14} aria-label="fault" />
                  ) : (
                    <IconAlertTriangle size={14} aria-label="warning" />
                  )}
                </ThemeIcon>
              }
            >
              <Anchor
                renderRoot={(props) => <RouterLink to={to as "/"} {...props} />}
                size="sm"
                underline="always"
                c="var(--mantine-color-text)"
              >
                {title}
              </Anchor>
              <Text size="xs">{detail}</Text>
            </List.Item>
          ))}
        </List>
      )}
      {found.length > SHOWN ? <Text size="xs">and {found.length - SHOWN} more</Text> : null}
    </Card>
  );
}

function Busiest({ links, now }: { links: Link[]; now: number }) {
  return (
    <Card withBorder component="section" aria-label="Most utilised links">
      <Text size="sm" fw={600} mb="xs">
        Most utilised links
      </Text>
      <Stack gap="xs">
        {links.map((link) => {
          const share = loadIsStale(link, now) ? null : (link.load?.utilisation ?? null);
          return (
            <div key={link.id}>
              <Group justify="space-between" gap="xs">
                <TextLink to="/links/$linkId" params={{ linkId: link.id }}>
                  {link.from_node} → {link.to_node}
                </TextLink>
                <Text size="sm" style={{ fontVariantNumeric: "tabular-nums" }}>
                  {share === null
                    ? "no report"
                    : `${formatShare(share)} · ${formatRate(link.load?.sent_bps)}`}
                </Text>
              </Group>
              <Progress
                value={Math.min(100, (share ?? 0) * 100)}
                color={share !== null && share >= 0.95 ? "red" : "cyan"}
                aria-label={`Utilisation of ${link.id}`}
                size="sm"
              />
            </div>
          );
        })}
        {links.length === 0 ? <Text size="sm">No links registered yet.</Text> : null}
      </Stack>
    </Card>
  );
}

/** Which links a chart of bandwidth is about: the busiest, of those that are as busy the narrowest. */
function busiestOf(links: Link[], most: number): Link[] {
  const busy = (link: Link) => link.load?.utilisation ?? 0;
  return [...links]
    .sort((a, b) => busy(b) - busy(a) || a.capacity_bps - b.capacity_bps || a.id.localeCompare(b.id))
    .slice(0, most);
}

/** What the busiest links sent over the page's time. */
function Bandwidth({ links }: { links: Link[] }) {
  const range = useRange();
  // Chosen when the page is opened, so that the chart does not change its lines with every report.
  const [chosen] = useState(() => busiestOf(links, COLORS.length));
  if (chosen.length === 0) return null;
  return (
    <HistoryChart
      title={`Sent over the most utilised links, ${range.label}`}
      series={chosen.map((link, index) => ({
        kind: "link",
        subject: link.id,
        metric: "sent_bps",
        label: `${link.from_node} → ${link.to_node}`,
        color: COLORS[index] ?? "cyan",
        fill: index === 0,
      }))}
      range={range}
      floor={Math.min(...chosen.map((link) => link.capacity_bps)) / 10}
      format={formatRate}
      height={190}
    />
  );
}
