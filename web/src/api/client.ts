/** Calls of the REST interface. Every failure is an ApiError that carries the problem document (RFC 9457). */
import createClient from "openapi-fetch";

import type { paths } from "./schema";
import type { Problem, RateRequestBody } from "./types";

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
  title: "The gateway does not answer",
  status: 0,
  detail: "The gateway does not answer. Traffic goes on; this page shows nothing new until it is back.",
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

export type Role = "viewer" | "application" | "operator" | "admin";

export const api = {
  session: () => unwrap(client.GET("/auth/me")),
  signIn: (role: Role) => unwrap(client.POST("/auth/dev-login", { body: { role } })),
  signInOffers: () => unwrap(client.GET("/auth/sign-in")),
  signOut: () => unwrap(client.POST("/auth/logout")),
  nodes: () => unwrap(client.GET("/v1/nodes")).then((page) => page.items),
  links: () => unwrap(client.GET("/v1/links")).then((page) => page.items),
  rateRequests: () => unwrap(client.GET("/v1/rate-requests", { params: { query: { limit: 100 } } })),
  previewRateRequest: (body: RateRequestBody) => unwrap(client.POST("/v1/rate-requests:preview", { body })),
  createRateRequest: (body: RateRequestBody, idempotencyKey: string) =>
    unwrap(
      client.POST("/v1/rate-requests", { body, params: { header: { "Idempotency-Key": idempotencyKey } } }),
    ),
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
