"""/v1/events: everything live, in one event stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse

from chart.common.problems import ProblemError
from chart.common.tokens import IssuerAwayError, TokenError
from chart.gateway.auth import AnyRole, token_of
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import GatewayError, responses
from chart.gateway.events import NAMES, EventStream, Filter, TooManyClientsError

router = APIRouter(prefix="/v1", tags=["events"], responses=responses(401, 403, 422, 429, 500, 503))

_DESCRIPTION = """Server-sent events. Each has an id (send it back as `Last-Event-ID` to go on where you were), a name,
and data in JSON:

| event | data |
|---|---|
| `link-load` | `{"link_id", ...LinkLoad}`, at most 5 per second and link |
| `link-rate` | `{"link_id", ...LinkRate}` |
| `node-state` | `{"node", "state": NodeState or null}` |
| `measurement` | Measurement, at most 5 per second, path and metric |
| `grant-status` | `{"request_id", "generation", ...Confirmation}` |
| `rate-request` | RateRequest |
| `topology` | `{"kind": "node" or "link", "id", "removed", "node" or "link": the resource or null}` |
| `policy` | Policy, or `{"id", "removed": true}` |
| `resync` | `{"reason"}`: events were missed, fetch the lists anew |
| `closed` | `{"reason"}`: the stream ends; come back with `Last-Event-ID` |

With `together=true` several `link-load`, `link-rate` or `measurement` that are sent at one moment are one event whose
data is a list: a large network says thousands of them a second.

The stream ends with its token: with `closed` when that expires, and a few seconds after it was signed out or revoked.

An application gets `grant-status` and `rate-request` of its own requests only."""


@router.get(
    "/events",
    summary="Live event stream",
    description=_DESCRIPTION,
    response_class=StreamingResponse,
    responses={200: {"description": "The stream.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(
    gateway: Context,
    request: Request,
    principal: AnyRole,
    wanted: Annotated[
        str | None,
        Query(
            alias="events",
            max_length=200,
            description="Names separated by commas; default: all.",
            examples=["link-load,rate-request"],
        ),
    ] = None,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", max_length=64, description="Id of the last event that was received.")
    ] = None,
    after: Annotated[
        str | None,
        Query(max_length=64, description="As Last-Event-ID, for browsers: a new EventSource cannot send the header."),
    ] = None,
    together: Annotated[bool, Query(description="Loads and rates of links as lists, see above.")] = False,
) -> StreamingResponse:
    """Described above."""
    names = frozenset(wanted.split(",") if wanted is not None else NAMES)
    unknown = sorted(names.difference(NAMES))
    if unknown:
        raise ProblemError(
            422,
            "Invalid request",
            f"events: {unknown[0]!r} is not an event.",
            field="events",
            suggestions=[f"Choose from {', '.join(NAMES)}."],
            kind="invalid-value",
        )
    try:
        wants = Filter(names, principal.subject, principal.sees_all, together)
        stream = gateway.hub.open(wants, last_event_id or after)
    except TooManyClientsError as error:
        raise GatewayError(503, "Service unavailable", str(error), headers={"Retry-After": "10"}) from None
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    sending = _send(gateway, stream, token_of(request), principal.expires_at)
    return StreamingResponse(sending, media_type="text/event-stream", headers=headers)


async def _watch(gateway: Gateway, stream: EventStream, token: str, expires_at: int) -> None:
    """End a stream with its token: when that expires, is signed out, or revoked."""
    while (left_s := expires_at - gateway.clock.now_us() / 1e6) > 0:
        await asyncio.sleep(min(gateway.settings.events_check_s, left_s))
        try:
            await gateway.verifier.verify(token)
            await gateway.introspection.refuse(token)
        except TokenError as error:
            stream.end(f"{error}; come back with another token")
            return
        except IssuerAwayError:
            continue
    stream.end("the token has expired; come back with another token")


async def _send(gateway: Gateway, stream: EventStream, token: str, expires_at: int) -> AsyncIterator[str]:
    watching = asyncio.create_task(_watch(gateway, stream, token, expires_at))
    try:
        async for text in stream:
            yield text
    finally:
        watching.cancel()
        stream.close()
