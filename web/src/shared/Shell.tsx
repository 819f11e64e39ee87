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
  Text,
  Title,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconMoon, IconNetwork, IconReceipt, IconSun } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { Link, Outlet, useLocation } from "@tanstack/react-router";
import { useEffect } from "react";

import { api, ApiError } from "../api/client";
import type { Connection } from "../api/events";
import { useConnection, useLiveEvents, useSession } from "../api/useLive";
import { SignIn } from "../features/session/SignIn";
import { Failed, Loading } from "./Notices";
import classes from "./Shell.module.css";

const CONNECTION: Record<Connection, { color: string; text: string }> = {
  connecting: { color: "gray", text: "connecting" },
  live: { color: "teal", text: "live" },
  lost: { color: "red", text: "offline, retrying" },
};

const PAGES = [
  { to: "/", label: "Network", icon: IconNetwork },
  { to: "/requests", label: "Rate requests", icon: IconReceipt },
] as const;

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
        setColorScheme(next);
      }}
    >
      {scheme === "light" ? <IconMoon size={18} /> : <IconSun size={18} />}
    </ActionIcon>
  );
}

function Offline() {
  return (
    <Alert color="red" variant="outline" title="The connection to the gateway is lost" mb="md" role="alert">
      Traffic in the network goes on. What is shown is from before, and renews itself once the gateway
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
  const signedIn = session.data !== undefined && !session.isError;
  const refetchSession = () => void session.refetch();

  useEffect(() => {
    if (!signedIn) return;
    live.open();
    return () => {
      live.close();
    };
  }, [live, signedIn]);

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
        {PAGES.map(({ to, label, icon: Icon }) => (
          <NavLink
            key={to}
            component={Link}
            to={to}
            label={label}
            leftSection={<Icon size={18} aria-hidden />}
            active={to === "/" ? pathname === "/" || pathname.startsWith("/links") : pathname.startsWith(to)}
            variant="light"
            color="gray"
            onClick={close}
          />
        ))}
      </AppShell.Navbar>
      <AppShell.Main id="content" tabIndex={-1}>
        {session.isPending ? (
          <Loading what="your session" />
        ) : signedIn ? (
          <>
            {connection === "lost" ? <Offline /> : null}
            <Outlet />
          </>
        ) : session.error instanceof ApiError && session.error.problem.status === 401 ? (
          <SignIn onSignedIn={refetchSession} />
        ) : (
          <>
            <Title order={1} size="h3" mb="md">
              CHART
            </Title>
            <Failed error={session.error} retry={refetchSession} />
          </>
        )}
      </AppShell.Main>
    </AppShell>
  );
}
