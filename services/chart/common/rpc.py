"""gRPC as all services use it: server with health, reflection, tracing and error mapping; channels with deadlines.

A refusal (message Refusal: code, field, floor, ceiling, what would do) travels in the trailing metadata
``chart-refusal-bin`` of FAILED_PRECONDITION, INVALID_ARGUMENT, NOT_FOUND, ABORTED or ALREADY_EXISTS.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from chart.common.problems import ProblemError
from chart.common.rpc_errors import REFUSAL_METADATA, RefusalError
from chart.common.rpc_interceptors import DeadlineAndTrace, TraceAndErrors, refusal_of
from chart.common.rpc_tls import Callers, NodeCredentials, RpcFiles, server_credentials
from chart.common.settings import BaseServiceSettings

DEADLINE_S = 3.0
STOP_GRACE_S = 3.0
ACTOR_METADATA = "chart-actor"
MAX_MESSAGE_BYTES = 4 * 1024 * 1024

# (full service name, generated add_..._to_server, servicer)
Registration = tuple[str, Callable[[Any, aio.Server], None], Any]

_RETRIES = json.dumps(
    {
        "methodConfig": [
            {
                "name": [{}],
                "retryPolicy": {
                    "maxAttempts": 4,
                    "initialBackoff": "0.1s",
                    "maxBackoff": "1s",
                    "backoffMultiplier": 2,
                    "retryableStatusCodes": ["UNAVAILABLE"],
                },
            }
        ]
    }
)

# HTTP status and title of each code that a caller can do something about.
_PROBLEMS: dict[grpc.StatusCode, tuple[int, str]] = {
    grpc.StatusCode.INVALID_ARGUMENT: (422, "Invalid value"),
    grpc.StatusCode.FAILED_PRECONDITION: (409, "Refused"),
    grpc.StatusCode.ABORTED: (412, "Changed meanwhile"),
    grpc.StatusCode.ALREADY_EXISTS: (409, "Exists already"),
    grpc.StatusCode.NOT_FOUND: (404, "Not found"),
    grpc.StatusCode.PERMISSION_DENIED: (403, "Not allowed"),
    grpc.StatusCode.UNAUTHENTICATED: (401, "Not authenticated"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (429, "Too many requests"),
    grpc.StatusCode.UNAVAILABLE: (503, "Service unavailable"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (504, "No answer in time"),
}

_log = structlog.get_logger("chart.rpc")


@dataclass(frozen=True)
class Guard:
    """Mutual TLS of a server: its certificate, and who may call, as certificates name them ("service/gateway")."""

    files: RpcFiles
    callers: tuple[str, ...]


class Server:
    """A running gRPC server."""

    def __init__(self, server: aio.Server, port: int, health_servicer: Any) -> None:
        self._server = server
        self.port = port
        self._health = health_servicer

    async def wait(self) -> None:
        """Return when the server has stopped."""
        await self._server.wait_for_termination()


@asynccontextmanager
async def serve(
    registrations: Sequence[Registration], settings: BaseServiceSettings, guard: Guard | None = None
) -> AsyncIterator[Server]:
    """Serve inside the context on ``settings.grpc_listen`` ("host:port", port 0 takes a free one); with a ``guard``
    over mutual TLS.

    Calls under way when the context ends get 3 s to finish.

    Raises:
        RuntimeError: the address cannot be listened on.
    """
    server = aio.server(
        interceptors=[TraceAndErrors(), *([Callers(guard.callers, guard.files)] if guard is not None else [])],
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5000),
        ],
        maximum_concurrent_rpcs=1000,
    )
    health_servicer = health.aio.HealthServicer()  # type: ignore[attr-defined]  # missing in the stubs
    names = [name for name, _, _ in registrations]
    for _, add, servicer in registrations:
        add(servicer, server)
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection([*names, health.SERVICE_NAME, reflection.SERVICE_NAME], server)
    if guard is not None:
        port = server.add_secure_port(settings.grpc_listen, server_credentials(guard.files))
    else:
        port = server.add_insecure_port(settings.grpc_listen)
    await server.start()
    for name in ("", *names):
        await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)
    _log.info("gRPC server listens", listen=settings.grpc_listen, port=port, services=names)
    try:
        yield Server(server, port, health_servicer)
    finally:
        await health_servicer.enter_graceful_shutdown()
        await server.stop(STOP_GRACE_S)


def channel(target: str, *, deadline_s: float = DEADLINE_S, node: NodeCredentials | None = None) -> aio.Channel:
    """A channel to "host:port": calls without a timeout of their own get the deadline, UNAVAILABLE is tried again with
    back-off within it, the trace goes along. It connects when first used; close it with ``await channel.close()``.
    ``node``: of a node, over mutual TLS.

    An unanswered call may have been carried out: calls must be idempotent or carry an idempotency key.
    """
    options: list[tuple[str, Any]] = [
        ("grpc.service_config", _RETRIES),
        ("grpc.enable_retries", 1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 1000),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.max_receive_message_length", 16 * MAX_MESSAGE_BYTES),
    ]
    interceptors = DeadlineAndTrace.all(deadline_s)
    if node is None:
        return aio.insecure_channel(target, options=options, interceptors=interceptors)
    options.append(("grpc.ssl_target_name_override", node.server_name))
    return aio.secure_channel(target, node.credentials, options=options, interceptors=interceptors)


def actor(context: aio.ServicerContext[Any, Any]) -> str:
    """Who a call is made for, as the caller says in the metadata ``chart-actor``; "unknown" when it does not.

    Services trust each other here: the gateway has checked the token and passes its subject on.
    """
    metadata: Any = context.invocation_metadata() or ()
    return next((str(value) for name, value in metadata if name == ACTOR_METADATA), "unknown")


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn a refusal of the called service into `RefusalError`; other errors stay grpc.aio.AioRpcError.

    Use as ``with rpc.refusals(): answer = await stub.Method(request)``.
    """
    try:
        yield
    except aio.AioRpcError as error:
        refusal = refusal_of(error)
        if refusal is None:
            raise
        raise RefusalError(refusal, error.code()) from error


def problem_of(error: aio.AioRpcError | RefusalError) -> ProblemError:
    """The problem document for an error of a call, with what the refusal says would be accepted."""
    refusal = error.refusal if isinstance(error, RefusalError) else refusal_of(error)
    code = error.status if isinstance(error, RefusalError) else error.code()
    status, title = _PROBLEMS.get(code, (502, "Service failed"))
    if refusal is not None:
        return ProblemError(
            status,
            title,
            refusal.detail,
            field=refusal.field or None,
            floor=refusal.floor_bps if refusal.HasField("floor_bps") else None,
            ceiling=refusal.ceiling_bps if refusal.HasField("ceiling_bps") else None,
            suggestions=tuple(refusal.suggestions),
            kind=refusal.code or None,
        )
    details = error.details() if isinstance(error, aio.AioRpcError) else None
    return ProblemError(status, title, details or "the service gave no reason")


__all__ = [
    "ACTOR_METADATA",
    "REFUSAL_METADATA",
    "Guard",
    "RefusalError",
    "Registration",
    "Server",
    "actor",
    "channel",
    "problem_of",
    "refusals",
    "serve",
]
