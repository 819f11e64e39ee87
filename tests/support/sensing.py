"""What stands behind the gateway's sensing routes in its tests: backplane, inference and a pod in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from grpc import aio

from chart.archiver import alerts, pairs
from chart.archiver.service import QuestionError
from chart.common.rpc_errors import RefusalError, conflict, invalid, not_found
from chart.v1 import (
    archive_pb2,
    archive_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    measurement_pb2,
    reservations_pb2,
    sensor_pod_pb2,
    sensor_pod_pb2_grpc,
)

AT_US = 1_700_000_000_000_000


class Pair(TypedDict):
    """Between which nodes, and what."""

    source_node: str
    destination_node: str
    metric: str


PAIR: Pair = {"source_node": "alpha", "destination_node": "delta", "metric": "rtt_us"}
SNAPSHOT_ID = "01KAJ3Z0Q3D5X6W5K3T4Z8Y7VN"


class MemoryBackplane(archive_pb2_grpc.ArchiveServicer):
    """One roll-up, one baseline, one change, one snapshot of two rows; rules as they are put, of which each fires."""

    def __init__(self) -> None:
        self.rules: dict[str, Any] = {}
        self.groups: dict[str, Any] = {}

    async def QueryRollups(self, request: Any, context: Any) -> Any:  # noqa: N802
        one = archive_pb2.Rollup(
            at_us=AT_US, count=3, mean=2, p50=2, p95=3, p99=3, minimum=1, maximum=3, loss_ratio=0.5
        )
        return archive_pb2.QueryRollupsResponse(rollups=[one, archive_pb2.Rollup(at_us=AT_US + 1, failed=1)], unit="us")

    async def ListBaselines(self, request: Any, context: Any) -> Any:  # noqa: N802
        one = archive_pb2.Baseline(**PAIR, median=5, since_us=AT_US)
        return archive_pb2.ListBaselinesResponse(baselines=[one])

    async def ListPathChanges(self, request: Any, context: Any) -> Any:  # noqa: N802
        one = archive_pb2.PathChange(**PAIR, at_us=AT_US, after=9)
        return archive_pb2.ListPathChangesResponse(changes=[one])

    def _snapshot(self) -> Any:
        return archive_pb2.Snapshot(id=SNAPSHOT_ID, taken_at_us=AT_US, reason="schedule", metrics=["rtt_us"], rows=2)

    async def TakeSnapshot(self, request: Any, context: Any) -> Any:  # noqa: N802
        return archive_pb2.TakeSnapshotResponse(snapshot=self._snapshot())

    async def ListSnapshots(self, request: Any, context: Any) -> Any:  # noqa: N802
        return archive_pb2.ListSnapshotsResponse(snapshots=[self._snapshot()])

    async def GetSnapshot(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._check(request.id)
        rows = [
            archive_pb2.SnapshotRow(**PAIR, value=1, at_us=AT_US),
            archive_pb2.SnapshotRow(
                source_node="delta", destination_node="alpha", metric="rtt_us", value=2, method="landmark",
                interval_low=1, interval_high=3, at_us=AT_US,
            ),
        ]  # fmt: skip
        start = 1 if request.cursor else 0
        shown = rows[start : start + request.limit]
        cursor = "alpha,delta,rtt_us" if start + len(shown) < len(rows) else ""
        return archive_pb2.GetSnapshotResponse(snapshot=self._snapshot(), rows=shown, next_cursor=cursor)

    async def DownloadSnapshot(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._check(request.id)
        kind = "csv" if request.format == archive_pb2.SNAPSHOT_FORMAT_CSV else "parquet"
        yield archive_pb2.DownloadSnapshotResponse(file_name=f"snapshot.{kind}")
        yield archive_pb2.DownloadSnapshotResponse(data=b"source,destination\n")
        yield archive_pb2.DownloadSnapshotResponse(data=b"alpha,delta\n")

    def _check(self, identity: str) -> None:
        if identity not in ("latest", SNAPSHOT_ID):
            raise not_found("snapshot", identity, [SNAPSHOT_ID])

    async def PutPairGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            group = pairs.check(request.group)
        except QuestionError as error:
            raise invalid(error.field, error.detail) from error
        before = self.groups.get(group.id)
        if request.expected_revision and (before is None or before.revision != request.expected_revision):
            raise conflict("another revision")
        group.revision = before.revision + 1 if before else 1
        group.owner = before.owner if before else group.owner
        self.groups[group.id] = group
        return archive_pb2.PutPairGroupResponse(group=group, created=before is None)

    async def DeletePairGroup(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.groups.pop(request.id, None) is None:
            raise not_found("group of pairs", request.id)
        return archive_pb2.DeletePairGroupResponse()

    async def ListPairGroups(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = [one for one in self.groups.values() if request.id in ("", one.id)]
        return archive_pb2.ListPairGroupsResponse(groups=found)

    async def QueryPairs(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.group not in self.groups:
            raise not_found("group of pairs", request.group)
        one = archive_pb2.QueryPairsResponse(unit="us", at_us=[AT_US], mean=[2], minimum=[1], maximum=[3], count=[4])
        if request.by_pair:
            one.source_node, one.destination_node = "alpha", "delta"
        else:
            one.MergeFrom(archive_pb2.QueryPairsResponse(p50=[2], p95=[3], pairs=[1]))
        yield one

    async def DownloadHistory(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.group not in self.groups:
            raise not_found("group of pairs", request.group)
        yield archive_pb2.DownloadHistoryResponse(file_name="history.csv")
        yield archive_pb2.DownloadHistoryResponse(data=b"source,destination\n")
        yield archive_pb2.DownloadHistoryResponse(data=b"alpha,delta\n")

    async def PutAlertRule(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            rule = alerts.check(request.rule)
        except alerts.RuleError as error:
            raise invalid(error.field, str(error)) from error
        before = self.rules.get(rule.id)
        if request.expected_revision and (before is None or before.revision != request.expected_revision):
            raise conflict("another revision")
        rule.revision = before.revision + 1 if before else 1
        self.rules[rule.id] = rule
        return archive_pb2.PutAlertRuleResponse(rule=rule, created=before is None)

    async def DeleteAlertRule(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.rules.pop(request.id, None) is None:
            raise not_found("alert rule", request.id)
        return archive_pb2.DeleteAlertRuleResponse()

    async def ListAlertRules(self, request: Any, context: Any) -> Any:  # noqa: N802
        return archive_pb2.ListAlertRulesResponse(rules=list(self.rules.values()))

    async def ListAlerts(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = [
            archive_pb2.AlertRecord(id=rule, rule=rule, subject="alpha,delta,rtt_us", summary="slow", fired_at_us=AT_US)
            for rule in self.rules
        ]
        return archive_pb2.ListAlertsResponse(alerts=found)


class MemoryInference(inference_pb2_grpc.InferenceServicer):
    """One estimate, one pair to measure next."""

    async def ListEstimates(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = inference_pb2.ListEstimatesResponse(ages_us=[2_000_000])
        answer.estimates.add(
            **PAIR, value=5, unit="us", method="landmark",
            interval_low=4, interval_high=7, estimated_at_us=AT_US,
        )  # fmt: skip
        return answer

    async def NextPairs(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.metric != "rtt_us":
            raise invalid("metric", f"{request.metric!r} is not a metric that is inferred")
        answer = inference_pb2.NextPairsResponse()
        answer.pairs.add(**PAIR, reason="near", relative_width=1)
        return answer

    async def RankNodes(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = inference_pb2.RankNodesResponse(unit="us", unknown=request.candidates[1:])
        named = "delta" if request.towards else "bravo"
        answer.nodes.add(
            node=named, value=5, interval_low=4, interval_high=7, method="landmark",
            age_us=2_000_000, may_be_best=True,
        )  # fmt: skip
        return answer

    async def RankRelays(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = inference_pb2.RankRelaysResponse(unit="us")
        answer.relays.add(node="bravo", value=5, interval_low=4, interval_high=7, method="landmark", may_be_best=True)
        answer.direct.CopyFrom(inference_pb2.RankedNode(value=9, interval_low=8, interval_high=10, method="measured"))
        return answer


class MemoryPod(sensor_pod_pb2_grpc.SensorPodServicer):
    """Runs pings of 5 us; has no budget for anything else."""

    async def RunOnce(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.configuration.sensor != "ping":
            detail = "the run may send 9 bytes, the path's budget is 5 bytes a minute"
            raise RefusalError(reservations_pb2.Refusal(code="not-run-budget", detail=detail))
        result = measurement_pb2.Measurement(metric="rtt_us", value=5, unit="us", measured_at_us=AT_US)
        return sensor_pod_pb2.RunOnceResponse(measurements=[result])

    async def Report(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = sensor_pod_pb2.ReportResponse(node="alpha", configurations=4, groups=1, skipped_runs={"budget": 2})
        answer.links.add(link_id="alpha:to-delta", capacity_bps=10**8, limit_bytes=7_500_000, used_bytes=5)
        answer.skips.add(at_us=AT_US, group="pathchirp delta", reason="budget", detail="no room", count=2)
        return answer


REGISTRATIONS: tuple[tuple[str, Callable[[Any, aio.Server], None], Callable[[], Any]], ...] = (
    ("chart.v1.Inference", inference_pb2_grpc.add_InferenceServicer_to_server, MemoryInference),
    ("chart.v1.SensorPod", sensor_pod_pb2_grpc.add_SensorPodServicer_to_server, MemoryPod),
)
