"""The part of gRPC `Archive` about the overlay: what happened, and what it was like at a time."""

from __future__ import annotations

import time
from typing import Any

from chart.archiver.backplane_rpc import check_range, limit_of
from chart.archiver.overlay_repository import OverlayRepository
from chart.common.rpc_errors import invalid
from chart.v1 import archive_pb2, archive_pb2_grpc

_DAY_US = 86_400_000_000
# Clocks of nodes may be ahead of ours.
_AHEAD_US = 60_000_000


class OverlayServicer(archive_pb2_grpc.ArchiveServicer):
    """Answers from events and path tables."""

    def __init__(self, repository: OverlayRepository) -> None:
        self._overlay = repository

    async def ListOverlayEvents(  # noqa: N802 - names of the interface definition
        self, request: archive_pb2.ListOverlayEventsRequest, context: Any
    ) -> archive_pb2.ListOverlayEventsResponse:
        """Without a range the last day."""
        until_us = request.until_us or time.time_ns() // 1000 + _AHEAD_US
        from_us = request.from_us or until_us - _DAY_US
        check_range(from_us, until_us)
        if request.of not in ("", "links", "paths"):
            raise invalid("of", "must be links or paths, or empty for both", "links", "paths")
        found = await self._overlay.events(
            request.node, request.link_id, request.owner, request.of, from_us, until_us, limit_of(request.limit)
        )
        return archive_pb2.ListOverlayEventsResponse(events=found)

    async def GetOverlayAt(  # noqa: N802
        self, request: archive_pb2.GetOverlayAtRequest, context: Any
    ) -> archive_pb2.GetOverlayAtResponse:
        """Path tables of a time, and what had happened until then."""
        if not 0 < request.at_us <= time.time_ns() // 1000 + _AHEAD_US:
            raise invalid("at_us", "must be a time of the past")
        return archive_pb2.GetOverlayAtResponse(
            tables=await self._overlay.tables_at(request.at_us), events=await self._overlay.last_events(request.at_us)
        )
