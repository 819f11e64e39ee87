"""gRPC `Archive` of the archiver: history."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from chart.archiver import service
from chart.archiver.alert_repository import AlertRepository
from chart.archiver.backplane import Backplane
from chart.archiver.backplane_rpc import BackplaneServicer
from chart.archiver.messages import message_of
from chart.archiver.overlay_repository import OverlayRepository
from chart.archiver.overlay_rpc import OverlayServicer
from chart.archiver.pair_repository import PairRepository
from chart.archiver.pair_rpc import PairServicer
from chart.archiver.repository import Repository, Sample
from chart.archiver.rollup_repository import RollupRepository
from chart.archiver.service import Window
from chart.archiver.snapshot_repository import SnapshotRepository
from chart.archiver.windows import SECONDS
from chart.common.rpc import Registration
from chart.common.rpc_errors import invalid
from chart.v1 import archive_pb2, archive_pb2_grpc

# Rows of irregular series that one answer is made of.
_CHANGES_LIMIT = 100_000
_HOUR_US = 3_600_000_000
_STATUS_HOLD_US = 60_000_000


class ArchiveServicer(OverlayServicer, PairServicer, BackplaneServicer):
    """Answers from the tables."""

    def __init__(
        self,
        repository: Repository,
        rollups: RollupRepository,
        alert_repository: AlertRepository,
        snapshots: SnapshotRepository,
        backplane: Backplane,
        pair_repository: PairRepository,
        overlay_repository: OverlayRepository,
        minute_days: int,
    ) -> None:
        BackplaneServicer.__init__(self, rollups, alert_repository, snapshots, backplane)
        PairServicer.__init__(self, pair_repository)
        OverlayServicer.__init__(self, overlay_repository)
        self._repository = repository
        # Days that minutes of measurements are kept.
        self._minute_days = minute_days

    async def QuerySeries(  # noqa: N802 - name of the interface definition
        self, request: archive_pb2.QuerySeriesRequest, context: Any
    ) -> archive_pb2.QuerySeriesResponse:
        """One series; without a range the last hour."""
        until_us = request.until_us or time.time_ns() // 1000
        from_us = request.from_us or until_us - _HOUR_US
        try:
            if request.kind == archive_pb2.SERIES_KIND_MEASUREMENT:
                window, samples, unit = await self._measurement(request, from_us, until_us)
            elif request.kind == archive_pb2.SERIES_KIND_LINK:
                window, samples, unit = await self._link(request, from_us, until_us)
            elif request.kind == archive_pb2.SERIES_KIND_GRANT:
                window, samples, unit = await self._grant(request, from_us, until_us)
            else:
                raise service.QuestionError("kind", "must be measurement, link or grant")
        except service.QuestionError as error:
            raise invalid(error.field, error.detail) from error
        points = service.with_gaps(samples, window)
        return archive_pb2.QuerySeriesResponse(
            unit=unit,
            points=[
                archive_pb2.SeriesPoint(
                    at_us=point.at_us,
                    value=point.value,
                    minimum=point.minimum,
                    maximum=point.maximum,
                    count=point.count,
                )
                for point in points
            ],
        )

    async def _measurement(
        self, request: archive_pb2.QuerySeriesRequest, from_us: int, until_us: int
    ) -> tuple[Window, list[Sample], str]:
        source, comma, destination = request.subject.partition(",")
        if not (source and comma and destination):
            raise service.QuestionError("subject", "must be <source node>,<destination node>")
        if not request.metric:
            raise service.QuestionError("metric", "is missing, for example rtt_us")
        window = service.window_of(from_us, until_us, request.step_ms, request.max_points)
        names = (source, destination, request.metric)
        if not window.step_us:
            count = await self._repository.count_measurements(*names, from_us, until_us)
            window = service.window_of(from_us, until_us, 0, request.max_points, raw_count=count)
        rolled = service.rolled_from(window, time.time_ns() // 1000, self._minute_days)
        if rolled is not None:
            # Whole minutes or hours, as the roll-ups are.
            unit_us = SECONDS[rolled[0]] * 1_000_000
            from_us = from_us // unit_us * unit_us
            window = replace(window, from_us=from_us)
        samples, unit = await self._repository.measurements(
            names, from_us, until_us, window.step_us, window.max_points, rolled
        )
        return window, samples, unit or service.unit_of(request.metric)

    async def _link(
        self, request: archive_pb2.QuerySeriesRequest, from_us: int, until_us: int
    ) -> tuple[Window, list[Sample], str]:
        _check(request, service.LINK_METRICS, "link id")
        if request.metric == "available_bps":
            window = service.window_of(from_us, until_us, request.step_ms or 1000, request.max_points)
            changes = await self._repository.link_rates(request.subject, from_us, until_us, _CHANGES_LIMIT)
            return window, service.held(changes, window), "bps"
        step_ms = max(request.step_ms, service.LINK_STEP_US // 1000)
        # Whole seconds, as the rows are: a range that begins within one would be shifted against them.
        first_us = from_us // service.LINK_STEP_US * service.LINK_STEP_US
        window = service.window_of(first_us, until_us, step_ms, request.max_points)
        samples = await self._repository.link_loads(
            request.subject, request.metric, first_us, until_us, window.step_us, window.max_points
        )
        return window, samples, service.unit_of(request.metric)

    async def _grant(
        self, request: archive_pb2.QuerySeriesRequest, from_us: int, until_us: int
    ) -> tuple[Window, list[Sample], str]:
        _check(request, service.GRANT_METRICS, "request id")
        window = service.window_of(from_us, until_us, request.step_ms or 1000, request.max_points)
        statuses = await self._repository.grant_statuses(request.subject, from_us, until_us, _CHANGES_LIMIT)
        if request.metric == "kernel_rate_bps":
            samples = service.held(service.grant_kernel_rate(statuses, _STATUS_HOLD_US), window)
        else:
            samples = service.averaged(service.grant_sent_rate(statuses), window)
        return window, samples, "bps"

    async def ListLatestMeasurements(  # noqa: N802
        self, request: archive_pb2.ListLatestMeasurementsRequest, context: Any
    ) -> archive_pb2.ListLatestMeasurementsResponse:
        """The newest result of each path and metric."""
        rows = await self._repository.latest(request.source_node, request.destination_node, request.metric)
        return archive_pb2.ListLatestMeasurementsResponse(
            measurements=[message_of(archive_pb2.LatestMeasurement, row) for row in rows]
        )


def _check(request: archive_pb2.QuerySeriesRequest, metrics: tuple[str, ...], subject: str) -> None:
    if not request.subject:
        raise service.QuestionError("subject", f"must be a {subject}")
    if request.metric not in metrics:
        raise service.QuestionError("metric", f"{request.metric!r} is not one of {', '.join(metrics)}")


def registration(servicer: ArchiveServicer) -> Registration:
    """For `chart.common.rpc.serve`."""
    return ("chart.v1.Archive", archive_pb2_grpc.add_ArchiveServicer_to_server, servicer)
