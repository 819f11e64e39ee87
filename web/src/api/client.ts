/** Calls of the REST interface. Every failure is an ApiError that carries the problem document (RFC 9457). */
import createClient from "openapi-fetch";

import type { paths } from "./schema";
import type {
  AlertRuleBody,
  AuthorisationPolicyBody,
  EnrolmentBody,
  Estimate,
  EstimatePage,
  NextHop,
  NextHopBody,
  NodeBody,
  Peer,
  PairGroupBody,
  PeerBody,
  PlatformSettingsBody,
  PolicyBody,
  Problem,
  QuotaBody,
  RateRequestBody,
  RateRequestChange,
  RevocationBody,
  SensingMeshBody,
  SessionRuleBody,
  TenantBody,
} from "./types";

export class ApiError extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.detail || problem.title);
    this.name = "ApiError";
    this.problem = problem;
  }
}

const UNREACHABLE: Problem = {
  type: "about:blank",
  title: "No response from the gateway",
  status: 0,
  detail:
    "No response from the gateway. Traffic is not affected; this page is not updated until the gateway is back.",
};

const client = createClient<paths>({
  baseUrl: globalThis.location.origin,
  // Looked up at each call, so that what stands in for the network may change.
  fetch: (request) => globalThis.fetch(request),
});
client.use({
  onError: () => new ApiError(UNREACHABLE),
});

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

function isProblem(error: unknown): error is Problem {
  return typeof error === "object" && error !== null && "title" in error && "status" in error;
}

async function unwrap<T>(pending: Promise<Answer<T>>): Promise<T> {
  const { data, error, response } = await pending;
  if (response.ok) return data as T;
  if (isProblem(error)) throw new ApiError(error);
  const { status, statusText } = response;
  throw new ApiError({
    type: "about:blank",
    title: statusText,
    status,
    detail: `The gateway answered ${status}.`,
  });
}

/** A next hop's place in addresses of the interface. */
function hopPath({ element, prefix }: Pick<NextHop, "element" | "prefix">) {
  const [network = "", bits = ""] = prefix.split("/");
  return { element, network, bits: Number(bits) };
}

export type Role = "viewer" | "application" | "operator" | "admin";

