"""The part of gRPC `Archive` that answers from roll-ups, baselines, snapshots and alerts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from chart.archiver import alerts, export
from chart.archiver.alert_repository import AlertRepository
from chart.archiver.backplane import Backplane
from chart.archiver.messages import message_of
from chart.archiver.rollup_repository import RollupRepository
from chart.archiver.snapshot_repository import LATEST, Snapshot, SnapshotRepository
from chart.archiver.windows import Resolution
from chart.common import rpc
from chart.common.rpc_errors import conflict, invalid, not_found
from chart.v1 import archive_pb2, archive_pb2_grpc

LIMIT, CEILING = 1000, 10_000
_HOUR_US = 3_600_000_000
_CHUNK_BYTES = 256 * 1024
FORMATS = {archive_pb2.SNAPSHOT_FORMAT_CSV: export.CSV, archive_pb2.SNAPSHOT_FORMAT_PARQUET: export.PARQUET}
_RESOLUTIONS: dict[int, Resolution] = {
    archive_pb2.ROLLUP_RESOLUTION_MINUTE: "minute",
    archive_pb2.ROLLUP_RESOLUTION_HOUR: "hour",
}


class BackplaneServicer(archive_pb2_grpc.ArchiveServicer):
    """Answers from the backplane's tables."""

    def __init__(
        self,
        rollups: RollupRepository,
        alert_repository: AlertRepository,
        snapshots: SnapshotRepository,
        backplane: Backplane,
    ) -> None:
        self._rollups = rollups
        self._alerts = alert_repository
        self._snapshots = snapshots
        self._backplane = backplane

    # Roll-ups, baselines, changes

    async def QueryRollups(  # noqa: N802 - names of the interface definition
        self, request: archive_pb2.QueryRollupsRequest, context: Any
    ) -> archive_pb2.QueryRollupsResponse:
        """Minutes or hours of a path."""
        for field in ("source_node", "destination_node", "metric"):
            if not getattr(request, field):
                raise invalid(field, f"{field} is missing")
        resolution = _RESOLUTIONS.get(request.resolution)
        if resolution is None:
            raise invalid("resolution", "must be minute or hour", "minute", "hour")
        until_us = request.until_us or time.time_ns() // 1000
        from_us = request.from_us or until_us - (_HOUR_US if resolution == "minute" else 24 * _HOUR_US)
        check_range(from_us, until_us)
        path = (request.source_node, request.destination_node, request.metric)
        rows = await self._rollups.rollups(resolution, path, from_us, until_us, limit_of(request.limit))
        return archive_pb2.QueryRollupsResponse(
            rollups=[_rollup(row) for row in rows], unit=rows[0]["unit"] if rows else ""
        )

    async def ListBaselines(  # noqa: N802
        self, request: archive_pb2.ListBaselinesRequest, context: Any
    ) -> archive_pb2.ListBaselinesResponse:
        """What is usual."""
        rows = await self._rollups.baselines(request.source_node, request.destination_node, request.metric)
        return archive_pb2.ListBaselinesResponse(baselines=[message_of(archive_pb2.Baseline, row) for row in rows])

    async def ListPathChanges(  # noqa: N802
        self, request: archive_pb2.ListPathChangesRequest, context: Any
    ) -> archive_pb2.ListPathChangesResponse:
        """Lasting changes of levels."""
        until_us = request.until_us or time.time_ns() // 1000 + _HOUR_US
        from_us = request.from_us or 1
        check_range(from_us, until_us)
        rows = await self._rollups.changes(
            request.source_node, request.destination_node, request.metric, from_us, until_us, limit_of(request.limit)
        )
        return archive_pb2.ListPathChangesResponse(changes=[message_of(archive_pb2.PathChange, row) for row in rows])

    # Snapshots

    async def TakeSnapshot(  # noqa: N802
        self, request: archive_pb2.TakeSnapshotRequest, context: Any
    ) -> archive_pb2.TakeSnapshotResponse:
        """Take one now."""
        taken = await self._backplane.snapshot(rpc.actor(context) or "request")
        assert taken is not None
        return archive_pb2.TakeSnapshotResponse(snapshot=_snapshot(taken))

    async def ListSnapshots(  # noqa: N802
        self, request: archive_pb2.ListSnapshotsRequest, context: Any
    ) -> archive_pb2.ListSnapshotsResponse:
        """The newest first."""
        found = await self._snapshots.listing()
        return archive_pb2.ListSnapshotsResponse(snapshots=[_snapshot(one) for one in found])

    async def GetSnapshot(  # noqa: N802
        self, request: archive_pb2.GetSnapshotRequest, context: Any
    ) -> archive_pb2.GetSnapshotResponse:
        """One page of a snapshot."""
        found = await self._found(request.id)
        limit = limit_of(request.limit)
        after = (*request.cursor.split(","), "", "")[:3] if request.cursor else ("", "", "")
        rows = await self._snapshots.rows(found.id, request.metric, (after[0], after[1], after[2]), limit + 1)
        shown = rows[:limit]
        more = len(rows) > limit
        cursor = ",".join((shown[-1]["source"], shown[-1]["destination"], shown[-1]["metric"])) if more else ""
        return archive_pb2.GetSnapshotResponse(
            snapshot=_snapshot(found),
            rows=[message_of(archive_pb2.SnapshotRow, row) for row in shown],
            next_cursor=cursor,
        )

    async def DownloadSnapshot(  # noqa: N802
        self, request: archive_pb2.DownloadSnapshotRequest, context: Any
    ) -> AsyncIterator[archive_pb2.DownloadSnapshotResponse]:
        """A snapshot as a file, in pieces."""
        kind = FORMATS.get(request.format)
        if kind is None:
            raise invalid("format", "must be csv or parquet", "csv", "parquet")
        found = await self._found(request.id)
        name = "-".join(["chart-snapshot", found.id.lower(), *([request.metric] if request.metric else [])])
        yield archive_pb2.DownloadSnapshotResponse(file_name=f"{name}.{kind}")
        file = export.Export(kind)
        async for page in self._snapshots.pages(found.id, request.metric):
            for piece in pieces(await asyncio.to_thread(file.write, page)):
                yield archive_pb2.DownloadSnapshotResponse(data=piece)
        for piece in pieces(await asyncio.to_thread(file.close)):
            yield archive_pb2.DownloadSnapshotResponse(data=piece)

    async def _found(self, identity: str) -> Snapshot:
        found = await self._snapshots.get(identity or LATEST)
        if found is None:
            known = [one.id for one in (await self._snapshots.listing())[:5]]
            raise not_found("snapshot", identity or LATEST, known)
        return found

    # Alerts

    async def PutAlertRule(  # noqa: N802
        self, request: archive_pb2.PutAlertRuleRequest, context: Any
    ) -> archive_pb2.PutAlertRuleResponse:
        """Create or change a rule."""
        try:
            rule = alerts.check(request.rule)
        except alerts.RuleError as error:
            raise invalid(error.field, str(error)) from error
        stored, created, other = await self._alerts.put(rule, request.expected_revision, rpc.actor(context))
        if other is not None:
            words = f"is at revision {other}" if other else "does not exist"
            raise conflict(f"alert rule {rule.id!r} {words}, not at {request.expected_revision}: read it again")
        return archive_pb2.PutAlertRuleResponse(rule=stored, created=created)

    async def DeleteAlertRule(  # noqa: N802
        self, request: archive_pb2.DeleteAlertRuleRequest, context: Any
    ) -> archive_pb2.DeleteAlertRuleResponse:
        """Remove a rule; what it fired is resolved."""
        if not await self._alerts.delete(request.id, rpc.actor(context)):
            raise not_found("alert rule", request.id, [rule.id for rule in await self._alerts.rules()])
        return archive_pb2.DeleteAlertRuleResponse()

    async def ListAlertRules(  # noqa: N802
        self, request: archive_pb2.ListAlertRulesRequest, context: Any
    ) -> archive_pb2.ListAlertRulesResponse:
        """All rules."""
        return archive_pb2.ListAlertRulesResponse(rules=await self._alerts.rules())

    async def ListAlerts(  # noqa: N802
        self, request: archive_pb2.ListAlertsRequest, context: Any
    ) -> archive_pb2.ListAlertsResponse:
        """Alerts, the newest first."""
        rows = await self._alerts.listing(firing=request.firing, subject=request.subject, limit=limit_of(request.limit))
        return archive_pb2.ListAlertsResponse(alerts=[message_of(archive_pb2.AlertRecord, row) for row in rows])


def check_range(from_us: int, until_us: int) -> None:
    """Refuse a time range that is none."""
    if not 0 < from_us < until_us <= 4_102_444_800_000_000:
        raise invalid("from_us", "must be a time before until_us")


def limit_of(asked: int) -> int:
    """How many answers are given; refuses more than there may be."""
    if asked > CEILING:
        raise invalid("limit", f"must be at most {CEILING}")
    return asked or LIMIT


def pieces(data: bytes) -> list[bytes]:
    """A file's bytes in pieces that messages can hold."""
    return [data[start : start + _CHUNK_BYTES] for start in range(0, len(data), _CHUNK_BYTES)]


def _rollup(row: dict[str, Any]) -> archive_pb2.Rollup:
    rollup = message_of(archive_pb2.Rollup, row)
    if row["probes_sent"]:
        rollup.loss_ratio = row["probes_lost"] / row["probes_sent"]
    return rollup


def _snapshot(one: Snapshot) -> archive_pb2.Snapshot:
    return archive_pb2.Snapshot(
        id=one.id, taken_at_us=one.taken_at_us, reason=one.reason, metrics=one.metrics, nodes=one.nodes, rows=one.rows
    )
