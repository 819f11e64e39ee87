"""/v1/events: everything live, in one event stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from chart.common.problems import ProblemError
from chart.gateway.auth import AnyRole
from chart.gateway.context import Context
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
    except TooManyClientsError:
        raise GatewayError(
            503, "Service unavailable", "Too many event streams are open.", headers={"Retry-After": "10"}
        ) from None
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_send(stream), media_type="text/event-stream", headers=headers)


async def _send(stream: EventStream) -> AsyncIterator[str]:
    try:
        async for text in stream:
            yield text
    finally:
        stream.close()
