"""`archive-load`: measurements that one archiver writes each second, and how long a question about a month takes.

Brassil et al., The CHART System, section 6: results are kept and can be asked for. A broker, a database and one
archiver of the experiment's own. Measurements of 1,000 nodes (five rounds of 20,000 pairs) wait in the stream before
the archiver starts: it writes as fast as it can, roll-ups and the latest result of each path included. Then hours of a
month of 1,000 pairs are filled in as the archiver would have written them, and a client asks for 100 of these pairs,
hour by hour.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import multiprocessing
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import psycopg

from chart.archiver.repository import partition_name
from chart.common.migrate import upgrade
from chart.common.streams import KafkaBroker
from chart.common.topics import apply
from chart.v1 import archive_pb2, archive_pb2_grpc, measurement_pb2
from chart_lab.errors import LabError
from chart_lab.experiments.admission_platform import settings_in
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, quantile
from chart_lab.platform import kafka, postgres
from chart_lab.platform.programs import grpc_port, service_programs
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.supervisor import Supervisor

NODES = 1000
MEASUREMENTS = 300_000
# Of a path that a month is filled in for, and of those that are asked for.
MONTH_PAIRS, ASKED_PAIRS = 1000, 100
MONTH_DAYS = 30
QUESTIONS = 20
WRITE_LIMIT_S = 240.0
METRIC = "rtt_us"
# Pairs of the largest mesh that the registry plans, what a ping says of each, and its period.
PAIRS = 20_000
METRICS = ((METRIC, "us"), ("loss_ratio", "ratio"), ("jitter_us", "us"))
PERIOD_US = 10_000_000
ROWS_GOAL, QUERY_GOAL = ">= 20000", "<= 1000"


def measurements(count: int, now_us: int, seed: int) -> Iterator[measurement_pb2.Measurement]:
    """So many results of the last minutes: every round each node pings its share of the others, as the largest mesh of
    the registry has it; a ping has three results.
    """
    chance = random.Random(seed)  # noqa: S311 - reproducible
    pairs = [(n, (n + step) % NODES) for step in range(1, PAIRS // NODES + 1) for n in range(NODES)]
    each_round = len(pairs) * len(METRICS)
    rounds = -(-count // each_round)
    for number in range(count):
        turn, place = divmod(number, each_round)
        source, destination = pairs[place // len(METRICS)]
        metric, unit = METRICS[place % len(METRICS)]
        yield measurement_pb2.Measurement(
            id=f"{number:026d}",
            source_node=f"n{source}",
            destination_node=f"n{destination}",
            sensor="ping",
            metric=metric,
            value=chance.lognormvariate(10, 1),
            unit=unit,
            measured_at_us=now_us - (rounds - turn) * PERIOD_US + chance.randrange(PERIOD_US),
            probes_sent=5,
            configuration_ids=[f"mesh:all:n{source}:n{destination}:ping"],
        )


async def _publish(bootstrap: str, count: int, seed: int) -> None:
    made = measurements(count, time.time_ns() // 1000, seed)
    broker = KafkaBroker(bootstrap)
    try:
        while batch := list(itertools.islice(made, 2000)):
            await asyncio.gather(
                *(
                    broker.publish(
                        "chart.measurement.v1", f"{one.source_node},{one.destination_node},{one.metric}", one
                    )
                    for one in batch
                )
            )
    finally:
        await broker.close()


def _fill(bootstrap: str, count: int, seed: int) -> None:
    asyncio.run(_publish(bootstrap, count, seed))


@contextlib.contextmanager
def _platform(count: int, seed: int, report: Report) -> Iterator[tuple[PlatformSettings, float]]:
    """A platform whose archiver has written what waited, and how many rows that were a second."""
    directory = Path(tempfile.mkdtemp(prefix="chart-archive-"))
    # The nodes are played, without an authority.
    settings = settings_in(directory, record_authentication="off")
    supervisor = Supervisor(settings.platform_dir)
    infrastructure = [kafka.prepare(settings, with_nodes=False), postgres.prepare(settings)]
    service = [one for one in service_programs(settings) if one.name == "archiver"]
    try:
        supervisor.launch([*infrastructure, *service])
        supervisor.start_all(infrastructure, lambda _: None)
        apply(settings.kafka_bootstrap)
        upgrade(postgres.create_database(settings))
        report(f"{count} measurements of {NODES} nodes", 0.1)
        process = multiprocessing.get_context("spawn").Process(
            target=_fill, args=(settings.kafka_bootstrap, count, seed)
        )
        process.start()
        process.join()
        if process.exitcode != 0:
            raise LabError("the measurements could not be published")
        report("the archiver writes them", 0.4)
        supervisor.start_all(service, lambda _: None)
        yield settings, _rows_per_s(settings, count)
    finally:
        supervisor.stop([*infrastructure, *service])
        shutil.rmtree(directory, ignore_errors=True)


def _rows_per_s(settings: PlatformSettings, count: int) -> float:
    """From the first rows that are seen to the last.

    Raises:
        LabError: they are not all written within the limit.
    """
    seen: list[tuple[float, int]] = []
    deadline = time.monotonic() + WRITE_LIMIT_S
    with psycopg.connect(settings.database_url("archiver"), autocommit=True) as connection:
        while not seen or seen[-1][1] < count:
            if time.monotonic() > deadline:
                raise LabError(
                    f"the archiver wrote {seen[-1][1] if seen else 0} of {count} rows in {WRITE_LIMIT_S:g} s"
                )
            row = connection.execute("SELECT count(*) FROM measurement").fetchone()
            assert row is not None
            if row[0] > (seen[-1][1] if seen else 0):
                seen.append((time.monotonic(), int(row[0])))
            time.sleep(0.1)
    return rate(seen)


def rate(seen: Sequence[tuple[float, int]]) -> float:
    """Rows a second from (time in s, rows so far), first to last; the rows of the first look are not counted.

    Raises:
        LabError: all came at once.
    """
    (begun_s, before), (ended_s, after) = seen[0], seen[-1]
    if ended_s <= begun_s:
        raise LabError("all rows came at once: ask for more of them")
    return (after - before) / (ended_s - begun_s)


def month_pair(number: int) -> tuple[str, str]:
    """Names of a pair that has a month of hours."""
    return f"m{number}", f"m{(number + 1) % MONTH_PAIRS}"


def _fill_month(settings: PlatformSettings) -> datetime:
    """Hours of a month up to the hour before last; when they begin."""
    until = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=3)
    begin = until - timedelta(days=MONTH_DAYS)
    with psycopg.connect(settings.database_url("archiver"), autocommit=True) as connection:
        for number in range(MONTH_DAYS + 1):
            day = (begin + timedelta(days=number)).date()
            connection.execute(
                f"CREATE TABLE IF NOT EXISTS {partition_name('rollup_hour', day)} PARTITION OF rollup_hour"
                f" FOR VALUES FROM ('{day} 00:00:00+00') TO ('{day + timedelta(days=1)} 00:00:00+00')"
            )
        connection.execute(
            "INSERT INTO rollup_hour SELECT 'm' || p, 'm' || (p + 1) %% %s, %s, at, 'us', 360, 0, v, v, v * 1.2,"
            " v * 1.4, v * 0.9, v * 1.5, 1800, 0 FROM generate_series(0, %s - 1) AS p,"
            " generate_series(%s::timestamptz, %s::timestamptz - interval '1 hour', interval '1 hour') AS at,"
            " LATERAL (SELECT 20000 + 5000 * random() + 0 * p AS v) AS drawn",
            (MONTH_PAIRS, METRIC, MONTH_PAIRS, begin, until),
        )
        connection.execute("VACUUM ANALYZE rollup_hour")
    return begin


async def _ask(target: str, begin: datetime, seed: int) -> list[float]:
    """Seconds that each question for a month of 100 pairs took, every hour of every pair received."""
    chance = random.Random(seed)  # noqa: S311 - reproducible
    took: list[float] = []
    begin_us = int(begin.timestamp() * 1e6)
    hours = MONTH_DAYS * 24
    async with grpc.aio.insecure_channel(target) as channel:
        stub: archive_pb2_grpc.ArchiveAsyncStub = archive_pb2_grpc.ArchiveStub(channel)
        for _ in range(QUESTIONS):
            pairs = [month_pair(number) for number in chance.sample(range(MONTH_PAIRS), ASKED_PAIRS)]
            request = archive_pb2.QueryPairsRequest(
                pairs=[archive_pb2.NodePair(source_node=a, destination_node=b) for a, b in pairs],
                metric=METRIC,
                from_us=begin_us,
                until_us=begin_us + hours * 3_600_000_000,
                step_ms=3_600_000,
                by_pair=True,
            )
            begun = time.perf_counter()
            points = 0
            async for one in stub.QueryPairs(request, timeout=60):
                points += len(one.at_us)
            took.append(time.perf_counter() - begun)
            if points != ASKED_PAIRS * hours:
                raise LabError(f"{points} points instead of {ASKED_PAIRS * hours}")
    return took


def run(settings: Settings, report: Report) -> Outcome:
    """Writing, then asking."""
    with _platform(MEASUREMENTS, settings.seed, report) as (platform, rows_per_s):
        report("a month of hours", 0.7)
        begin = _fill_month(platform)
        report("questions", 0.9)
        took = asyncio.run(_ask(f"127.0.0.1:{grpc_port(platform, 'archiver')}", begin, settings.seed))
    p50_ms, p95_ms = (quantile(took, share) * 1000 for share in (0.5, 0.95))
    figures = [
        Figure("rows_per_s", round(rows_per_s, 1), "1/s", ROWS_GOAL),
        Figure("month_query_p95_ms", round(p95_ms, 1), "ms", QUERY_GOAL),
        Figure("month_query_p50_ms", round(p50_ms, 1), "ms"),
    ]
    table = (
        "| rows/s | p50 | p95 | pairs | points |\n|---|---|---|---|---|\n"
        f"| {rows_per_s:.0f} | {p50_ms:.0f} ms | {p95_ms:.0f} ms | {ASKED_PAIRS} | {ASKED_PAIRS * MONTH_DAYS * 24} |\n"
    )
    return Outcome(figures, table, {"measurements": MEASUREMENTS, "nodes": NODES, "took_s": took})


EXPERIMENT = Experiment(
    "archive-load",
    "Measurements that one archiver writes each second; a month of 100 pairs by the hour (section 6).",
    run,
)
