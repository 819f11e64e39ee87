"""The archiver as a process against a real Kafka and PostgreSQL: kill -9, series, partitions."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
from ulid import ULID

from chart.common import rpc
from chart.common.streams_kafka import KafkaBroker
from chart.v1 import (
    archive_pb2,
    archive_pb2_grpc,
    audit_pb2,
    grant_status_pb2,
    link_load_pb2,
    link_rate_pb2,
    measurement_pb2,
)
from support.kafka import KafkaServer
from support.postgres import PostgresServer
from support.processes import ServerProcess, free_ports
from support.waiting import eventually

pytestmark = pytest.mark.contract


class ArchiverProcess:
    """chart-archiver on free ports."""

    def __init__(self, kafka: KafkaServer, postgres: PostgresServer, directory: Path) -> None:
        grpc_port, http_port = free_ports(2)
        self.target = f"127.0.0.1:{grpc_port}"
        self._ready = f"http://127.0.0.1:{http_port}/readyz"
        environment = {
            "CHART_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "CHART_DATABASE_URL": postgres.role_url("archiver"),
            "CHART_STATE_DIR": str(directory),
            "CHART_GRPC_LISTEN": self.target,
            "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}",
            "CHART_ARCHIVE_BATCH_ROWS": "200",
        }
        command = ("env", *(f"{name}={value}" for name, value in environment.items()))
        self._process = ServerProcess(
            "archiver", (*command, sys.executable, "-m", "chart.archiver.main"), directory / "archiver.log"
        )

    def start(self) -> None:
        self._process.start(self._answers)

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.stop()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self._ready, timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


@pytest.fixture(scope="module")
def archiver(
    kafka: KafkaServer, postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ArchiverProcess]:
    process = ArchiverProcess(kafka, postgres, tmp_path_factory.mktemp("archiver"))
    process.start()
    yield process
    process.stop()


@pytest.fixture
async def broker(kafka: KafkaServer) -> AsyncIterator[KafkaBroker]:
    opened = KafkaBroker(kafka.bootstrap)
    yield opened
    await opened.close()


@pytest.fixture
async def archive(archiver: ArchiverProcess) -> AsyncIterator[archive_pb2_grpc.ArchiveAsyncStub]:
    channel = rpc.channel(archiver.target)
    yield archive_pb2_grpc.ArchiveStub(channel)
    await channel.close(None)


def measurement(destination: str, value: float, at_us: int) -> measurement_pb2.Measurement:
    return measurement_pb2.Measurement(
        id=str(ULID()),
        source_node="alpha",
        destination_node=destination,
        sensor="ping",
        metric="rtt_us",
        value=value,
        unit="us",
        measured_at_us=at_us,
    )


def count(postgres: PostgresServer, query: str, *parameters: object) -> int:
    with psycopg.connect(postgres.url) as connection:
        row = connection.execute(query, parameters).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_killed_archiver_stores_every_measurement_exactly_once(
    archiver: ArchiverProcess, broker: KafkaBroker, postgres: PostgresServer
) -> None:
    destination = f"kill-{os.getpid()}"
    total, now_us = 6000, time.time_ns() // 1000
    entries = [measurement(f"{destination}-{number % 40}", number, now_us - number * 1000) for number in range(total)]
    stored = "SELECT count(*) FROM archiver.measurement WHERE destination LIKE %s"

    async def publish() -> None:
        for begin in range(0, total, 300):
            part = entries[begin : begin + 300]
            await asyncio.gather(
                *(broker.publish("chart.measurement.v1", f"alpha,{e.destination_node},rtt_us", e) for e in part)
            )

    publishing = asyncio.create_task(publish())
    for part in (0, 1500):
        await eventually(lambda part=part: count(postgres, stored, f"{destination}%") > part, 40)
        # Not in a thread: the kernel ends the child with the thread that started it.
        archiver.kill()
        archiver.start()
    await publishing
    await eventually(lambda: count(postgres, stored, f"{destination}%") >= total, 40)
    with psycopg.connect(postgres.url) as connection:
        rows = connection.execute(
            "SELECT id, value FROM archiver.measurement WHERE destination LIKE %s", (f"{destination}%",)
        ).fetchall()
    assert len(rows) == total
    assert dict(rows) == {entry.id: entry.value for entry in entries}


async def test_series_of_measurements_average_into_steps_and_show_gaps(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker
) -> None:
    begin_us = time.time_ns() // 1000 - 60_000_000
    # Two in the first step, none in the second, one in the third.
    for offset_s, value in ((0.0, 100.0), (1.0, 300.0), (4.5, 50.0)):
        entry = measurement("series", value, begin_us + int(offset_s * 1e6))
        await broker.publish("chart.measurement.v1", "alpha,series,rtt_us", entry)
    question = archive_pb2.QuerySeriesRequest(
        kind=archive_pb2.SERIES_KIND_MEASUREMENT,
        subject="alpha,series",
        metric="rtt_us",
        from_us=begin_us,
        until_us=begin_us + 6_000_000,
        step_ms=2000,
    )

    async def complete() -> archive_pb2.QuerySeriesResponse | None:
        answer = await archive.QuerySeries(question)
        return answer if sum(point.count for point in answer.points) == 3 else None

    answer = await eventually(complete, 30)
    assert answer.unit == "us"
    assert [point.at_us - begin_us for point in answer.points] == [0, 2_000_000, 4_000_000]
    assert [point.value if point.HasField("value") else None for point in answer.points] == [200.0, None, 50.0]
    assert (answer.points[0].minimum, answer.points[0].maximum) == (100.0, 300.0)
    latest = await archive.ListLatestMeasurements(
        archive_pb2.ListLatestMeasurementsRequest(source_node="alpha", destination_node="series")
    )
    assert [(entry.metric, entry.value) for entry in latest.measurements] == [("rtt_us", 50.0)]


async def test_link_loads_are_stored_by_second_and_rates_hold_until_their_lease_ends(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker, postgres: PostgresServer
) -> None:
    begin_us = (time.time_ns() // 1_000_000_000 - 30) * 1_000_000
    link = "load:to-bravo"
    for number in range(1, 36):
        load = link_load_pb2.LinkLoad(link_id=link, sent_bytes=125_000 * (1 + number % 2), queue_bytes=number)
        report = link_load_pb2.LinkLoadReport(
            node="load",
            sequence=number,
            interval_end_us=begin_us + number * 100_000,
            interval_us=100_000,
            links=[load],
        )
        await broker.publish("chart.link-load.v1", "load", report)
    rates = link_rate_pb2.LinkRates(
        node="load", generation=1, issued_at_us=begin_us, valid_until_us=begin_us + 2_000_000, controller="nec"
    )
    rates.links.add(link_id=link, available_bps=7_000_000)
    await broker.publish("chart.link-rate.v1", "load", rates)

    def question(metric: str) -> archive_pb2.QuerySeriesRequest:
        return archive_pb2.QuerySeriesRequest(
            kind=archive_pb2.SERIES_KIND_LINK,
            subject=link,
            metric=metric,
            from_us=begin_us,
            until_us=begin_us + 3_000_000,
            step_ms=1000,
        )

    async def complete() -> archive_pb2.QuerySeriesResponse | None:
        answer = await archive.QuerySeries(question("sent_bps"))
        return answer if all(point.HasField("value") for point in answer.points) else None

    answer = await eventually(complete, 30)
    assert [point.value for point in answer.points] == [15e6, 15e6, 15e6]
    assert [point.maximum for point in answer.points] == [20e6, 20e6, 20e6]
    assert answer.unit == "bps"
    assert count(postgres, "SELECT sum(samples) FROM archiver.link_load WHERE link_id = %s", link) >= 30
    available = (await archive.QuerySeries(question("available_bps"))).points
    assert [point.value if point.HasField("value") else None for point in available] == [7e6, 7e6, None]


async def test_grants_and_audit_are_archived(
    archive: archive_pb2_grpc.ArchiveAsyncStub, broker: KafkaBroker, postgres: PostgresServer
) -> None:
    request = str(ULID())
    for sent_bytes in (0, 1_000_000):
        status = grant_status_pb2.GrantStatus(
            request_id=request,
            node="alpha",
            generation=1,
            state=grant_status_pb2.GRANT_STATE_APPLIED,
            kernel_rate_bps=50_000_000,
            sent_bytes=sent_bytes,
        )
        await broker.publish("chart.grant-status.v1", f"{request},alpha", status)
    record = audit_pb2.AuditRecord(
        id=str(ULID()),
        at_us=time.time_ns() // 1000,
        service="registry",
        actor="operator",
        action="node.put",
        subject=request,
        detail_json='{"a": 1}',
    )
    await broker.publish("chart.audit.v1", request, record)
    # A second time, as an at-least-once relay may.
    await broker.publish("chart.audit.v1", request, record)
    of_request = "SELECT count(*) FROM archiver.grant_status WHERE request_id = %s"
    of_audit = "SELECT count(*) FROM archiver.audit WHERE subject = %s"
    await eventually(lambda: count(postgres, of_request, request) == 2, 30)
    await eventually(lambda: count(postgres, of_audit, request) == 1, 30)
    answer = await archive.QuerySeries(
        archive_pb2.QuerySeriesRequest(
            kind=archive_pb2.SERIES_KIND_GRANT, subject=request, metric="kernel_rate_bps", step_ms=1000
        )
    )
    assert {point.value for point in answer.points if point.HasField("value")} == {50e6}
    assert count(postgres, of_audit, request) == 1
