/** Head of a page: its name, what it says in a sentence, how old its figures are, and what can be done here. */
import { Badge, Group, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";

import { useNow, usePageTitle } from "./hooks";
import { formatAge } from "./units";

interface Props {
  title: string;
  children?: ReactNode;
  actions?: ReactNode;
  /** When what is shown was fetched (milliseconds); older than `staleMs` it is called stale. */
  fetchedAt?: number | undefined;
  staleMs?: number;
}

export function PageHeader({ title, children, actions, fetchedAt, staleMs = 60_000 }: Props) {
  usePageTitle(title);
  return (
    <Group justify="space-between" align="flex-start" gap="xs">
      <div>
        <Group gap="sm">
          <Title order={1} size="h3">
            {title}
          </Title>
          {fetchedAt ? <Freshness at={fetchedAt} staleMs={staleMs} /> : null}
        </Group>
        {children ? (
          <Text size="sm" c="dimmed" maw={720}>
            {children}
          </Text>
        ) : null}
      </div>
      {actions ? <Group gap="xs">{actions}</Group> : null}
    </Group>
  );
}

function Freshness({ at, staleMs }: { at: number; staleMs: number }) {
  const now = useNow(5000);
  if (now - at <= staleMs) return null;
  return (
    <Badge
      color="orange.9"
      variant="outline"
      tt="none"
      data-testid="stale-page"
      styles={{ label: { color: "var(--mantine-color-text)" } }}
    >
      stale: as of {formatAge(new Date(at).toISOString(), now)}
    </Badge>
  );
}
