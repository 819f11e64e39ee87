/** Calls of the REST interface. Every failure is an ApiError that carries the problem document (RFC 9457). */
import type {
  Link,
  NetworkNode,
  Page,
  Preview,
  Problem,
  RateRequest,
  RateRequestBody,
  Series,
  Session,
} from "./types";

export class ApiError extends Error {
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(problem.detail || problem.title);
    this.name = "ApiError";
    this.problem = problem;
  }
}

async function call<T>(
  path: string,
  init: RequestInit = {},
  headers: Record<string, string> = {},
): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, {
      ...init,
      headers: {
        Accept: "application/json",
        ...(init.body ? { "Content-Type": "application/json" } : {}),
        ...headers,
      },
    });
  } catch {
    throw new ApiError({
      type: "about:blank",
      title: "The gateway does not answer",
      status: 0,
      detail: "The gateway does not answer. Traffic goes on; this page shows nothing new until it is back.",
    });
  }
  const text = await response.text();
  const body: unknown =
    text && response.headers.get("content-type")?.includes("json") ? JSON.parse(text) : null;
  if (!response.ok) {
    const problem = (body ?? {}) as Partial<Problem>;
    throw new ApiError({
      type: problem.type ?? "about:blank",
      title: problem.title ?? response.statusText,
      detail: problem.detail ?? `The gateway answered ${response.status}.`,
      ...problem,
      status: response.status,
    });
  }
  return body as T;
}

const post = <T>(path: string, body: unknown, headers?: Record<string, string>) =>
  call<T>(path, { method: "POST", body: JSON.stringify(body) }, headers);

export const api = {
  session: () => call<Session>("/auth/me"),
  signIn: (role: string) => post<Session>("/auth/dev-login", { role }),
  signOut: () => post<null>("/auth/logout", {}),
  nodes: () => call<Page<NetworkNode>>("/v1/nodes").then((page) => page.items),
  links: () => call<Page<Link>>("/v1/links").then((page) => page.items),
  rateRequests: () => call<Page<RateRequest>>("/v1/rate-requests?limit=100"),
  previewRateRequest: (body: RateRequestBody) => post<Preview>("/v1/rate-requests:preview", body),
  createRateRequest: (body: RateRequestBody, idempotencyKey: string) =>
    post<RateRequest>("/v1/rate-requests", body, { "Idempotency-Key": idempotencyKey }),
  releaseRateRequest: (id: string) =>
    post<RateRequest>(`/v1/rate-requests/${encodeURIComponent(id)}/release`, {}),
  series: (
    kind: "link" | "measurement" | "grant",
    subject: string,
    metric: string,
    from: Date,
    until: Date,
    stepMs: number,
  ) => {
    const query = new URLSearchParams({
      kind,
      subject,
      metric,
      from: from.toISOString(),
      until: until.toISOString(),
      step_ms: String(stepMs),
    });
    return call<Series>(`/v1/series?${query.toString()}`);
  },
};
