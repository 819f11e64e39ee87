/** Routes of the dashboard. Every page is a chunk of its own; the time range stays when one goes from page to page. */
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  retainSearchParams,
} from "@tanstack/react-router";

import { Shell } from "./shared/Shell";
import { NotFound, PageFailed } from "./shared/Notices";
import { parseRange, type RangeSearch } from "./shared/timeRange";

const rootRoute = createRootRoute({
  component: Shell,
  notFoundComponent: NotFound,
  validateSearch: (search: Record<string, unknown>): RangeSearch => parseRange(search),
  search: { middlewares: [retainSearchParams<RangeSearch>(["range", "from", "until"])] },
});

const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);

const overviewRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  component: lazyRouteComponent(() => import("./features/overview/OverviewPage"), "OverviewPage"),
});

const networkRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/network",
  component: lazyRouteComponent(() => import("./features/map/MapPage"), "MapPage"),
});

export const linkRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/links/$linkId",
  component: lazyRouteComponent(() => import("./features/links/LinkPage"), "LinkPage"),
});

export interface PathsSearch {
  metric?: string | undefined;
  source?: string | undefined;
  destination?: string | undefined;
}

export const pathsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/paths",
  validateSearch: (search: Record<string, unknown>): PathsSearch => ({
    metric: text(search.metric),
    source: text(search.source),
    destination: text(search.destination),
  }),
  component: lazyRouteComponent(() => import("./features/paths/PathsPage"), "PathsPage"),
});

export interface OverlaySearch {
  source?: string | undefined;
  destination?: string | undefined;
  /** RFC 3339; left out: now. */
  at?: string | undefined;
}

export const overlayRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/overlay",
  validateSearch: (search: Record<string, unknown>): OverlaySearch => {
    const at = text(search.at);
    return {
      source: text(search.source),
      destination: text(search.destination),
      at: at !== undefined && !Number.isNaN(Date.parse(at)) ? at : undefined,
    };
  },
  component: lazyRouteComponent(() => import("./features/overlay/OverlayPage"), "OverlayPage"),
});

const flowsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/flows",
  component: lazyRouteComponent(() => import("./features/flows/FlowsPage"), "FlowsPage"),
});

const alertsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/alerts",
  component: lazyRouteComponent(() => import("./features/alerts/AlertsPage"), "AlertsPage"),
});

export const requestsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/requests",
  // The form is open, so that the command palette and a link can open it; filled in like another request.
  validateSearch: (search: Record<string, unknown>): { form?: boolean; like?: string } =>
    search.form ? { form: true, ...(text(search.like) ? { like: text(search.like) } : {}) } : {},
  component: lazyRouteComponent(() => import("./features/requests/RequestsPage"), "RequestsPage"),
});

export const requestRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/requests/$requestId",
  component: lazyRouteComponent(() => import("./features/requests/RequestPage"), "RequestPage"),
});

const timelineRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/timeline",
  component: lazyRouteComponent(() => import("./features/timeline/TimelinePage"), "TimelinePage"),
});

const qosRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/qos",
  component: lazyRouteComponent(() => import("./features/qos/QosPage"), "QosPage"),
});

const tunnelsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/tunnels",
  component: lazyRouteComponent(() => import("./features/tunnels/TunnelsPage"), "TunnelsPage"),
});

export const tunnelRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/tunnels/$tunnelId",
  component: lazyRouteComponent(() => import("./features/tunnels/TunnelPage"), "TunnelPage"),
});

const sensingRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/sensing",
  component: lazyRouteComponent(() => import("./features/sensing/SensingPage"), "SensingPage"),
});

export interface PairGroupsSearch {
  group?: string | undefined;
  metric?: string | undefined;
}

export const pairGroupsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/pair-groups",
  validateSearch: (search: Record<string, unknown>): PairGroupsSearch => ({
    group: text(search.group),
    metric: text(search.metric),
  }),
  component: lazyRouteComponent(() => import("./features/pairs/PairGroupsPage"), "PairGroupsPage"),
});

const securityRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/security",
  component: lazyRouteComponent(() => import("./features/security/SecurityPage"), "SecurityPage"),
});

const auditRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/audit",
  component: lazyRouteComponent(() => import("./features/audit/AuditPage"), "AuditPage"),
});

export const router = createRouter({
  routeTree: rootRoute.addChildren([
    overviewRoute,
    networkRoute,
    linkRoute,
    pathsRoute,
    overlayRoute,
    flowsRoute,
    alertsRoute,
    requestsRoute,
    requestRoute,
    timelineRoute,
    qosRoute,
    tunnelsRoute,
    tunnelRoute,
    sensingRoute,
    pairGroupsRoute,
    securityRoute,
    auditRoute,
  ]),
  defaultErrorComponent: PageFailed,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
