"""The application: routes, the body's limit, errors as problem documents that repeat nothing of what was sent."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import Any

import psycopg
import psycopg_pool
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import Counter, Histogram
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chart.authority.keystore import KeyStoreError
from chart.authority.routes import authorisations, identities, keys, next_hops, peers, receipts
from chart.authority.settings import AuthoritySettings
from chart.common.problems import MEDIA_TYPE, ProblemError

REQUESTS = Counter("chart_authority_requests_total", "Requests answered", ["method", "route", "status"])
SECONDS = Histogram(
    "chart_authority_request_seconds",
    "Time to the end of the answer; long polls that waited are among them",
    ["method", "route"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30),
)
# A body must be there this soon after its head.
BODY_LIMIT_S = 10.0

_log = structlog.get_logger("chart.authority")


@functools.lru_cache(maxsize=512)
def _metrics(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    return REQUESTS.labels(method, route, str(status)), SECONDS.labels(method, route)


class Envelope:
    """Around every request: the body whole, bounded in size and time; metrics; what no handler caught."""

    def __init__(self, app: ASGIApp, *, body_limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 499

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"cache-control", b"no-store")]
            await send(message)

        try:
            await self._app(scope, self._limited(receive), counted)
        except asyncio.CancelledError:
            if status != 499:
                raise
            # The replica stops while somebody waits for a change.
            problem = ProblemError(503, "Stopping", "This replica is stopping; use another one.")
            await _answer(problem, scope["path"])(scope, receive, counted)
        except Exception as error:
            _log.exception("a request failed", path=scope["path"], error=type(error).__name__)
            if status != 499:
                raise
            problem = ProblemError(500, "Internal error", "Internal error; see the authority's log.")
            await _answer(problem, scope["path"])(scope, receive, counted)
        finally:
            plain = keys.PAIR_PATH if scope.get("endpoint") is keys.get_keys else "unmatched"
            route = getattr(scope.get("route"), "path", plain)
            method = scope["method"] if scope["method"] in ("GET", "POST", "PUT", "DELETE") else "OTHER"
            count, seconds = _metrics(method, route, status)
            count.inc()
            seconds.observe(time.perf_counter() - began)

    def _limited(self, receive: Receive) -> Receive:
        seen_bytes = 0
        end = time.monotonic() + BODY_LIMIT_S
        whole = False

        async def limited() -> Message:
            nonlocal seen_bytes, whole
            if whole:
                return await receive()
            try:
                async with asyncio.timeout(max(0.0, end - time.monotonic())):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(408) from None
            if message["type"] == "http.request":
                seen_bytes += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if seen_bytes > self._limit_bytes:
                    raise HTTPException(413)
            return message

        return limited


def _answer(problem: ProblemError, path: str) -> JSONResponse:
    headers = {}
    if problem.status in (429, 503):
        headers["Retry-After"] = "2"
    if problem.status == 413:
        headers["Connection"] = "close"
    return JSONResponse(problem.document(path), problem.status, headers=headers, media_type=MEDIA_TYPE)


def _invalid(error: RequestValidationError) -> ProblemError:
    """The first fault; never the value, which may be a secret."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"]]
    field = ".".join(place[1:]) or place[0]
    if first["type"] == "json_invalid":
        return ProblemError(400, "Malformed JSON", "The body is not JSON.", field="body")
    return ProblemError(422, "Invalid value", f"{field}: {first['msg']}.", field=field, kind="invalid-value")


def _http(error: HTTPException, path: str, limit_bytes: int) -> ProblemError:
    match error.status_code:
        case 404:
            return ProblemError(404, "Not found", f"No resource at {path}.")
        case 405:
            return ProblemError(405, "Method not allowed", f"{path} does not support this method.")
        case 408:
            return ProblemError(408, "Too slow", f"The body did not arrive within {BODY_LIMIT_S:g} s.")
        case 413:
            return ProblemError(413, "Body too large", f"The body is larger than {limit_bytes} bytes.", field="body",
                                ceiling=limit_bytes)  # fmt: skip
    return ProblemError(error.status_code, "Refused", "The request could not be read.")


def _of_keys(scope: Scope) -> bool:
    """Reads of keys come by the thousand, all alike: writing a trace of each costs more than the answer."""
    return bool(scope["type"] == "http" and scope["path"].startswith(("/v1/keys/", "/v1/stream-keys/")))


def create_app(settings: AuthoritySettings) -> FastAPI:
    """The application; ``app.state.authority`` must be set before the first request."""
    app = FastAPI(
        title="CHART authority",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        # Nor does what was refused, which may be a secret, go into a trace.
        telemetry={"exclude": _of_keys, "metrics": False, "logs": False},
    )
    app.add_route(keys.PAIR_PATH, keys.get_keys, methods=["GET"])
    for module in (identities, peers, keys, next_hops, authorisations, receipts):
        app.include_router(module.router)
    limit_bytes = settings.authority_body_limit_bytes

    async def on_error(request: Request, error: Exception) -> JSONResponse:
        path = request.url.path
        problem: ProblemError
        if isinstance(error, ProblemError):
            problem = error
        elif isinstance(error, RequestValidationError):
            problem = _invalid(error)
        elif isinstance(error, HTTPException):
            problem = _http(error, path, limit_bytes)
        elif isinstance(error, KeyStoreError):
            _log.error("the key store refused", reason=str(error))
            problem = ProblemError(
                500, "Key store refused", "The key store refused the operation; see the authority's log."
            )
        else:
            _log.warning("the database does not answer", reason=type(error).__name__)
            problem = ProblemError(503, "Service unavailable", "The database is unreachable.",
                                   suggestions=["Try another replica, or again in 2 s."])  # fmt: skip
        return _answer(problem, path)

    kinds: list[Any] = [ProblemError, RequestValidationError, HTTPException, KeyStoreError]
    for kind in (*kinds, psycopg.OperationalError, psycopg_pool.PoolTimeout, psycopg_pool.TooManyRequests):
        app.add_exception_handler(kind, on_error)
    app.add_middleware(Envelope, body_limit_bytes=limit_bytes)
    return app
