"""gRPC interceptors: trace context and error mapping in the server, deadline and trace context in the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import structlog
from grpc import aio
from opentelemetry.trace import Status, StatusCode
from prometheus_client import Histogram

from chart.common import telemetry
from chart.common.rpc_errors import REFUSAL_METADATA, RefusalError, is_unavailable
from chart.v1 import reservations_pb2

HANDLED = Histogram(
    "chart_rpc_handled_seconds",
    "Time to answer a call",
    ["method", "code"],
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 3, 10),
)

_log = structlog.get_logger("chart.rpc")


def refusal_of(error: aio.AioRpcError) -> reservations_pb2.Refusal | None:
    """The refusal that an error carries; None when it carries none."""
    metadata: Any = error.trailing_metadata() or ()
    for name, value in metadata:
        if name == REFUSAL_METADATA:
            return reservations_pb2.Refusal.FromString(value)
    return None


class TraceAndErrors(aio.ServerInterceptor):  # type: ignore[type-arg]
    """One span and one observation per call; exceptions become status codes that the caller understands."""

    def __init__(self) -> None:
        # Handlers by method, as they are and wrapped: grpc asks for one at every call.
        self._wrapped: dict[str, tuple[Any, Any]] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Wrap unary and streaming answers; streams of requests are not used here."""
        handler = await continuation(handler_call_details)
        if handler is None or handler.request_streaming:
            return handler
        method = handler_call_details.method
        if method.startswith("/grpc."):
            return handler
        known, wrapped = self._wrapped.get(method, (None, None))
        if known is not handler:
            wrapped = _wrap(handler, method)
            self._wrapped[method] = handler, wrapped
        return wrapped


def _wrap(handler: Any, method: str) -> Any:
    if handler.response_streaming:
        return grpc.unary_stream_rpc_method_handler(
            _streaming(handler.unary_stream, method),
            request_deserializer=handler.request_deserializer,
            response_serializer=handler.response_serializer,
        )
    return grpc.unary_unary_rpc_method_handler(
        _unary(handler.unary_unary, method),
        request_deserializer=handler.request_deserializer,
        response_serializer=handler.response_serializer,
    )


def _headers(context: aio.ServicerContext[Any, Any]) -> dict[str, str]:
    """The trace context that came with a call."""
    metadata: Any = context.invocation_metadata() or ()
    return {name: value for name, value in metadata if name == "traceparent"}


def _unary(inner: Any, method: str) -> Any:
    handled = HANDLED.labels(method=method, code="OK")

    async def handle(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        started = time.monotonic()
        code = "OK"
        with telemetry.span(f"serve {method}", _headers(context)) as span:
            try:
                return await inner(request, context)
            except Exception as error:
                code = await _answer_error(method, error, context, span, started)
                raise
            finally:
                if code == "OK":
                    handled.observe(time.monotonic() - started)

    return handle


def _streaming(inner: Any, method: str) -> Any:
    async def handle(request: Any, context: aio.ServicerContext[Any, Any]) -> Any:
        started = time.monotonic()
        with telemetry.span(f"serve {method}", _headers(context)) as span:
            try:
                async for answer in inner(request, context):
                    yield answer
            except Exception as error:
                await _answer_error(method, error, context, span, started)
                raise

    return handle


async def _answer_error(
    method: str, error: Exception, context: aio.ServicerContext[Any, Any], span: Any, started: float
) -> str:
    """End the call with the status for an error; raises what gRPC raises to end a call."""
    if isinstance(error, (aio.AbortError, asyncio.CancelledError)):
        raise error
    status, words, metadata = status_of(error)
    HANDLED.labels(method=method, code=status.name).observe(time.monotonic() - started)
    span.set_status(Status(StatusCode.ERROR, words))
    if status is grpc.StatusCode.INTERNAL:
        _log.error("a call failed without a reason that the caller could use", method=method, exc_info=error)
    else:
        _log.info("a call was refused", method=method, status=status.name, reason=words)
    await context.abort(status, words, trailing_metadata=metadata)
    return status.name


def status_of(error: Exception) -> tuple[grpc.StatusCode, str, tuple[tuple[str, bytes], ...]]:
    """Status code, words and trailing metadata for an exception of a handler."""
    if isinstance(error, RefusalError):
        return error.status, error.refusal.detail, ((REFUSAL_METADATA, error.refusal.SerializeToString()),)
    if is_unavailable(error):
        return grpc.StatusCode.UNAVAILABLE, f"not available now: {error}", ()
    return grpc.StatusCode.INTERNAL, "internal error; the service's log has the reason", ()


class DeadlineAndTrace:
    """Gives calls the deadline and the trace context; one interceptor per kind of call, as grpc.aio wants."""

    @staticmethod
    def all(deadline_s: float) -> Any:
        """The interceptors for a channel."""
        return [_UnaryUnary(deadline_s), _UnaryStream()]


def _with_trace(details: aio.ClientCallDetails, timeout: float | None) -> aio.ClientCallDetails:
    metadata = aio.Metadata(*(details.metadata or ()))
    if "traceparent" not in metadata:
        for name, value in telemetry.inject().items():
            metadata.add(name, value)
    return aio.ClientCallDetails(
        method=details.method,
        timeout=timeout,
        metadata=metadata,
        credentials=details.credentials,
        wait_for_ready=details.wait_for_ready,
    )


class _UnaryUnary(aio.UnaryUnaryClientInterceptor):  # type: ignore[type-arg]
    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        timeout = client_call_details.timeout if client_call_details.timeout is not None else self._deadline_s
        return await continuation(_with_trace(client_call_details, timeout), request)


class _UnaryStream(aio.UnaryStreamClientInterceptor):  # type: ignore[type-arg]
    async def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return await continuation(_with_trace(client_call_details, client_call_details.timeout), request)