export const api = {
  session: () => unwrap(client.GET("/auth/me")),
  signIn: (role: Role) => unwrap(client.POST("/auth/dev-login", { body: { role } })),
  signInOffers: () => unwrap(client.GET("/auth/sign-in")),
  signOut: () => unwrap(client.POST("/auth/logout")),
  nodes: () => unwrap(client.GET("/v1/nodes")).then((page) => page.items),
  node: (id: string) => unwrap(client.GET("/v1/nodes/{id}", { params: { path: { id } } })),
  putNode: (id: string, body: NodeBody, revision: number) =>
    unwrap(
      client.PUT("/v1/nodes/{id}", {
        params: { path: { id }, header: { "If-Match": `"${revision}"` } },
        body,
      }),
    ),
  links: () => unwrap(client.GET("/v1/links")).then((page) => page.items),
  rateRequests: () => unwrap(client.GET("/v1/rate-requests", { params: { query: { limit: 500 } } })),
  previewRateRequest: (body: RateRequestBody) => unwrap(client.POST("/v1/rate-requests:preview", { body })),
  createRateRequest: (body: RateRequestBody, idempotencyKey: string) =>
    unwrap(
      client.POST("/v1/rate-requests", { body, params: { header: { "Idempotency-Key": idempotencyKey } } }),
    ),
  rateRequest: (id: string) => unwrap(client.GET("/v1/rate-requests/{id}", { params: { path: { id } } })),
  requestHistory: (id: string) =>
    unwrap(client.GET("/v1/rate-requests/{id}/history", { params: { path: { id } } })).then(
      (page) => page.items,
    ),
  receipt: (id: string) => unwrap(client.GET("/v1/rate-requests/{id}/receipt", { params: { path: { id } } })),
  previewChange: (id: string, body: RateRequestChange) =>
    unwrap(client.POST("/v1/rate-requests/{id}/preview", { params: { path: { id } }, body })),
  changeRateRequest: (id: string, revision: number, body: RateRequestChange) =>
    unwrap(
      client.PATCH("/v1/rate-requests/{id}", {
        params: { path: { id }, header: { "If-Match": `"${revision}"` } },
        body,
      }),
    ),
  commitRateRequest: (id: string) =>
    unwrap(client.POST("/v1/rate-requests/{id}/commit", { params: { path: { id } } })),
  paths: (source: string, destination: string) =>
    unwrap(
      client.GET("/v1/paths/{source}/{destination}", { params: { path: { source, destination } } }),
    ).then((page) => page.items),
  overlayTrace: (source: string, destination: string, at?: string) =>
    unwrap(
      client.GET("/v1/overlay/trace/{source}/{destination}", {
        params: { path: { source, destination }, query: at ? { at } : {} },
      }),
    ),
  overlayEvents: (
    wanted: { node?: string; link?: string; owner?: string; of?: "links" | "paths" },
    from: Date,
    until: Date,
  ) =>
    unwrap(
      client.GET("/v1/overlay/events", {
        params: { query: { ...wanted, from: from.toISOString(), until: until.toISOString() } },
      }),
    ).then((answer) => answer.items),
  capacity: (id: string, from: Date, until: Date) =>
    unwrap(
      client.GET("/v1/links/{id}/capacity", {
        params: { path: { id }, query: { from: from.toISOString(), until: until.toISOString() } },
      }),
    ),
  /** Every estimate of a metric, up to `most`: what is left out is told. */
  estimates: async (metric: string, most = 10_000): Promise<{ items: Estimate[]; more: boolean }> => {
    const items: Estimate[] = [];
    let cursor: string | undefined;
    do {
      const page: EstimatePage = await unwrap(
        client.GET("/v1/estimates", {
          params: { query: { metric, limit: 1000, ...(cursor ? { cursor } : {}) } },
        }),
      );
      items.push(...page.items);
      cursor = page.next_cursor ?? undefined;
    } while (cursor && items.length < most);
    return { items, more: cursor !== undefined };
  },
  measurements: (metric: string) =>
    unwrap(client.GET("/v1/measurements", { params: { query: { metric, limit: 1000 } } })).then(
      (page) => page.items,
    ),
  baselines: (source: string, destination: string, metric: string) =>
    unwrap(client.GET("/v1/baselines", { params: { query: { source, destination, metric } } })).then(
      (page) => page.items,
    ),
  pathChanges: (source: string, destination: string, metric: string, from: Date, until: Date) =>
    unwrap(
      client.GET("/v1/path-changes", {
        params: {
          query: { source, destination, metric, from: from.toISOString(), until: until.toISOString() },
        },
      }),
    ).then((page) => page.items),
  tunnels: () => unwrap(client.GET("/v1/tunnels")).then((page) => page.items),
  tunnel: (id: string) => unwrap(client.GET("/v1/tunnels/{id}", { params: { path: { id } } })),
  sensingConfigurations: () =>
    unwrap(client.GET("/v1/sensing-configurations", { params: { query: { limit: 1000 } } })).then(
      (page) => page.items,
    ),
  sensingReport: (id: string) =>
    unwrap(client.GET("/v1/nodes/{id}/sensing-report", { params: { path: { id }, query: { skips: 200 } } })),
  alerts: (firing = false) =>
    unwrap(client.GET("/v1/alerts", { params: { query: { firing } } })).then((page) => page.items),
  alertRules: () => unwrap(client.GET("/v1/alert-rules")).then((page) => page.items),
  putAlertRule: (id: string, body: AlertRuleBody) =>
    unwrap(client.PUT("/v1/alert-rules/{id}", { params: { path: { id } }, body })),
  deleteAlertRule: (id: string) =>
    unwrap(client.DELETE("/v1/alert-rules/{id}", { params: { path: { id } } })),
  audit: (action = "") =>
    unwrap(client.GET("/v1/audit", { params: { query: { action, limit: 2000 } } })).then(
      (page) => page.items,
    ),
  flows: () =>
    unwrap(client.GET("/v1/flows", { params: { query: { limit: 2000 } } })).then((page) => page.items),
  recordChecks: () => unwrap(client.GET("/v1/record-checks")),
  nodeKeys: () => unwrap(client.GET("/v1/node-keys")).then((page) => page.items),
  authorisations: () => unwrap(client.GET("/v1/authorisations")).then((page) => page.items),
  deleteAuthorisation: (id: string) =>
    unwrap(client.DELETE("/v1/authorisations/{id}", { params: { path: { id } } })),
  identities: () => unwrap(client.GET("/v1/identities")).then((page) => page.items),
  revoke: (body: RevocationBody) => unwrap(client.POST("/v1/revocations", { body })),
  enrolments: () => unwrap(client.GET("/v1/enrolments")).then((page) => page.items),
  createEnrolment: (body: EnrolmentBody, idempotencyKey: string) =>
    unwrap(
      client.POST("/v1/enrolments", { body, params: { header: { "Idempotency-Key": idempotencyKey } } }),
    ),
  withdrawEnrolment: (id: string) =>
    unwrap(client.DELETE("/v1/enrolments/{id}", { params: { path: { id } } })),
  // The client's types make plain lists of pairs.
  peers: () => unwrap(client.GET("/v1/peers")).then((page) => page.items as Peer[]),
  putPeer: (domain: string, body: PeerBody) =>
    unwrap(client.PUT("/v1/peers/{domain}", { params: { path: { domain } }, body })),
  deletePeer: (domain: string) =>
    unwrap(client.DELETE("/v1/peers/{domain}", { params: { path: { domain } } })),
  nextHops: () =>
    unwrap(client.GET("/v1/next-hops", { params: { query: { limit: 10_000 } } })).then((page) => page.items),
  putNextHop: (hop: Pick<NextHop, "element" | "prefix">, body: NextHopBody) =>
    unwrap(client.PUT("/v1/next-hops/{element}/{network}/{bits}", { params: { path: hopPath(hop) }, body })),
  deleteNextHop: (hop: Pick<NextHop, "element" | "prefix">) =>
    unwrap(client.DELETE("/v1/next-hops/{element}/{network}/{bits}", { params: { path: hopPath(hop) } })),
  authorisationPolicies: () => unwrap(client.GET("/v1/authorisation-policies")).then((page) => page.items),
  putAuthorisationPolicy: (id: string, body: AuthorisationPolicyBody) =>
    unwrap(client.PUT("/v1/authorisation-policies/{id}", { params: { path: { id } }, body })),
  deleteAuthorisationPolicy: (id: string) =>
    unwrap(client.DELETE("/v1/authorisation-policies/{id}", { params: { path: { id } } })),
  policies: () => unwrap(client.GET("/v1/policies")).then((page) => page.items),
  putPolicy: (id: string, body: PolicyBody, revision: number | null) =>
    unwrap(
      client.PUT("/v1/policies/{id}", {
        params: { path: { id }, ...(revision === null ? {} : { header: { "If-Match": `"${revision}"` } }) },
        body,
      }),
    ),
  platformSettings: () =>
    unwrap(client.GET("/v1/platform-settings/{id}", { params: { path: { id: "platform" } } })),
  putPlatformSettings: (body: PlatformSettingsBody, revision: number) =>
    unwrap(
      client.PUT("/v1/platform-settings/{id}", {
        params: { path: { id: "platform" }, header: { "If-Match": `"${revision}"` } },
        body,
      }),
    ),
  sensingMeshes: () =>
    unwrap(client.GET("/v1/sensing-meshes", { params: { query: { limit: 1000 } } })).then(
      (page) => page.items,
    ),
  meshCoverage: (id: string) =>
    unwrap(client.GET("/v1/sensing-meshes/{id}/coverage", { params: { path: { id } } })),
  putSensingMesh: (id: string, body: SensingMeshBody, revision: number | null) =>
    unwrap(
      client.PUT("/v1/sensing-meshes/{id}", {
        params: { path: { id }, ...(revision === null ? {} : { header: { "If-Match": `"${revision}"` } }) },
        body,
      }),
    ),
  deleteSensingMesh: (id: string) =>
    unwrap(client.DELETE("/v1/sensing-meshes/{id}", { params: { path: { id } } })),
  pairGroups: () => unwrap(client.GET("/v1/pair-groups")).then((page) => page.items),
  putPairGroup: (id: string, body: PairGroupBody, revision: number | null) =>
    unwrap(
      client.PUT("/v1/pair-groups/{id}", {
        params: { path: { id }, ...(revision === null ? {} : { header: { "If-Match": `"${revision}"` } }) },
        body,
      }),
    ),
  deletePairGroup: (id: string) =>
    unwrap(client.DELETE("/v1/pair-groups/{id}", { params: { path: { id } } })),
  pairSeries: (id: string, metric: string, from: Date, until: Date, stepMs: number, byPair: boolean) =>
    unwrap(
      client.GET("/v1/pair-groups/{id}/series", {
        params: {
          path: { id },
          query: {
            metric,
            from: from.toISOString(),
            until: until.toISOString(),
            step_ms: stepMs,
            by_pair: byPair,
          },
        },
      }),
    ).then((page) => page.items),
  tenants: () =>
    unwrap(client.GET("/v1/tenants", { params: { query: { limit: 1000 } } })).then((page) => page.items),
  putTenant: (id: string, body: TenantBody, revision: number | null) =>
    unwrap(
      client.PUT("/v1/tenants/{id}", {
        params: { path: { id }, ...(revision === null ? {} : { header: { "If-Match": `"${revision}"` } }) },
        body,
      }),
    ),
  deleteTenant: (id: string) => unwrap(client.DELETE("/v1/tenants/{id}", { params: { path: { id } } })),
  quotas: () =>
    unwrap(client.GET("/v1/quotas", { params: { query: { limit: 1000 } } })).then((page) => page.items),
  putQuota: (application: string, body: QuotaBody, revision: number | null) =>
    unwrap(
      client.PUT("/v1/quotas/{application}", {
        params: {
          path: { application },
          ...(revision === null ? {} : { header: { "If-Match": `"${revision}"` } }),
        },
        body,
      }),
    ),
  deleteQuota: (application: string) =>
    unwrap(client.DELETE("/v1/quotas/{application}", { params: { path: { application } } })),
  sessionRules: () =>
    unwrap(client.GET("/v1/session-rules", { params: { query: { limit: 1000 } } })).then(
      (page) => page.items,
    ),
  putSessionRule: (id: string, body: SessionRuleBody, revision: number | null) =>
    unwrap(
      client.PUT("/v1/session-rules/{id}", {
        params: { path: { id }, ...(revision === null ? {} : { header: { "If-Match": `"${revision}"` } }) },
        body,
      }),
    ),
  deleteSessionRule: (id: string) =>
    unwrap(client.DELETE("/v1/session-rules/{id}", { params: { path: { id } } })),
  releaseRateRequest: (id: string) =>
    unwrap(client.POST("/v1/rate-requests/{id}/release", { params: { path: { id } } })),
  series: (
    kind: "link" | "measurement" | "grant",
    subject: string,
    metric: string,
    from: Date,
    until: Date,
    stepMs: number,
  ) =>
    unwrap(
      client.GET("/v1/series", {
        params: {
          query: {
            kind,
            subject,
            metric,
            from: from.toISOString(),
            until: until.toISOString(),
            step_ms: stepMs,
          },
        },
      }),
    ),
};
