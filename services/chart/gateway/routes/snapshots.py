"""/v1/roll-ups, /v1/baselines, /v1/path-changes, /v1/snapshots: what the backplane makes of measurements."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from chart.common import names
from chart.common.problems import ProblemError
from chart.gateway import mapping_sensing
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import acting, problems
from chart.gateway.context import Context
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, Limit, decode_cursor, encode_cursor
from chart.gateway.once import OnceRoute, once
from chart.gateway.routes.estimates import MetricFilter, NodeFilter
from chart.gateway.routes.files import FILE_RESPONSES, file_of
from chart.gateway.schemas.common import NODE_ID_PATTERN, InputTimestamp, microseconds
from chart.gateway.schemas.sensing import (
    Baselines,
    FileFormat,
    PathChanges,
    Resolution,
    RollUps,
    Snapshot,
    SnapshotPage,
    Snapshots,
)
from chart.v1 import archive_pb2

# Part of the router in history.py.
router = APIRouter(tags=["history"], responses=responses(401, 403, 422, 429, 500, 503), route_class=OnceRoute)

SnapshotId = Annotated[
    str,
    Path(alias="id", pattern=r"^(latest|[0-9A-Za-z]{26})$", description="`latest`, or an id.", examples=["latest"]),
]
NodeName = Annotated[str, Query(pattern=NODE_ID_PATTERN, max_length=names.NODE_LENGTH_MAX)]
From = Annotated[InputTimestamp | None, Query(alias="from")]
Until = Annotated[InputTimestamp | None, Query()]
_EARLIEST_YEAR, _LATEST_YEAR = 2000, 2099


def time_range(start: datetime | None, until: datetime | None) -> dict[str, int]:
    """Microseconds of a range; 0 where none is stated."""
    for name, moment in (("from", start), ("until", until)):
        if moment is not None and not _EARLIEST_YEAR <= moment.year <= _LATEST_YEAR:
            raise _wrong(name, f"must be between the years {_EARLIEST_YEAR} and {_LATEST_YEAR}")
    if start is not None and until is not None and start >= until:
        raise _wrong("from", "must be earlier than until")
    return {
        "from_us": microseconds(start) if start is not None else 0,
        "until_us": microseconds(until) if until is not None else 0,
    }


def _wrong(field: str, words: str) -> ProblemError:
    return ProblemError(422, "Invalid request", f"{field}: {words}.", field=field, kind="invalid-value")


@router.get("/roll-ups", summary="Minutes or hours of a path")
async def roll_ups(
    gateway: Context,
    _principal: AnyRole,
    source: NodeName,
    destination: NodeName,
    metric: Annotated[str, Query(pattern=r"^[a-z][a-z0-9_]{0,63}$", examples=["rtt_us"])],
    resolution: Resolution = "minute",
    start: From = None,
    until: Until = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> RollUps:
    """Count, mean, quantiles, least and greatest, and loss; default: an hour of minutes, a day of hours."""
    request = archive_pb2.QueryRollupsRequest(
        source_node=source,
        destination_node=destination,
        metric=metric,
        resolution=archive_pb2.RollupResolution.Value(f"ROLLUP_RESOLUTION_{resolution.upper()}"),
        limit=limit,
        **time_range(start, until),
    )
    with problems("archiver"):
        answer = await gateway.backends.archive.QueryRollups(request)
    return mapping_sensing.roll_ups(answer)


@router.get("/baselines", summary="Baselines of paths")
async def baselines(
    gateway: Context,
    _principal: AnyRole,
    source: NodeFilter = None,
    destination: NodeFilter = None,
    metric: MetricFilter = None,
) -> Baselines:
    """Median and spread since the path's last change."""
    request = archive_pb2.ListBaselinesRequest(
        source_node=source or "", destination_node=destination or "", metric=metric or ""
    )
    with problems("archiver"):
        answer = await gateway.backends.archive.ListBaselines(request)
    return Baselines(items=[mapping_sensing.baseline(one) for one in answer.baselines])


@router.get("/path-changes", summary="Lasting changes of paths")
async def path_changes(
    gateway: Context,
    _principal: AnyRole,
    source: NodeFilter = None,
    destination: NodeFilter = None,
    metric: MetricFilter = None,
    start: From = None,
    until: Until = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> PathChanges:
    """Newest first."""
    request = archive_pb2.ListPathChangesRequest(
        source_node=source or "",
        destination_node=destination or "",
        metric=metric or "",
        limit=limit,
        **time_range(start, until),
    )
    with problems("archiver"):
        answer = await gateway.backends.archive.ListPathChanges(request)
    return PathChanges(items=[mapping_sensing.path_change(one) for one in answer.changes])


@router.get("/snapshots", summary="Snapshots of all pairs")
async def list_snapshots(gateway: Context, _principal: AnyRole) -> Snapshots:
    """Newest first."""
    with problems("archiver"):
        answer = await gateway.backends.archive.ListSnapshots(archive_pb2.ListSnapshotsRequest())
    return Snapshots(items=[mapping_sensing.snapshot(one) for one in answer.snapshots])


@router.post(
    "/snapshots", status_code=201, summary="Take a snapshot now", responses=responses(409, 413), dependencies=[once]
)
async def take_snapshot(response: Response, gateway: Context, principal: Operator) -> Snapshot:
    """Measured values, and estimates where nothing was measured."""
    with problems("archiver"):
        answer = await gateway.backends.archive.TakeSnapshot(
            archive_pb2.TakeSnapshotRequest(), metadata=acting(principal.subject)
        )
    response.headers["Location"] = f"/v1/snapshots/{answer.snapshot.id}"
    return mapping_sensing.snapshot(answer.snapshot)


@router.get("/snapshots/{id}", summary="One snapshot", responses=responses(404))
async def get_snapshot(
    snapshot_id: SnapshotId,
    gateway: Context,
    _principal: AnyRole,
    metric: MetricFilter = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> SnapshotPage:
    """Its rows by source, destination and metric. Read further pages by the id, not by `latest`."""
    request = archive_pb2.GetSnapshotRequest(
        id=snapshot_id,
        metric=metric or "",
        limit=limit,
        cursor=decode_cursor(cursor) if cursor is not None else "",
    )
    with problems("archiver"):
        answer = await gateway.backends.archive.GetSnapshot(request)
    return SnapshotPage(
        snapshot=mapping_sensing.snapshot(answer.snapshot),
        items=[mapping_sensing.snapshot_row(row) for row in answer.rows],
        next_cursor=encode_cursor(answer.next_cursor) if answer.next_cursor else None,
    )


@router.get(
    "/snapshots/{id}/file",
    summary="One snapshot as a file",
    response_class=Response,
    responses=FILE_RESPONSES,
)
async def download_snapshot(
    snapshot_id: SnapshotId,
    gateway: Context,
    _principal: AnyRole,
    file_format: Annotated[FileFormat, Query(alias="format")] = "csv",
    metric: MetricFilter = None,
) -> Response:
    """CSV or Parquet with the columns source, destination, metric, value, unit, method, interval ends, time."""
    request = archive_pb2.DownloadSnapshotRequest(
        id=snapshot_id,
        metric=metric or "",
        format=archive_pb2.SnapshotFormat.Value(f"SNAPSHOT_FORMAT_{file_format.upper()}"),
    )
    return await file_of(gateway.backends.archive.DownloadSnapshot(request), file_format)
