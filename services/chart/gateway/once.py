"""A POST that is repeated with its Idempotency-Key gets the first answer again, for 24 h.

Asking for a rate has that from reservations, in the transaction that commits it. Every other POST that changes
something depends on `once` and is an `OnceRoute`: the key is claimed before the call, for one caller, path and body,
and its answer is kept afterwards. A refusal is not kept: the same call may be granted later. A call that nobody heard
the end of (the gateway was killed) is made again after 15 s, one that lasts long by its nature after a minute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog
from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from chart.common.problems import ProblemError
from chart.gateway.auth import AnyRole
from chart.gateway.backends import problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import GatewayError
from chart.gateway.http import IdempotencyKey
from chart.v1 import reservations_pb2

# How long a repetition waits for the first call to end, and how often it looks.
WAIT_S = 3.0
LOOK_EVERY_S = 0.1
# Longer than a call of a service may take; a repetition has to wait no longer for a gateway that was killed.
CLAIM_US = 15_000_000
# These measure or write files first.
LONG = ("/v1/sensing-runs", "/v1/snapshots")
KEPT_HEADERS = ("content-type", "etag", "location", "cache-control")
LARGEST_BYTES = 1_000_000

_log = structlog.get_logger("chart.gateway")


class _ReplayError(Exception):
    """Not an error: the answer is known."""

    def __init__(self, answer: reservations_pb2.KeptAnswer) -> None:
        super().__init__("answered before")
        self.answer = answer


@dataclass(frozen=True)
class _Claim:
    """A key that this call has."""

    gateway: Gateway
    owner: str
    operation: str
    key: str
    claim: str

    async def end(self, answer: reservations_pb2.KeptAnswer | None) -> None:
        """Keep the answer, or give the key back. What was done is done: a fault here is no reason to say otherwise."""
        call = reservations_pb2.KeepAnswerRequest(
            owner=self.owner, operation=self.operation, key=self.key, claim=self.claim, answer=answer
        )
        try:
            with problems("reservations"):
                await self.gateway.backends.reservations.KeepAnswer(call)
        except ProblemError as problem:
            _log.warning("an answer is not kept for repetitions", operation=self.operation, reason=problem.detail)


async def _once(request: Request, gateway: Context, principal: AnyRole, idempotency_key: IdempotencyKey = None) -> None:
    if idempotency_key is None:
        return
    owner, operation = principal.subject, f"{request.method} {request.url.path}"
    call = reservations_pb2.ClaimAnswerRequest(
        owner=owner,
        operation=operation,
        key=idempotency_key,
        fingerprint=hashlib.sha256(request.url.query.encode() + b"\n" + await request.body()).digest(),
        claim_us=0 if request.url.path in LONG else CLAIM_US,
    )
    end = gateway.clock.monotonic() + WAIT_S
    while True:
        with problems("reservations"):
            answer = await gateway.backends.reservations.ClaimAnswer(call)
        if answer.HasField("answer"):
            raise _ReplayError(answer.answer)
        if answer.claim:
            request.state.claim = _Claim(gateway, owner, operation, idempotency_key, answer.claim)
            return
        if gateway.clock.monotonic() > end:
            raise GatewayError(
                409,
                "In progress",
                "The first call with this Idempotency-Key is still running.",
                field="Idempotency-Key",
                suggestions=["Repeat the call in a moment to get its response."],
                kind="idempotency-key-in-use",
                headers={"Retry-After": "1"},
            )
        await gateway.clock.sleep(LOOK_EVERY_S)


once = Depends(_once)


class OnceRoute(APIRoute):
    """A route whose answers are kept when a key was claimed."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """The handler that keeps what it answers."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                response = await handler(request)
            except _ReplayError as replay:
                return _again(replay.answer)
            except Exception:
                await _end(request, None)
                raise
            await _end(request, response)
            return response

        return handle


async def _end(request: Request, response: Response | None) -> None:
    claim: _Claim | None = getattr(request.state, "claim", None)
    if claim is None:
        return
    body = getattr(response, "body", None)
    if response is None or not 200 <= response.status_code < 300 or not isinstance(body, bytes):
        await claim.end(None)
    elif len(body) > LARGEST_BYTES:
        _log.warning("an answer is too large to be kept", operation=claim.operation, size=len(body))
        await claim.end(None)
    else:
        headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
        await claim.end(reservations_pb2.KeptAnswer(status=response.status_code, headers=headers, body=body))


def _again(kept: reservations_pb2.KeptAnswer) -> Response:
    return Response(kept.body, kept.status, {**kept.headers, "Idempotency-Replayed": "true"})
