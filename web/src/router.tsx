/** Routes of the dashboard. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";

import { Shell } from "./shared/Shell";
import { NotFound, PageFailed } from "./shared/Notices";

const rootRoute = createRootRoute({ component: Shell, notFoundComponent: NotFound });

const mapRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/",
  component: lazyRouteComponent(() => import("./features/map/MapPage"), "MapPage"),
});

export const linkRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/links/$linkId",
  component: lazyRouteComponent(() => import("./features/links/LinkPage"), "LinkPage"),
});

const requestsRoute = createRoute({
  getParentRoute: () => rootRoute,
  path: "/requests",
  component: lazyRouteComponent(() => import("./features/requests/RequestsPage"), "RequestsPage"),
});

export const router = createRouter({
  routeTree: rootRoute.addChildren([mapRoute, linkRoute, requestsRoute]),
  defaultErrorComponent: PageFailed,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
