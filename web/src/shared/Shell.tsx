/** Frame of every page: navigation, connection state, colour scheme, session. */
import {
  ActionIcon,
  Alert,
  AppShell,
  Badge,
  Burger,
  Button,
  Group,
  NavLink,
  ScrollArea,
  Text,
  Title,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { spotlight } from "@mantine/spotlight";
import { IconCommand, IconMoon, IconSun } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { startTransition, useEffect } from "react";

import { api, ApiError } from "../api/client";
import type { Connection } from "../api/events";
import { useConnection, useLiveEvents, useSession } from "../api/useLive";
import { SignIn } from "../features/session/SignIn";
import { type Group as PageGroup, isAt, pagesFor } from "./actions";
import { Failed, Loading } from "./Notices";
import { Palette } from "./Palette";
import classes from "./Shell.module.css";

const CONNECTION: Record<Connection, { color: string; text: string }> = {
  connecting: { color: "gray", text: "connecting" },
  live: { color: "teal", text: "live" },
  lost: { color: "red", text: "offline, retrying" },
};

const GROUPS: PageGroup[] = ["Watch", "Rates", "Measure", "Trust"];

function SchemeToggle() {
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");
  const next = scheme === "light" ? "dark" : "light";
  return (
    <ActionIcon
      variant="default"
      size="lg"
      aria-label={`Switch to the ${next} theme`}
      onClick={() => {
        // The page's colours change at once by its variables; what is drawn by script follows when there is time for it.
        startTransition(() => {
          setColorScheme(next);
        });
      }}
    >
      {scheme === "light" ? <IconMoon size={18} /> : <IconSun size={18} />}
    </ActionIcon>
  );
}

function Offline() {
  return (
    <Alert color="red" variant="outline" title="The connection to the gateway is lost" mb="md" role="alert">
      Traffic in the network is not affected. The data shown is from before and is updated once the gateway
      answers.
    </Alert>
  );
}

export function Shell() {
  const session = useSession();
  const live = useLiveEvents();
  const connection = useConnection();
  const queries = useQueryClient();
  const { pathname } = useLocation();
  const [opened, { toggle, close }] = useDisclosure();
  // Only the gateway's own word ends a session: while it does not answer, what is known stays on the page.
  const refused = session.error instanceof ApiError && session.error.problem.status === 401;
  const signedIn = session.data !== undefined && !refused;
  const roles = signedIn ? session.data.roles : [];
  const refetchSession = () => void session.refetch();

  useEffect(() => {
    if (!signedIn) return;
    live.open();
    return () => {
      live.close();
    };
  }, [live, signedIn]);

  const signedInAgain = () => {
    // After a session that ran out: what its person was shown is not the next one's.
    queries.removeQueries({ predicate: ({ queryKey }) => queryKey[0] !== "session" });
    refetchSession();
  };

  const signOut = async () => {
    await api.signOut();
    live.close();
    queries.clear();
    await session.refetch();
  };

  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 208, breakpoint: "sm", collapsed: { mobile: !opened } }}
      padding="md"
    >
      <AppShell.Header px={{ base: "xs", sm: "md" }}>
        <a href="#content" className={classes.skip}>
          Skip to the content
        </a>
        <Group h="100%" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger opened={opened} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Navigation" />
            <img src="/chart.svg" alt="" width={28} height={28} />
            <Text fw={700} size="lg" component="span" visibleFrom="xs">
              CHART
            </Text>
          </Group>
          <Group gap="sm" wrap="nowrap">
            {signedIn ? (
              <>
                <Button
                  size="xs"
                  variant="default"
                  visibleFrom="xs"
                  leftSection={<IconCommand size={14} aria-hidden />}
                  onClick={spotlight.open}
                >
                  Find
                </Button>
                <Badge
                  variant="dot"
                  color={CONNECTION[connection].color}
                  role="status"
                  data-testid="connection"
                >
                  {CONNECTION[connection].text}
                </Badge>
                <Text size="sm" visibleFrom="sm">
                  {session.data.subject}
                </Text>
                <Button size="xs" variant="default" onClick={() => void signOut()}>
                  Sign out
                </Button>
              </>
            ) : null}
            <SchemeToggle />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="sm" aria-label="Pages">
        <ScrollArea type="auto" viewportProps={{ tabIndex: -1 }}>
          {GROUPS.map((group) => {
            const pages = pagesFor(roles).filter((page) => page.group === group);
            return pages.length === 0 ? null : (
              <div key={group} role="group" aria-label={group}>
                <Text size="xs" fw={600} c="dimmed" px="sm" pt="xs" aria-hidden>
                  {group}
                </Text>
                {pages.map((page) => (
                  <NavLink
                    key={page.id}
                    component={Link}
                    to={page.to}
                    label={page.label}
                    leftSection={<page.icon size={18} aria-hidden />}
                    active={isAt(page, pathname)}
                    aria-current={isAt(page, pathname) ? "page" : undefined}
                    variant="light"
                    color="gray"
                    py={6}
                    onClick={close}
                  />
                ))}
              </div>
            );
          })}
        </ScrollArea>
      </AppShell.Navbar>
      <AppShell.Main id="content" tabIndex={-1}>
        {session.isPending ? (
          <Loading what="your session" />
        ) : signedIn ? (
          <>
            <Palette roles={roles} onSignOut={() => void signOut()} />
            {connection === "lost" ? <Offline /> : null}
            <Outlet />
          </>
        ) : refused ? (
          <SignIn onSignedIn={signedInAgain} />
        ) : (
          <>
            <Title order={1} size="h3" mb="md">
              CHART
            </Title>
            {session.error ? <Failed error={session.error} retry={refetchSession} /> : null}
          </>
        )}
      </AppShell.Main>
    </AppShell>
  );
}
