/** Entry of the dashboard: theme, query cache, event stream, routes. */
import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";

import { MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { LiveEvents } from "./api/events";
import { ApiError } from "./api/client";
import { LiveEventsContext } from "./api/useLive";
import { router } from "./router";
import { cssVariables, theme } from "./theme";

const queries = new QueryClient({
  // A session that ran out is noticed by whatever is asked next: then the page asks to sign in again.
  queryCache: new QueryCache({
    onError: (error, query) => {
      if (error instanceof ApiError && error.problem.status === 401 && query.queryKey[0] !== "session")
        void queries.invalidateQueries({ queryKey: ["session"] });
    },
  }),
  defaultOptions: {
    queries: {
      staleTime: 5000,
      retry: (count, error) =>
        !(error instanceof ApiError && error.problem.status >= 400 && error.problem.status < 500) &&
        count < 3,
    },
  },
});
const live = new LiveEvents(queries);

// A page that was opened before a newer version was installed asks for parts that are gone: it is loaded anew, once.
const RELOADED = "chart-reloaded-at";
const RELOAD_PAUSE_MS = 30_000;
window.addEventListener("vite:preloadError", (event) => {
  if (Date.now() - Number(sessionStorage.getItem(RELOADED) ?? 0) < RELOAD_PAUSE_MS) return;
  event.preventDefault();
  sessionStorage.setItem(RELOADED, String(Date.now()));
  window.location.reload();
});

const root = document.getElementById("root");
if (!root) throw new Error("the page has no #root element");

createRoot(root).render(
  <StrictMode>
    <MantineProvider theme={theme} cssVariablesResolver={cssVariables} defaultColorScheme="auto">
      <Notifications position="bottom-right" />
      <QueryClientProvider client={queries}>
        <LiveEventsContext.Provider value={live}>
          <RouterProvider router={router} />
        </LiveEventsContext.Provider>
      </QueryClientProvider>
    </MantineProvider>
  </StrictMode>,
);
