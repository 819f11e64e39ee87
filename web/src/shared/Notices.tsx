/** What a page says when it has nothing to show, waits, or failed. */
import { Alert, Button, Center, EmptyState, Loader, Stack, Text, Title } from "@mantine/core";
import { IconMoodEmpty } from "@tabler/icons-react";
import type { UseQueryResult } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { ApiError } from "../api/client";
import { usePageTitle } from "./hooks";

export function Loading({ what }: { what: string }) {
  return (
    <Center mih={240} role="status">
      <Stack align="center" gap="xs">
        <Loader />
        <Text>Loading {what} …</Text>
      </Stack>
    </Center>
  );
}

export function Failed({ error, retry }: { error: Error; retry?: () => void }) {
  const suggestions = error instanceof ApiError ? (error.problem.suggestions ?? []) : [];
  const title = error instanceof ApiError ? error.problem.title : "Something went wrong";
  return (
    <Alert color="red" title={title} role="alert" variant="outline">
      <Text size="sm">{error.message}</Text>
      {suggestions.map((suggestion) => (
        <Text size="sm" key={suggestion}>
          {suggestion}
        </Text>
      ))}
      {retry ? (
        <Button mt="sm" size="xs" variant="default" onClick={retry}>
          Try again
        </Button>
      ) : null}
    </Alert>
  );
}

interface EmptyProps {
  title: string;
  children: ReactNode;
  /** Level of the heading: 1 where nothing else names the page. */
  level?: 1 | 2;
}

export function Empty({ title, children, level = 2 }: EmptyProps) {
  return (
    <EmptyState
      mih={240}
      py="xl"
      title={
        <Title order={level} size="h4">
          {title}
        </Title>
      }
      description={children}
      icon={<IconMoodEmpty aria-hidden />}
    />
  );
}

export function NotFound() {
  usePageTitle("Page not found");
  return (
    <Empty title="Page not found" level={1}>
      <Link to="/">Back to the overview</Link>
    </Empty>
  );
}

/** A page that fell over: the frame stays, and the way to the other pages with it. */
export function PageFailed({ error, reset }: { error: unknown; reset: () => void }) {
  return <Failed error={error instanceof Error ? error : new Error(String(error))} retry={reset} />;
}

interface FetchedProps<T> {
  query: UseQueryResult<T>;
  /** What is being loaded, in words. */
  what: string;
  children: (data: T) => ReactNode;
}

/** What was fetched; until then that it is being loaded, or why it cannot be. Older data stay when a renewal fails. */
export function Fetched<T>({ query, what, children }: FetchedProps<T>) {
  if (query.data !== undefined)
    return (
      <>
        {query.isError ? <NotRenewed what={what} error={query.error} /> : null}
        {children(query.data)}
      </>
    );
  if (query.isError) return <Failed error={query.error} retry={() => void query.refetch()} />;
  return <Loading what={what} />;
}

function NotRenewed({ what, error }: { what: string; error: Error }) {
  return (
    <Alert color="orange" variant="outline" role="status" mb="sm" title={`Stale: ${what}`}>
      <Text size="sm">The data shown is from before. {error.message}</Text>
    </Alert>
  );
}
