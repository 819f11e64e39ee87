/** What a page says when it has nothing to show, waits, or failed. */
import { Alert, Button, Center, Loader, Stack, Text, Title } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";

import { ApiError } from "../api/client";

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

export function Empty({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Center mih={240}>
      <Stack align="center" gap="xs" maw={420} ta="center">
        <Title order={2} size="h4">
          {title}
        </Title>
        <Text>{children}</Text>
      </Stack>
    </Center>
  );
}

export function NotFound() {
  return (
    <Empty title="There is no such page">
      <Link to="/">Back to the network</Link>
    </Empty>
  );
}
