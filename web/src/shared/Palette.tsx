/** The command palette and the keyboard: both from the list of actions. */
import "@mantine/spotlight/styles.css";

import { Kbd, useComputedColorScheme, useMantineColorScheme } from "@mantine/core";
import { useHotkeys } from "@mantine/hooks";
import { Spotlight, type SpotlightActionData, type SpotlightActionGroupData } from "@mantine/spotlight";
import { IconClock, IconLogout, IconMoon, IconSearch, IconSun } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { startTransition, useMemo, useState } from "react";

import { api, type Role } from "../api/client";
import type { Link } from "../api/types";
import { useRateRequests } from "../api/useLive";
import { type Command, hotkey, NEW_REQUEST_ICON, pagesFor } from "./actions";
import { DEFAULT_PRESET, PRESETS } from "./timeRange";

interface Props {
  roles: readonly Role[];
  onSignOut: () => void;
}

/** So many answers are shown at once; who wants others types on. */
const LIMIT = 12;
/** Not blurred, as the kit does it: the page under it is alive, and each of its pictures would be blurred anew. */
const OVERLAY = { backgroundOpacity: 0.35, blur: 0 };

/** Does something once the page has shown that the palette is closed: another page takes longer than that. */
function thereafter(work: () => void): void {
  requestAnimationFrame(() => setTimeout(work));
}

/** What can be done besides going somewhere. */
function useCommands({ roles, onSignOut }: Props): Command[] {
  const { setColorScheme } = useMantineColorScheme();
  const scheme = useComputedColorScheme("light");
  const navigate = useNavigate();
  const next = scheme === "light" ? "dark" : "light";
  const commands: Command[] = [
    {
      id: "new-request",
      label: "New rate request",
      icon: NEW_REQUEST_ICON,
      letter: "C",
      keywords: ["new", "request", "create"],
      roles: ["application", "operator", "admin"],
      run: () => void navigate({ to: "/requests", search: { form: true } }),
    },
    {
      id: "theme",
      label: `Switch to the ${next} theme`,
      icon: next === "dark" ? IconMoon : IconSun,
      letter: "D",
      keywords: ["dark", "light", "colours"],
      run: () => {
        startTransition(() => {
          setColorScheme(next);
        });
      },
    },
    ...PRESETS.map(({ value, label }): Command => ({
      id: `range-${value}`,
      label: `Show the last ${label}`,
      icon: IconClock,
      keywords: ["time", "range", value],
      run: () =>
        void navigate({
          to: ".",
          search: (before: object) => ({
            ...before,
            range: value === DEFAULT_PRESET ? undefined : value,
            from: undefined,
            until: undefined,
          }),
        }),
    })),
    { id: "sign-out", label: "Sign out", icon: IconLogout, keywords: ["leave", "logout"], run: onSignOut },
  ];
  return commands.filter((one) => !one.roles || one.roles.some((role) => roles.includes(role)));
}

export function Palette(props: Props) {
  const navigate = useNavigate();
  const commands = useCommands(props);
  const pages = pagesFor(props.roles);
  // As they were when it was opened: which links there are changes seldom, what they carry all the time.
  const [links, setLinks] = useState<Link[]>([]);
  const queries = useQueryClient();
  const readLinks = () => {
    queries
      .query({ queryKey: ["links"], queryFn: api.links, structuralSharing: false, staleTime: "static" })
      .then(
        setLinks,
        // Whether the gateway answers is said by the page itself; the palette goes on without links.
        () => undefined,
      );
  };
  const requests = useRateRequests();
  useHotkeys(
    [
      ...pages.map(({ letter, to }): [string, () => void] => [
        hotkey(letter),
        () => void navigate({ to: to as "/" }),
      ]),
      ...commands.flatMap(({ letter, run }): [string, () => void][] =>
        letter ? [[hotkey(letter), run]] : [],
      ),
    ],
    [],
  );
  const shown = (letter: string | undefined) =>
    letter ? <Kbd size="xs">Alt Shift {letter}</Kbd> : undefined;
  const ways = useMemo(
    () =>
      links.map(({ id, from_node, to_node }): SpotlightActionData => ({
        id: `link ${id}`,
        label: `${from_node} → ${to_node}`,
        description: id,
        onClick: () => {
          thereafter(() => void navigate({ to: "/links/$linkId", params: { linkId: id } }));
        },
      })),
    [links, navigate],
  );
  const groups: SpotlightActionGroupData[] = [
    {
      group: "Pages",
      actions: pages.map(({ id, label, icon: Icon, keywords, letter, to }): SpotlightActionData => ({
        id,
        label,
        keywords,
        leftSection: <Icon size={18} aria-hidden />,
        rightSection: shown(letter),
        onClick: () => {
          thereafter(() => void navigate({ to: to as "/" }));
        },
      })),
    },
    {
      group: "Commands",
      actions: commands.map(({ id, label, icon: Icon, keywords, letter, run }): SpotlightActionData => ({
        id,
        label,
        keywords,
        leftSection: <Icon size={18} aria-hidden />,
        rightSection: shown(letter),
        onClick: () => {
          thereafter(run);
        },
      })),
    },
    {
      group: "Links",
      actions: ways,
    },
    {
      group: "Requests",
      actions: (requests.data?.items ?? []).map(({ id, request }): SpotlightActionData => ({
        id: `request ${id}`,
        label: request.description || id,
        description: `${request.source} → ${request.destination}`,
        onClick: () => {
          thereafter(() => void navigate({ to: "/requests/$requestId", params: { requestId: id } }));
        },
      })),
    },
  ];
  return (
    <Spotlight
      actions={groups}
      shortcut="mod + K"
      limit={LIMIT}
      overlayProps={OVERLAY}
      // To lock it, the kit has the browser lay out the whole page anew before the palette is there.
      lockScroll={false}
      scrollable
      maxHeight={420}
      nothingFound="No match."
      onSpotlightOpen={readLinks}
      searchProps={{
        "aria-label": "Search pages, commands, links and requests",
        placeholder: "Go to a page or run a command …",
        leftSection: <IconSearch size={18} aria-hidden />,
      }}
    />
  );
}
