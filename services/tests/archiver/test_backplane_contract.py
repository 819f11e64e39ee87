"""The backplane of a real archiver: roll-ups, changes, snapshots as files, alerts in the stream."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator

import pyarrow.parquet as pq
import pytest
from ulid import ULID

from chart.common import rpc
from chart.common.rpc_errors import RefusalError
from chart.common.streams_kafka import KafkaBroker
from chart.v1 import alert_pb2, archive_pb2, archive_pb2_grpc, estimate_pb2, measurement_pb2, platform_settings_pb2
from support.kafka import KafkaServer
from support.postgres import PostgresServer
from support.processes import ServerProcess, free_ports
from support.waiting import eventually

pytestmark = pytest.mark.contract

NAME = f"bp{os.getpid()}"


@pytest.fixture(scope="module")
def target(kafka: KafkaServer, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("backplane")
    grpc_port, http_port = free_ports(2)
    environment = {
        "CHART_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "CHART_DATABASE_URL": postgres.role_url("archiver"),
        "CHART_STATE_DIR": str(directory),
        "CHART_GRPC_LISTEN": f"127.0.0.1:{grpc_port}",
        "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}",
        "CHART_ROLLUP_PERIOD_S": "0.2",
        "CHART_CHANGE_PERIOD_S": "0.3",
        "CHART_ALERT_PERIOD_S": "0.2",
        "CHART_SNAPSHOT_PERIOD_S": "0",
    }

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    command = ("env", *(f"{name}={value}" for name, value in environment.items()))
    process = ServerProcess(
        "archiver", (*command, sys.executable, "-m", "chart.archiver.main"), directory / "archiver.log"
    )
    process.start(answers)
    yield f"127.0.0.1:{grpc_port}"
    process.stop()


@pytest.fixture
async def broker(kafka: KafkaServer) -> AsyncIterator[KafkaBroker]:
    opened = KafkaBroker(kafka.bootstrap)
    yield opened
    await opened.close()


@pytest.fixture
async def archive(target: str) -> AsyncIterator[archive_pb2_grpc.ArchiveAsyncStub]:
    channel = rpc.channel(target)
    yield archive_pb2_grpc.ArchiveStub(channel)
    await channel.close(None)


async def publish(broker: KafkaBroker, destination: str, values: list[tuple[int, float]]) -> None:
    async def one(at_us: int, value: float) -> None:
        measurement = measurement_pb2.Measurement(
            id=str(ULID()),
            source_node=NAME,
            destination_node=destination,
            sensor="ping",
            metric="rtt_us",
            value=value,
            unit="us",
            measured_at_us=at_us,
            probes_sent=10,
            probes_lost=1,
        )
        await broker.publish("chart.measurement.v1", f"{NAME},{destination},rtt_us", measurement)

    await asyncio.gather(*(one(*entry) for entry in values))


async def rollups(
    archive: archive_pb2_grpc.ArchiveAsyncStub, destination: str, resolution: str
) -> list[archive_pb2.Rollup]:
    answer = await archive.QueryRollups(
        archive_pb2.QueryRollupsRequest(
            source_node=NAME,
            destination_node=destination,
            metric="rtt_us",
            resolution=archive_pb2.RollupResolution.Value(f"ROLLUP_RESOLUTION_{resolution}"),
            from_us=1,
        )
    )
    return list(answer.rollups)


async def test_rollups_have_exact_quantiles_and_take_late_results_in(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker
) -> None:
    minute_us = (time.time_ns() // 1000 - 7_200_000_000) // 3_600_000_000 * 3_600_000_000
    values = [(minute_us + number * 500_000, float(number + 1)) for number in range(100)]
    await publish(broker, "exact", values)

    # Minutes and hours are rolled up one after the other.
    async def only(resolution: str, count: int) -> archive_pb2.Rollup | None:
        found = await rollups(archive, "exact", resolution)
        return found[0] if len(found) == 1 and found[0].count == count else None

    hour = await eventually(lambda: only("HOUR", 100), 20)
    minute = await eventually(lambda: only("MINUTE", 100), 20)
    for rolled in (hour, minute):
        assert (rolled.at_us, rolled.p50, rolled.minimum, rolled.maximum) == (minute_us, 50.5, 1, 100)
        assert rolled.p95 == pytest.approx(95.05)
        assert rolled.p99 == pytest.approx(99.01)
        assert rolled.loss_ratio == pytest.approx(0.1)
    # An hour late, for instance from a pod without a broker.
    await publish(broker, "exact", [(minute_us + 59_000_000, 1000.0), (minute_us + 61_000_000, 5.0)])
    hour = await eventually(lambda: only("HOUR", 102), 20)
    assert hour.maximum == 1000

    async def minutes_have_it() -> bool:
        return [one.count for one in await rollups(archive, "exact", "MINUTE")] == [101, 1]

    await eventually(minutes_have_it, 20)


async def test_hourly_series_join_rollups_and_the_latest_results(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker
) -> None:
    hour_us = 3_600_000_000
    now_us = time.time_ns() // 1000
    first_us = now_us // hour_us * hour_us - 5 * hour_us
    await publish(broker, "hourly", [(first_us + number * hour_us // 2 + 1, float(number)) for number in range(11)])

    async def series(step_ms: int) -> list[archive_pb2.SeriesPoint] | None:
        request = archive_pb2.QuerySeriesRequest(
            kind=archive_pb2.SERIES_KIND_MEASUREMENT,
            subject=f"{NAME},hourly",
            metric="rtt_us",
            # Within an hour: the answer begins with the whole hour.
            from_us=first_us + hour_us // 4,
            until_us=now_us,
            step_ms=step_ms,
        )
        points = list((await archive.QuerySeries(request)).points)
        return points if sum(point.count for point in points) >= (11 if now_us % hour_us > 1 else 10) else None

    points = await eventually(lambda: series(3_600_000), 20)
    assert points[0].at_us == first_us
    for number, point in enumerate(points[:5]):
        assert (point.value, point.minimum, point.maximum, point.count) == (
            2 * number + 0.5,
            2 * number,
            2 * number + 1,
            2,
        )


async def test_a_change_is_found_and_alerted_and_the_alert_is_resolved(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker
) -> None:
    destination = "changing"
    rule = archive_pb2.AlertRule(
        id=f"{NAME}-changed",
        kind=archive_pb2.ALERT_KIND_CHANGE,
        source_node=NAME,
        metric="rtt_us",
        threshold=0.3,
        for_s=7200,
    )
    stored = (await archive.PutAlertRule(archive_pb2.PutAlertRuleRequest(rule=rule))).rule
    assert stored.revision > 0
    now_us = time.time_ns() // 1000 // 60_000_000 * 60_000_000
    minutes = [now_us - (40 - number) * 60_000_000 for number in range(40)]
    values = [(at + 1, (10_000 if index < 25 else 20_000) + index % 3 * 50.0) for index, at in enumerate(minutes)]
    await publish(broker, destination, values)

    async def change() -> archive_pb2.PathChange | None:
        answer = await archive.ListPathChanges(
            archive_pb2.ListPathChangesRequest(source_node=NAME, destination_node=destination)
        )
        return answer.changes[0] if answer.changes else None

    found = await eventually(change, 30)
    assert abs(found.at_us - minutes[25]) <= 120_000_000
    assert (found.before, found.after) == (pytest.approx(10_050, rel=0.01), pytest.approx(20_050, rel=0.01))
    usual = await archive.ListBaselines(
        archive_pb2.ListBaselinesRequest(source_node=NAME, destination_node=destination)
    )
    assert usual.baselines[0].median == pytest.approx(20_050, rel=0.01)
    subject = f"{NAME},{destination},rtt_us"
    seen: list[alert_pb2.Alert] = []
    async with broker.subscribe(["chart.alert.v1"], start="earliest") as records, asyncio.timeout(30):
        async for record in records:
            if isinstance(record.value, alert_pb2.Alert) and record.value.subject == subject:
                seen.append(record.value)
                if len(seen) == 1:
                    firing = await archive.ListAlerts(archive_pb2.ListAlertsRequest(firing=True, subject=subject))
                    assert [one.rule for one in firing.alerts] == [rule.id]
                    await archive.DeleteAlertRule(archive_pb2.DeleteAlertRuleRequest(id=rule.id))
                else:
                    break
    assert [one.state for one in seen] == [alert_pb2.ALERT_STATE_FIRING, alert_pb2.ALERT_STATE_RESOLVED]
    assert seen[0].id == seen[1].id


async def test_silence_fires_and_ends_with_the_next_result(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker
) -> None:
    destination = "silent"
    rule = archive_pb2.AlertRule(
        id=f"{NAME}-silent",
        kind=archive_pb2.ALERT_KIND_NO_DATA,
        source_node=NAME,
        destination_node=destination,
        metric="rtt_us",
        for_s=10,
    )
    await archive.PutAlertRule(archive_pb2.PutAlertRuleRequest(rule=rule))

    async def firing() -> bool:
        request = archive_pb2.ListAlertsRequest(firing=True, subject=f"{NAME},{destination},rtt_us")
        return bool((await archive.ListAlerts(request)).alerts)

    await eventually(firing, 20)  # it was never measured
    await publish(broker, destination, [(time.time_ns() // 1000, 5.0)])

    async def resolved() -> bool:
        return not await firing()

    await eventually(resolved, 9)
    await eventually(firing, 25)  # ten seconds of silence
    await archive.DeleteAlertRule(archive_pb2.DeleteAlertRuleRequest(id=rule.id))


async def test_a_snapshot_has_what_was_measured_and_estimates_for_the_rest_and_comes_as_a_file(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker
) -> None:
    now_us = time.time_ns() // 1000
    await publish(broker, "seen", [(now_us, 123.0)])
    for destination in ("seen", "guessed", "gone"):
        estimate = estimate_pb2.Estimate(
            source_node=NAME,
            destination_node=destination,
            metric="rtt_us",
            value=200.0,
            unit="us",
            method="landmark",
            interval_low=150,
            interval_high=250,
            estimated_at_us=now_us,
        )
        await broker.publish("chart.estimate.v1", f"{NAME},{destination},rtt_us", estimate)
    await broker.publish("chart.estimate.v1", f"{NAME},gone,rtt_us", None)

    async def taken() -> dict[str, archive_pb2.SnapshotRow] | None:
        snapshot = (await archive.TakeSnapshot(archive_pb2.TakeSnapshotRequest())).snapshot
        rows: dict[str, archive_pb2.SnapshotRow] = {}
        cursor = ""
        while True:
            request = archive_pb2.GetSnapshotRequest(id=snapshot.id, metric="rtt_us", limit=3, cursor=cursor)
            page = await archive.GetSnapshot(request)
            rows |= {row.destination_node: row for row in page.rows if row.source_node == NAME}
            cursor = page.next_cursor
            if not cursor:
                break
        return rows if {"seen", "guessed"} <= rows.keys() and "gone" not in rows else None

    rows = await eventually(taken, 20)
    assert (rows["seen"].value, rows["seen"].method) == (123.0, "measured")
    assert not rows["seen"].HasField("interval_low")
    assert (rows["guessed"].value, rows["guessed"].method, rows["guessed"].interval_high) == (200.0, "landmark", 250)
    files: dict[int, bytes] = {}
    for kind in (archive_pb2.SNAPSHOT_FORMAT_PARQUET, archive_pb2.SNAPSHOT_FORMAT_CSV):
        parts = [
            part
            async for part in archive.DownloadSnapshot(archive_pb2.DownloadSnapshotRequest(id="latest", format=kind))
        ]
        assert parts[0].file_name.endswith(".csv" if kind == archive_pb2.SNAPSHOT_FORMAT_CSV else ".parquet")
        files[kind] = b"".join(part.data for part in parts)
    table = pq.read_table(io.BytesIO(files[archive_pb2.SNAPSHOT_FORMAT_PARQUET])).to_pylist()
    assert {row["destination"]: row["value"] for row in table if row["source"] == NAME}["guessed"] == 200.0
    lines = files[archive_pb2.SNAPSHOT_FORMAT_CSV].decode().splitlines()
    assert len(lines) == len(table) + 1


async def test_a_group_of_pairs_has_series_and_history(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker
) -> None:
    hour_us = 3_600_000_000
    first_us = time.time_ns() // 1000 // hour_us * hour_us - 3 * hour_us
    for destination, base in (("ga", 100.0), ("gb", 300.0)):
        await publish(
            broker, destination, [(first_us + number * hour_us // 2 + 1, base + number) for number in range(4)]
        )
    group = archive_pb2.PairGroup(
        id=f"{NAME}-group",
        source_nodes=[NAME],
        destination_nodes=["gb", "ga", "never-measured"],
        owner="someone",
    )
    put = await archive.PutPairGroup(archive_pb2.PutPairGroupRequest(group=group))
    assert put.created
    assert put.group.destination_nodes == ["ga", "gb", "never-measured"]
    again = await archive.PutPairGroup(
        archive_pb2.PutPairGroupRequest(group=group, expected_revision=put.group.revision)
    )
    assert not again.created
    with pytest.raises(RefusalError, match="read it again"), rpc.refusals():
        await archive.PutPairGroup(archive_pb2.PutPairGroupRequest(group=group, expected_revision=put.group.revision))

    async def asked(*, by_pair: bool) -> list[archive_pb2.QueryPairsResponse]:
        request = archive_pb2.QueryPairsRequest(
            group=group.id,
            metric="rtt_us",
            from_us=first_us,
            until_us=first_us + 3 * hour_us,
            step_ms=3_600_000,
            by_pair=by_pair,
        )
        return [one async for one in archive.QueryPairs(request)]

    async def whole() -> list[archive_pb2.QueryPairsResponse] | None:
        found = await asked(by_pair=True)
        return found if [sum(one.count) for one in found] == [4, 4] else None

    one, other = await eventually(whole, 30)
    assert (one.source_node, one.destination_node, one.unit) == (NAME, "ga", "us")
    assert list(one.at_us) == [first_us, first_us + hour_us]
    assert (list(one.mean), list(one.minimum), list(other.maximum)) == ([100.5, 102.5], [100, 102], [301, 303])
    (together,) = await asked(by_pair=False)
    assert (list(together.mean), list(together.p50), list(together.pairs)) == ([200.5, 202.5], [200.5, 202.5], [2, 2])
    for resolution, rows in ((archive_pb2.HISTORY_RESOLUTION_MEASUREMENT, 8), (archive_pb2.HISTORY_RESOLUTION_HOUR, 4)):
        request = archive_pb2.DownloadHistoryRequest(
            group=group.id,
            metric="rtt_us",
            from_us=first_us,
            until_us=first_us + 3 * hour_us,
            resolution=resolution,
            format=archive_pb2.SNAPSHOT_FORMAT_PARQUET,
        )
        parts = [part async for part in archive.DownloadHistory(request)]
        table = pq.read_table(io.BytesIO(b"".join(part.data for part in parts))).to_pylist()
        assert len(table) == rows
        assert [row["destination"] for row in table] == sorted(row["destination"] for row in table)
    await archive.DeletePairGroup(archive_pb2.DeletePairGroupRequest(id=group.id))
    with pytest.raises(RefusalError, match="no group of pairs"), rpc.refusals():
        await asked(by_pair=True)


async def test_what_cannot_be_is_refused_with_the_reason(archive: archive_pb2_grpc.ArchiveAsyncStub) -> None:
    rule = archive_pb2.AlertRule(id="r", kind=archive_pb2.ALERT_KIND_ABOVE, metric="rtt_us", statistic="p42")
    with pytest.raises(RefusalError, match="is not one of latest, mean"), rpc.refusals():
        await archive.PutAlertRule(archive_pb2.PutAlertRuleRequest(rule=rule))
    with pytest.raises(RefusalError, match="snapshot"), rpc.refusals():
        await archive.GetSnapshot(archive_pb2.GetSnapshotRequest(id="nosuch"))
    with pytest.raises(RefusalError, match="minute or hour"), rpc.refusals():
        await archive.QueryRollups(
            archive_pb2.QueryRollupsRequest(source_node="a", destination_node="b", metric="rtt_us")
        )


async def test_operators_have_snapshots_taken_by_themselves_without_a_restart(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker
) -> None:
    """This archiver was started with a period of 0: it takes none."""
    wanted = platform_settings_pb2.PlatformSettings(id="platform", snapshot_period_s=1)
    await broker.publish("chart.platform-settings.v1", "platform", wanted)

    async def scheduled() -> bool:
        answer = await archive.ListSnapshots(archive_pb2.ListSnapshotsRequest())
        return any(one.reason == "schedule" for one in answer.snapshots)

    await eventually(scheduled, 20)
    await broker.publish("chart.platform-settings.v1", "platform", None)
