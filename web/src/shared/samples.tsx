/** Samples of what the gateway answers, and a page's surroundings, for tests. */
import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render } from "@testing-library/react";
import type { ReactNode } from "react";

import { LiveEvents } from "../api/events";
import type { Link, NetworkNode, Problem, RateRequest } from "../api/types";
import { LiveEventsContext } from "../api/useLive";
import { theme } from "../theme";

export const AT = "2030-01-01T00:00:00Z";
export const NOW = Date.parse(AT) + 500;

export function link(change: Partial<Link> = {}): Link {
  const value = (number: number) => ({ value: number, at: AT, stale: false });
  return {
    id: "a:to-b",
    revision: 1,
    from_node: "a",
    interface: "to-b",
    to_node: "b",
    capacity_bps: 100_000_000,
    capacity_from_interface: false,
    delay_us: 50_000,
    admission_share: 0.9,
    scone: false,
    quick_start: false,
    quick_start_threshold: 0.9,
    quick_start_share: 1,
    scone_police: false,
    advice_prefixes: [],
    tags: {},
    load: {
      sent_bps: 25_000_000,
      explicit_rate_bps: 20_000_000,
      legacy_bps: 5_000_000,
      utilisation: 0.25,
      queue_bytes: 0,
      dropped_packets: 0,
      at: AT,
    },
    rate: null,
    measured: { rtt_us: value(100_000), loss_ratio: value(0.05), available_bandwidth_bps: null },
    ...change,
  };
}

export function node(id: string, change: Partial<NetworkNode> = {}): NetworkNode {
  return {
    id,
    revision: 1,
    description: "",
    addresses: [],
    sensor_pod_target: "",
    tags: {},
    map_position: null,
    edges: [],
    tunnel_ends: [],
    proxied_traffic: { interfaces: [], prefixes: [], mode: "same-ports" },
    overlay: { member: false, prefixes: [] },
    state: null,
    ...change,
  };
}

export function request(change: Partial<RateRequest> = {}): RateRequest {
  return {
    id: "r1",
    owner: "dev-operator",
    state: "PENDING",
    lifecycle: "ACTIVE",
    enforcement: "PENDING",
    granted_bps: 1_000_000,
    path: ["a:to-b"],
    confirmations: [],
    reason: "",
    matching_flows: 0,
    unmatched_since: null,
    warning: "",
    waits_until: null,
    draining_until: null,
    draining_nodes: [],
    created_at: AT,
    request: {
      source: "a",
      destination: "b",
      source_prefixes: [],
      destination_prefixes: [],
      service: "guaranteed",
      description: "copy",
    },
    ...change,
  } as RateRequest;
}

/** Answers by "METHOD path"; what is not listed is a 404. Stands at the edge of the network. */
export type Answers = Record<string, (body: unknown) => { status: number; body: unknown }>;

export function stubGateway(answers: Answers): (input: Request) => Promise<Response> {
  return async (input) => {
    const key = `${input.method} ${new URL(input.url).pathname}`;
    const text = await input.clone().text();
    const unknown: Problem = { type: "about:blank", title: "Not found", status: 404, detail: key };
    const answer = answers[key]?.(text === "" ? undefined : JSON.parse(text)) ?? {
      status: 404,
      body: unknown,
    };
    return new Response(JSON.stringify(answer.body), {
      status: answer.status,
      headers: { "Content-Type": answer.status < 400 ? "application/json" : "application/problem+json" },
    });
  };
}

/** Renders something inside theme, query cache and event stream. */
export function renderInApp(children: ReactNode) {
  const queries = new QueryClient({ defaultOptions: { queries: { retry: false } } });
  const live = new LiveEvents(queries);
  const result = render(
    <MantineProvider theme={theme} env="test">
      <QueryClientProvider client={queries}>
        <LiveEventsContext.Provider value={live}>{children}</LiveEventsContext.Provider>
      </QueryClientProvider>
    </MantineProvider>,
  );
  return { ...result, queries, live };
}
