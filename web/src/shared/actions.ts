/**
 * Everything that can be done from anywhere: one list that feeds the navigation, the keyboard and the command palette.
 * Pure; what an action does with the page is in `useActions`.
 */
import {
  IconActivity,
  IconAlertTriangle,
  IconArrowsSplit,
  IconBuildingTunnel,
  IconCalendarStats,
  IconDashboard,
  IconGridDots,
  IconHistory,
  IconKey,
  IconNetwork,
  IconRadar,
  IconReceipt,
  IconRoute,
  IconRuler2,
  IconTopologyFull,
} from "@tabler/icons-react";

import type { Role } from "../api/client";

export type Group = "Watch" | "Rates" | "Measure" | "Trust";

export interface PageAction {
  id: string;
  to: string;
  label: string;
  group: Group;
  icon: typeof IconActivity;
  /** Held with Alt and Shift: no single letter, which would get in the way of speech input and screen readers. */
  letter: string;
  keywords: string[];
  /** Who may see it; left out: everybody who is signed in. */
  roles?: Role[];
}

const PEOPLE: Role[] = ["viewer", "operator", "admin"];
const OPERATORS: Role[] = ["operator", "admin"];

export const PAGES: PageAction[] = [
  {
    id: "overview",
    to: "/",
    label: "Overview",
    group: "Watch",
    icon: IconDashboard,
    letter: "O",
    keywords: ["health", "home", "wrong"],
  },
  {
    id: "network",
    to: "/network",
    label: "Network",
    group: "Watch",
    icon: IconNetwork,
    letter: "N",
    keywords: ["map", "links", "nodes", "utilisation"],
  },
  {
    id: "paths",
    to: "/paths",
    label: "Paths",
    group: "Watch",
    icon: IconGridDots,
    letter: "P",
    keywords: ["all pairs", "heat map", "rtt", "loss", "estimates", "inferred"],
  },
  {
    id: "overlay",
    to: "/overlay",
    label: "Overlay",
    group: "Watch",
    icon: IconRoute,
    letter: "V",
    keywords: ["failover", "path explorer", "trace", "detour", "failures"],
  },
  {
    id: "flows",
    to: "/flows",
    label: "Flows",
    group: "Watch",
    icon: IconActivity,
    letter: "F",
    keywords: ["top", "talkers", "granted", "used"],
  },
  {
    id: "alerts",
    to: "/alerts",
    label: "Alerts",
    group: "Watch",
    icon: IconAlertTriangle,
    letter: "A",
    keywords: ["rules", "firing", "thresholds"],
  },
  {
    id: "requests",
    to: "/requests",
    label: "Rate requests",
    group: "Rates",
    icon: IconReceipt,
    letter: "R",
    keywords: ["ask", "grants", "reservations"],
  },
  {
    id: "timeline",
    to: "/timeline",
    label: "Timeline",
    group: "Rates",
    icon: IconCalendarStats,
    letter: "L",
    keywords: ["reserved", "used", "heat map", "capacity"],
  },
  {
    id: "qos",
    to: "/qos",
    label: "QoS console",
    group: "Rates",
    icon: IconRuler2,
    letter: "Q",
    keywords: ["rules", "dscp", "ports", "enforcement", "switch", "policy"],
  },
  {
    id: "tunnels",
    to: "/tunnels",
    label: "Tunnels",
    group: "Rates",
    icon: IconBuildingTunnel,
    letter: "T",
    keywords: ["elastic", "connections", "target"],
  },
  {
    id: "sensing",
    to: "/sensing",
    label: "Sensing",
    group: "Measure",
    icon: IconRadar,
    letter: "S",
    keywords: ["pods", "budget", "skipped", "configurations"],
  },
  {
    id: "pair-groups",
    to: "/pair-groups",
    label: "Groups of pairs",
    group: "Measure",
    icon: IconTopologyFull,
    letter: "G",
    keywords: ["pairs", "together", "percentile", "branches", "subscription"],
  },
  {
    id: "security",
    to: "/security",
    label: "Security",
    group: "Trust",
    icon: IconKey,
    letter: "K",
    keywords: ["authorisations", "keys", "certificates", "refused"],
    roles: ["application", ...PEOPLE],
  },
  {
    id: "audit",
    to: "/audit",
    label: "Audit",
    group: "Trust",
    icon: IconHistory,
    letter: "U",
    keywords: ["who", "changed", "log"],
    roles: OPERATORS,
  },
];

/** Every page that one of these roles may see. */
export function pagesFor(roles: readonly Role[]): PageAction[] {
  return PAGES.filter((page) => !page.roles || page.roles.some((role) => roles.includes(role)));
}

/** Whether a page is the one at this address; a link's page belongs to the network. */
export function isAt(page: PageAction, pathname: string): boolean {
  if (page.to === "/") return pathname === "/";
  if (page.id === "network" && pathname.startsWith("/links")) return true;
  return pathname === page.to || pathname.startsWith(`${page.to}/`);
}

/** As the kit's hotkeys are written. */
export const hotkey = (letter: string) => `alt+shift+${letter}`;

export interface Command {
  id: string;
  label: string;
  icon: typeof IconActivity;
  letter?: string;
  keywords: string[];
  roles?: Role[];
  run: () => void;
}

export const NEW_REQUEST_ICON = IconArrowsSplit;
