"""The part of gRPC `Archive` about groups of pairs: their series, and history as files."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from chart.archiver import export, pairs
from chart.archiver.backplane_rpc import FORMATS, pieces
from chart.archiver.pair_repository import Pair, PairRepository
from chart.archiver.service import QuestionError
from chart.archiver.windows import Resolution
from chart.common import rpc
from chart.common.rpc_errors import conflict, invalid, not_found
from chart.v1 import archive_pb2, archive_pb2_grpc

_RESOLUTIONS: dict[int, Resolution | None] = {
    archive_pb2.HISTORY_RESOLUTION_MEASUREMENT: None,
    archive_pb2.HISTORY_RESOLUTION_MINUTE: "minute",
    archive_pb2.HISTORY_RESOLUTION_HOUR: "hour",
}
_Question = archive_pb2.QueryPairsRequest | archive_pb2.DownloadHistoryRequest


class PairServicer(archive_pb2_grpc.ArchiveServicer):
    """Answers about many pairs at once."""

    def __init__(self, repository: PairRepository) -> None:
        self._pairs = repository

    async def PutPairGroup(  # noqa: N802 - names of the interface definition
        self, request: archive_pb2.PutPairGroupRequest, context: Any
    ) -> archive_pb2.PutPairGroupResponse:
        """Create or change a group."""
        if not request.group.id:
            raise invalid("id", "a group needs an id")
        try:
            group = pairs.check(request.group)
        except QuestionError as error:
            raise invalid(error.field, error.detail) from error
        stored, created, other = await self._pairs.put(group, request.expected_revision, rpc.actor(context))
        if other is not None:
            words = f"is at revision {other}" if other else "does not exist"
            raise conflict(f"group {group.id!r} {words}, not at {request.expected_revision}: read it again")
        return archive_pb2.PutPairGroupResponse(group=stored, created=created)

    async def DeletePairGroup(  # noqa: N802
        self, request: archive_pb2.DeletePairGroupRequest, context: Any
    ) -> archive_pb2.DeletePairGroupResponse:
        """Remove a group; what was measured stays."""
        if not await self._pairs.delete(request.id, rpc.actor(context)):
            raise not_found("group of pairs", request.id, [one.id for one in await self._pairs.groups()])
        return archive_pb2.DeletePairGroupResponse()

    async def ListPairGroups(  # noqa: N802
        self, request: archive_pb2.ListPairGroupsRequest, context: Any
    ) -> archive_pb2.ListPairGroupsResponse:
        """By id."""
        return archive_pb2.ListPairGroupsResponse(groups=await self._pairs.groups(request.id))

    async def QueryPairs(  # noqa: N802
        self, request: archive_pb2.QueryPairsRequest, context: Any
    ) -> AsyncIterator[archive_pb2.QueryPairsResponse]:
        """Series of each pair or of all together."""
        try:
            span = pairs.span_of(request.from_us, request.until_us, time.time_ns() // 1000)
            steps = pairs.steps_of(*span, request.step_ms)
            asked = await self._asked(request)
            if request.by_pair:
                pairs.check_points(len(asked), steps)
        except QuestionError as error:
            raise invalid(error.field, error.detail) from error
        for row in await self._pairs.series(asked, request.metric, steps, by_pair=request.by_pair):
            yield archive_pb2.QueryPairsResponse(**row)

    async def DownloadHistory(  # noqa: N802
        self, request: archive_pb2.DownloadHistoryRequest, context: Any
    ) -> AsyncIterator[archive_pb2.DownloadHistoryResponse]:
        """Results or roll-ups as a file, in pieces."""
        kind = FORMATS.get(request.format)
        if kind is None:
            raise invalid("format", "must be csv or parquet", "csv", "parquet")
        if request.resolution not in _RESOLUTIONS:
            raise invalid("resolution", "must be measurement, minute or hour", "measurement", "minute", "hour")
        resolution = _RESOLUTIONS[request.resolution]
        try:
            from_us, until_us = pairs.span_of(request.from_us, request.until_us, time.time_ns() // 1000)
            asked = await self._asked(request)
        except QuestionError as error:
            raise invalid(error.field, error.detail) from error
        name = "-".join(["chart", request.group or "history", request.metric, resolution or "measurements"])
        yield archive_pb2.DownloadHistoryResponse(file_name=f"{name}.{kind}")
        file = export.Export(kind, export.MEASUREMENTS if resolution is None else export.ROLLUPS)
        async for page in self._pairs.history(asked, request.metric, from_us, until_us, resolution):
            for piece in pieces(await asyncio.to_thread(file.write, page)):
                yield archive_pb2.DownloadHistoryResponse(data=piece)
        for piece in pieces(await asyncio.to_thread(file.close)):
            yield archive_pb2.DownloadHistoryResponse(data=piece)

    async def _asked(self, request: _Question) -> Sequence[Pair]:
        """The pairs of a question.

        Raises:
            QuestionError: no metric, no pairs, or too many of them.
        """
        if not request.metric:
            raise QuestionError("metric", "is missing, for example rtt_us")
        if not request.group:
            if not request.pairs:
                raise QuestionError("group", "state a group or pairs")
            return pairs.single(request.pairs)
        found = await self._pairs.groups(request.group)
        if not found:
            raise not_found("group of pairs", request.group, [one.id for one in await self._pairs.groups()])
        asked = await self._pairs.measured(pairs.selection_of(found[0]), request.metric)
        if len(asked) > pairs.MAX_PAIRS:
            raise QuestionError("group", f"has more than {pairs.MAX_PAIRS} measured pairs: divide it")
        return asked
