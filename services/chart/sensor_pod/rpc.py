"""gRPC `SensorPod` of a pod."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from chart.common.rpc import Registration
from chart.common.rpc_errors import RefusalError, invalid, not_found
from chart.sensor_pod import applications
from chart.sensor_pod.applications import LimitExceededError
from chart.sensor_pod.model import InvalidConfigurationError, from_proto
from chart.sensor_pod.pod import Pod, RunRefusedError
from chart.sensor_pod.watch import TooManyWatchersError
from chart.v1 import reservations_pb2, sensing_configuration_pb2, sensor_pod_pb2, sensor_pod_pb2_grpc

QUERY_LIMIT = 1000
QUERY_CEILING = 10_000
SKIPS, SKIPS_CEILING = 100, 10_000
_FOREVER_US = 2**62

Configuration = sensing_configuration_pb2.SensingConfiguration


class SensorPodServicer(sensor_pod_pb2_grpc.SensorPodServicer):
    """Answers for one pod."""

    def __init__(self, pod: Pod) -> None:
        self._pod = pod

    async def Configure(  # noqa: N802 - name of the interface definition
        self, request: sensor_pod_pb2.ConfigureRequest, context: Any
    ) -> sensor_pod_pb2.ConfigureResponse:
        """Store or remove a configuration; answered when it is on disk."""
        configuration = request.configuration
        origin = self._pod.origin(configuration.id)
        if origin == "stream":
            detail = f"configuration {configuration.id!r} belongs to the control plane; change it there"
            raise RefusalError(reservations_pb2.Refusal(code="not-local", detail=detail, field="id"))
        if request.remove:
            if origin is None:
                known = [entry.id for entry in self._pod.configurations("local")]
                raise not_found("configuration", configuration.id, known)
            await self._pod.remove([configuration.id])
        else:
            self._check_source(configuration)
            try:
                await self._pod.put(configuration, "local")
            except InvalidConfigurationError as error:
                raise invalid(error.field, error.detail) from error
            except LimitExceededError as error:
                raise _beyond(error) from error
        return sensor_pod_pb2.ConfigureResponse()

    async def List(  # noqa: N802
        self, request: sensor_pod_pb2.ListRequest, context: Any
    ) -> sensor_pod_pb2.ListResponse:
        """Everything that is configured."""
        return sensor_pod_pb2.ListResponse(configurations=self._pod.configurations())

    async def RunOnce(  # noqa: N802
        self, request: sensor_pod_pb2.RunOnceRequest, context: Any
    ) -> sensor_pod_pb2.RunOnceResponse:
        """Run a sensor once, or answer with a run that is under way or young enough."""
        self._check_source(request.configuration)
        try:
            configuration = from_proto(request.configuration, one_shot=True)
            measurements = await self._pod.run_once(configuration)
        except InvalidConfigurationError as error:
            raise invalid(error.field, error.detail) from error
        except LimitExceededError as error:
            raise _beyond(error) from error
        except RunRefusedError as error:
            refusal = reservations_pb2.Refusal(code=f"not-run-{error.reason}", detail=str(error))
            raise RefusalError(refusal, grpc.StatusCode.FAILED_PRECONDITION) from error
        return sensor_pod_pb2.RunOnceResponse(measurements=measurements)

    async def Query(  # noqa: N802
        self, request: sensor_pod_pb2.QueryRequest, context: Any
    ) -> sensor_pod_pb2.QueryResponse:
        """The newest stored results in a range of time, oldest first."""
        until_us = request.until_us or _FOREVER_US
        if request.from_us > until_us:
            raise invalid("from_us", "is after until_us")
        limit = min(request.limit or QUERY_LIMIT, QUERY_CEILING)
        rows = await self._pod.repository.query(
            request.destination_node, request.metric, request.from_us, until_us, limit
        )
        return sensor_pod_pb2.QueryResponse(measurements=rows)

    async def Watch(  # noqa: N802
        self, request: sensor_pod_pb2.WatchRequest, context: Any
    ) -> AsyncIterator[sensor_pod_pb2.WatchResponse]:
        """Results as they come."""
        try:
            with self._pod.watchers.watch(request.destination_node, request.metric) as watcher:
                # The caller learns at once that it is being served.
                await context.send_initial_metadata(())
                async for measurement in watcher.results():
                    yield sensor_pod_pb2.WatchResponse(measurement=measurement)
        except TooManyWatchersError:
            refusal = reservations_pb2.Refusal(code="too-many-watchers", detail="this pod has 100 watchers already")
            raise RefusalError(refusal) from None

    async def Report(  # noqa: N802
        self, request: sensor_pod_pb2.ReportRequest, context: Any
    ) -> sensor_pod_pb2.ReportResponse:
        """What was measured, merged, delayed and skipped, and how much of each budget is used."""
        scheduler, now_us = self._pod.scheduler, self._pod.now_us()
        budget, counts = scheduler.budget, scheduler.statistics
        owners = scheduler.applications.configurations()
        used: dict[str, int] = dict.fromkeys(owners, 0)
        for name, owner, _ in applications.accounts_of(budget.links()):
            used[owner] = used.get(owner, 0) + budget.used_bytes(name, now_us)
        late_us = sorted(self._pod.lateness_us) or [0]
        skips = await self._pod.repository.skips(min(request.skips or SKIPS, SKIPS_CEILING))
        return sensor_pod_pb2.ReportResponse(
            node=self._pod.node,
            configurations=len(scheduler.configurations()),
            groups=scheduler.group_count,
            started_runs=counts.started,
            merged_runs=counts.merged,
            answered_from_store=counts.answered_from_store,
            skipped_runs=counts.skipped,
            delayed_runs=counts.delayed,
            start_lateness_p50_us=late_us[len(late_us) // 2],
            start_lateness_p99_us=late_us[min(len(late_us) - 1, int(0.99 * len(late_us)))],
            start_lateness_max_us=late_us[-1],
            start_lateness_runs=len(self._pod.lateness_us),
            links=[
                sensor_pod_pb2.LinkBudget(
                    link_id=link,
                    capacity_bps=budget.capacity_bps(link),
                    limit_bytes=budget.limit_bytes(link),
                    used_bytes=budget.used_bytes(link, now_us),
                )
                for link in sorted(budget.links())
                if not applications.is_account(link)
            ],
            skips=[
                sensor_pod_pb2.SkippedRun(
                    at_us=skip.at_us, group=skip.group_key, reason=skip.reason, detail=skip.detail, count=skip.count
                )
                for skip in skips
            ],
            applications=[
                sensor_pod_pb2.ApplicationUse(owner=owner, configurations=owners.get(owner, 0), used_bytes=size)
                for owner, size in sorted(used.items())
            ],
        )

    def _check_source(self, configuration: Configuration) -> None:
        if configuration.source_node not in ("", self._pod.node):
            raise invalid("source_node", f"this is the pod of {self._pod.node}, not of {configuration.source_node}")


def _beyond(error: LimitExceededError) -> RefusalError:
    refusal = reservations_pb2.Refusal(code="application-limit", detail=str(error), field=error.field)
    for words, value in (("at least", error.floor), ("at most", error.ceiling)):
        if value is not None:
            refusal.suggestions.append(f"Use {words} {value:g}.")
    return RefusalError(refusal, grpc.StatusCode.RESOURCE_EXHAUSTED)


def registration(pod: Pod) -> Registration:
    """For `chart.common.rpc.serve`."""
    return ("chart.v1.SensorPod", sensor_pod_pb2_grpc.add_SensorPodServicer_to_server, SensorPodServicer(pod))
