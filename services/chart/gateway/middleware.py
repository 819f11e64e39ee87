"""Around every request: its id, a server span that continues the caller's trace (W3C traceparent), the body limit,
security headers, metrics, and a problem document for what no handler caught. Plain ASGI: event streams pass through.
"""

from __future__ import annotations

import asyncio
import re
import time

import structlog
from opentelemetry.trace import SpanKind, Status, StatusCode
from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from ulid import ULID

from chart.common import telemetry
from chart.common.problems import MEDIA_TYPE
from chart.gateway.errors import internal_error_body, problem_response, too_large

REQUESTS = Counter("chart_gateway_requests_total", "Requests answered.", ["method", "route", "status"])
SECONDS = Histogram(
    "chart_gateway_request_seconds",
    "Time to the end of the answer; event streams not counted.",
    ["method", "route"],
    buckets=(0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)

_REQUEST_ID = re.compile(r"^[A-Za-z0-9_.-]{8,64}$")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
# Asked every few seconds by supervisors and scrapers: no spans.
_UNTRACED = frozenset({"/healthz", "/readyz", "/metrics", "/v1/events"})
_log = structlog.get_logger("chart.gateway")

# A client that was refused already may go on sending for this long and this much, unread and unkept, before the
# connection is closed under it: many clients look for the answer only when they have sent everything.
LINGER_S = 2.0
LINGER_BYTES = 32_000_000

# The dashboard is one bundle of our own; data: is for its small images, styles come inline from its component library.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
}


class Envelope:
    """ASGI middleware: request id, span, body limit in bytes, security headers, metrics, problem documents."""

    def __init__(self, app: ASGIApp, *, body_limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = body_limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request; lifespan and others go straight through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = headers.get("x-request-id", "")
        if not _REQUEST_ID.match(request_id):
            request_id = str(ULID())
        scope.setdefault("state", {})["request_id"] = request_id
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            if scope["path"] in _UNTRACED:
                await self._answer(scope, receive, send, request_id)
                return
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            with telemetry.span(f"{method} {scope['path'].split('/')[1]}", dict(headers)) as span:
                await self._answer(scope, receive, send, request_id)
                state = scope["state"]
                span.update_name(f"{method} {_route(scope)}")
                span.set_attributes(
                    {
                        "span.kind": SpanKind.SERVER.name,
                        "http.request.method": method,
                        "http.route": _route(scope),
                        "http.response.status_code": state.get("status", 0),
                        "chart.request_id": request_id,
                    }
                )
                if state.get("status", 0) >= 500:
                    span.set_status(Status(StatusCode.ERROR))

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        began = time.perf_counter()
        state = scope["state"]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                state["status"] = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                allowance = state.get("allowance")
                for name, value in (allowance.headers() if allowance is not None else {}).items():
                    headers.setdefault(name, value)
                if message["status"] == 413:
                    # The rest of the body will not be read: the connection cannot be used again.
                    headers["Connection"] = "close"
            elif state.get("status") == 413 and not message.get("more_body", False):
                # The client is still sending: closing now would reset the connection under the answer.
                await send({**message, "more_body": True})
                await self._let_go(receive)
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        try:
            declared = Headers(scope=scope).get("content-length", "")
            if declared.isdecimal() and int(declared[:18]) > self._limit_bytes:
                await self._refuse(scope, send_with_headers, request_id)
            else:
                await self._app(scope, self._limited(receive), send_with_headers)
        except Exception as error:
            _log.exception("a request failed", path=scope["path"], error=repr(error))
            if "status" in state:
                raise
            await self._fail(scope, send_with_headers, request_id)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            route = _route(scope)
            REQUESTS.labels(method, route, str(state.get("status", 499))).inc()
            if route != "/v1/events":
                SECONDS.labels(method, route).observe(time.perf_counter() - began)

    async def _let_go(self, receive: Receive) -> None:
        """Wait until a client that was refused hangs up, for a bounded time and amount."""
        left_bytes = LINGER_BYTES
        try:
            async with asyncio.timeout(LINGER_S):
                while left_bytes > 0:
                    message = await receive()
                    if message["type"] == "http.disconnect" or not message.get("more_body", False):
                        return
                    left_bytes -= len(message.get("body", b""))
        except TimeoutError:
            return

    def _limited(self, receive: Receive) -> Receive:
        """The body as it comes, ended when it grows over the limit: the declared length is not relied on."""
        seen_bytes = 0

        async def limited() -> Message:
            nonlocal seen_bytes
            message = await receive()
            if message["type"] == "http.request":
                seen_bytes += len(message.get("body", b""))
                if seen_bytes > self._limit_bytes:
                    raise HTTPException(413, str(self._limit_bytes))
            return message

        return limited

    async def _refuse(self, scope: Scope, send: Send, request_id: str) -> None:
        document = too_large(self._limit_bytes).document(scope["path"])
        response = problem_response(document, request_id=request_id)

        async def nothing() -> Message:
            return {"type": "http.disconnect"}

        await response(scope, nothing, send)

    async def _fail(self, scope: Scope, send: Send, request_id: str) -> None:
        body = internal_error_body(scope["path"], request_id)
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 500, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _route(scope: Scope) -> str:
    """The route's template, so that metrics do not grow with every id."""
    route = scope.get("route")
    path = getattr(route, "path", None)
    return path if isinstance(path, str) and path else "unmatched"
