"""/v1/measurements and /v1/series: measurements, latest and over time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query, Response

from chart.common import names
from chart.common.problems import ProblemError
from chart.gateway import exposition, mapping
from chart.gateway.auth import AnyRole
from chart.gateway.backends import problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.http import Cursor, Limit, page
from chart.gateway.routes import alerts, estimates, snapshots
from chart.gateway.schemas.common import NODE_ID_PATTERN, InputTimestamp, microseconds
from chart.gateway.schemas.history import MeasurementPage, Series, SeriesKind
from chart.v1 import archive_pb2, reservations_pb2

router = APIRouter(prefix="/v1", responses=responses(401, 403, 422, 429, 500, 503))
for part in (estimates, snapshots, alerts):
    router.include_router(part.router)

MAX_POINTS = 10_000
MAX_SPAN = timedelta(days=400)
_EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
_LATEST = datetime(2200, 1, 1, tzinfo=UTC)

MetricName = Annotated[str, Query(pattern=r"^[a-z][a-z0-9_]{0,63}$", examples=["rtt_us"])]
NodeFilter = Annotated[str | None, Query(pattern=NODE_ID_PATTERN, max_length=names.NODE_LENGTH_MAX)]


# The archive's latest measurements are read again after so long; what comes meanwhile comes by the stream.
ARCHIVE_FRESH_S = 2.0


async def read_archive_if_old(gateway: Gateway) -> None:
    """As `read_archive`, for one of all who ask within `ARCHIVE_FRESH_S`."""
    async with gateway.archive_reading:
        if gateway.clock.monotonic() - gateway.archive_read_at >= ARCHIVE_FRESH_S:
            await read_archive(gateway)


async def read_archive(gateway: Gateway) -> None:
    """Take the archive's latest measurements into the live state, where newer ones stay."""
    call = archive_pb2.ListLatestMeasurementsRequest()
    with problems("archiver"):
        answer = await gateway.backends.archive.ListLatestMeasurements(call)
    for item in answer.measurements:
        gateway.live.note_measurement(item)
    gateway.archive_read_at = gateway.clock.monotonic()


@router.get("/measurements", tags=["history"], summary="Latest measurements")
async def measurements(
    gateway: Context,
    _principal: AnyRole,
    source: NodeFilter = None,
    destination: NodeFilter = None,
    metric: Annotated[str | None, Query(pattern=r"^[a-z][a-z0-9_]{0,63}$", examples=["rtt_us"])] = None,
    limit: Limit = 1000,
    cursor: Cursor = None,
) -> MeasurementPage:
    """The newest of each source, destination and metric."""
    try:
        await read_archive_if_old(gateway)
    except ProblemError:
        # The stream alone shows what was measured since this gateway began; nothing at all would be a wrong answer.
        if not gateway.live.measurements:
            raise
    found = list(gateway.live.find_measurements(source or "", destination or "", metric or ""))
    shown, next_cursor = page(
        found, lambda item: f"{item.source_node},{item.destination_node},{item.metric}", limit, cursor
    )
    now_us = gateway.clock.now_us()
    return MeasurementPage(items=[gateway.live.measurement(item, now_us) for item in shown], next_cursor=next_cursor)


@router.get(
    "/measurements/prometheus",
    tags=["history"],
    summary="Latest measurements for Prometheus",
    response_class=Response,
    responses={200: {"description": "Text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def measurements_for_prometheus(
    gateway: Context,
    _principal: AnyRole,
    source: NodeFilter = None,
    destination: NodeFilter = None,
    metric: Annotated[str | None, Query(pattern=r"^[a-z][a-z0-9_]{0,63}$", examples=["rtt_us"])] = None,
) -> Response:
    """A gauge `chart_measured_<metric>` for each pair; failed and stale results are left out. At most 100000 values."""
    try:
        await read_archive_if_old(gateway)
    except ProblemError:
        if not gateway.live.measurements:
            raise
    now_us = gateway.clock.now_us()
    found = gateway.live.find_measurements(source or "", destination or "", metric or "")
    good = [one for one in found if not one.error and not gateway.live.is_stale(one, now_us)]
    if len(good) > exposition.MOST:
        raise ProblemError(
            422,
            "Invalid request",
            f"metric: {len(good)} values are too many for one answer ({exposition.MOST}).",
            field="metric",
            suggestions=["State metric, source or destination, and scrape several times."],
            kind="invalid-value",
        )
    return Response(exposition.text(good), media_type=exposition.MEDIA_TYPE)


@router.get("/series", tags=["history"], summary="History of one metric", responses=responses(404))
async def series(
    gateway: Context,
    principal: AnyRole,
    kind: SeriesKind,
    subject: Annotated[
        str,
        Query(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9_.,:@-]{0,539}$",
            description="measurement: `<source>,<destination>`; link: its id; grant: id of the rate request.",
            examples=["bravo:to-charlie"],
        ),
    ],
    metric: MetricName,
    start: Annotated[InputTimestamp | None, Query(alias="from", description="Default: an hour before until.")] = None,
    until: Annotated[InputTimestamp | None, Query(description="Default: now.")] = None,
    step_ms: Annotated[
        int, Query(ge=0, le=86_400_000, description="Points are averaged into steps of this length; 0: raw.")
    ] = 0,
) -> Series:
    """At most 10000 points; ask for a longer step when there would be more."""
    end = until or datetime.fromtimestamp(gateway.clock.now_us() / 1e6, UTC)
    if not _EARLIEST <= end <= _LATEST:
        raise _out_of_range("until", "must be between the years 2000 and 2200")
    begin = start or end - timedelta(hours=1)
    if not _EARLIEST <= begin <= _LATEST:
        raise _out_of_range("from", "must be between the years 2000 and 2200")
    if begin >= end:
        raise _out_of_range("from", "must be earlier than until")
    if end - begin > MAX_SPAN:
        raise _out_of_range("from", f"must be at most {MAX_SPAN.days} days before until")
    if step_ms and (end - begin) / timedelta(milliseconds=step_ms) > MAX_POINTS:
        floor_ms = int((end - begin) / timedelta(milliseconds=MAX_POINTS)) + 1
        raise ProblemError(
            422,
            "Invalid request",
            f"step_ms: would give more than {MAX_POINTS} points.",
            field="step_ms",
            floor=floor_ms,
            suggestions=[f"Use a step of at least {floor_ms} ms, or a shorter time."],
            kind="invalid-value",
        )
    if kind == "grant" and not principal.sees_all:
        # Answers 404 when the request is another application's.
        with problems("reservations"):
            await gateway.backends.reservations.GetRateRequest(
                reservations_pb2.GetRateRequestRequest(id=subject, owner=principal.subject)
            )
    call = archive_pb2.QuerySeriesRequest(
        kind=archive_pb2.SeriesKind.Value(f"SERIES_KIND_{kind.upper()}"),
        subject=subject,
        metric=metric,
        from_us=microseconds(begin),
        until_us=microseconds(end),
        step_ms=step_ms,
        max_points=MAX_POINTS,
    )
    with problems("archiver"):
        answer = await gateway.backends.archive.QuerySeries(call)
    return mapping.series(answer)


def _out_of_range(field: str, words: str) -> ProblemError:
    return ProblemError(422, "Invalid request", f"{field}: {words}.", field=field, kind="invalid-value")
