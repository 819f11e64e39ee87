"""How many requests one replica admits each second, and how long one waits: gRPC, durable commits, 100,000 live
reservations, a thousand links.

Callers in a process of their own ask one after the other, half for a rate from now on, half for one in the year to
come, each with an idempotency key. An admission counts when its answer came. What the replica owes to the streams
when the load ends is told beside it: a replica that only puts off its work would not be quick.

With churn each caller releases what it was given last before it asks again, and the nodes report each removed grant: so
what is released drains, and links are asked for while it does.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from dataclasses import dataclass, field
from typing import Any

import grpc
import psycopg

from chart.common.streams import Broker, KafkaBroker
from chart.v1 import grant_status_pb2, rate_request_pb2, reservations_pb2, reservations_pb2_grpc, tenant_pb2
from chart_lab.errors import LabError
from chart_lab.experiments.admission_platform import GUARANTEED, LINES, NODES_OF_LINE, node, replica
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, quantile
from chart_lab.platform.programs import grpc_port

GRANT_STATUS = "chart.grant-status.v1"
LIVE = 100_000
CALLERS = 24
WARM_UP_S = 8.0
DURATION_S = 20.0
# Operators' requests: many more than the default quota allows an application.
UNBOUNDED = tenant_pb2.Caller(operator=True)
GOAL_PER_S = ">= 2000"
GOAL_P99_MS = "<= 20"


def request(chance: random.Random, now_us: int, key: str) -> reservations_pb2.CreateRateRequestRequest:
    """One ask."""
    line = chance.randrange(LINES)
    first, last = sorted(chance.sample(range(NODES_OF_LINE), 2))
    later = chance.random() < 0.5
    specification = rate_request_pb2.RateRequestSpecification(
        source=node(line, first),
        destination=node(line, last),
        service=GUARANTEED,
        guaranteed_bps=chance.randrange(1, 100) * 10_000,
        start_us=now_us + chance.randrange(3600, 365 * 86_400) * 1_000_000 if later else 0,
        duration_us=chance.randrange(60, 86_400) * 1_000_000,
    )
    return reservations_pb2.CreateRateRequestRequest(
        specification=specification, owner=f"owner-{line}", idempotency_key=key, caller=UNBOUNDED
    )


@dataclass
class Load:
    """What callers saw: the seconds that each admission and each release took, what was refused, how many waited for
    what drained.
    """

    took: list[float] = field(default_factory=list)
    released: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    waited: int = 0


async def _release(stub: Any, nodes: Broker, identity: str) -> None:
    """Release a request; its nodes report at once that they removed the grant."""
    answer = await stub.ReleaseRateRequest(reservations_pb2.ReleaseRateRequestRequest(id=identity), timeout=10)
    for name in answer.rate_request.draining_nodes:
        status = grant_status_pb2.GrantStatus(
            request_id=identity, node=name, generation=1, state=grant_status_pb2.GRANT_STATE_REMOVED
        )
        await nodes.publish(GRANT_STATUS, f"{identity},{name}", status)


async def _load(target: str, seed: int, duration_s: float, churn_at: str) -> Load:
    """Callers that ask on. `churn_at`: the broker that nodes report to; empty: nothing is released."""
    load = Load()
    began = time.monotonic()
    end = began + WARM_UP_S + duration_s

    nodes = KafkaBroker(churn_at) if churn_at else None

    async def ask_on(number: int) -> None:
        chance = random.Random(seed * 1000 + number)  # noqa: S311 - reproducible
        async with grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub: Any = reservations_pb2_grpc.ReservationsStub(channel)
            turn, last = 0, ""
            while (started := time.monotonic()) < end:
                turn += 1
                call = request(chance, time.time_ns() // 1000, f"{seed}-{number}-{turn}")
                try:
                    if nodes is not None and last:
                        released, last = last, ""
                        await _release(stub, nodes, released)
                        if started >= began + WARM_UP_S:
                            load.released.append(time.monotonic() - started)
                        started = time.monotonic()
                    answer = await stub.CreateRateRequest(call, timeout=10)
                except grpc.aio.AioRpcError as error:
                    load.refused.append(f"{error.code().name}: {error.details()}")
                    continue
                now, last = time.monotonic(), answer.rate_request.id
                if started >= began + WARM_UP_S and now <= end:
                    load.took.append(now - started)
                    load.waited += answer.rate_request.waits_until_us > 0

    try:
        await asyncio.gather(*(ask_on(number) for number in range(CALLERS)))
    finally:
        if nodes is not None:
            await nodes.close()
    return load


async def _touch(target: str) -> None:
    """Ask once on every line: profiles are made of the reservations that are there when a link is first needed."""
    async with grpc.aio.insecure_channel(target) as channel:
        stub: Any = reservations_pb2_grpc.ReservationsStub(channel)
        for line in range(LINES):
            specification = rate_request_pb2.RateRequestSpecification(
                source=node(line, 0),
                destination=node(line, NODES_OF_LINE - 1),
                service=GUARANTEED,
                guaranteed_bps=10_000,
                duration_us=3600 * 1_000_000,
            )
            call = reservations_pb2.CreateRateRequestRequest(
                specification=specification, owner=f"owner-{line}", caller=UNBOUNDED
            )
            await stub.CreateRateRequest(call, timeout=30)


def _callers(target: str, seed: int, duration_s: float, churn_at: str, answers: Any) -> None:
    answers.put(asyncio.run(_load(target, seed, duration_s, churn_at)))


def run(settings: Settings, report: Report) -> Outcome:
    """Measure admissions per second and their latency with 100,000 live reservations."""
    return _measure(settings, report, churn=False)


def run_churn(settings: Settings, report: Report) -> Outcome:
    """The same while each caller releases what it has and asks again."""
    return _measure(settings, report, churn=True)


def _measure(settings: Settings, report: Report, *, churn: bool) -> Outcome:
    duration_s = settings.duration_s or DURATION_S
    report(f"a database with {LIVE} reservations", 0.0)
    with replica(LIVE, settings.seed) as platform:
        target = f"127.0.0.1:{grpc_port(platform, 'reservations')}"
        report("every link has its profile", 0.2)
        asyncio.run(_touch(target))
        churn_at = platform.kafka_bootstrap if churn else ""
        context = multiprocessing.get_context("spawn")
        answers: Any = context.Queue()
        process = context.Process(target=_callers, args=(target, settings.seed, duration_s, churn_at, answers))
        process.start()
        report("callers ask", 0.4)
        load: Load = answers.get(timeout=WARM_UP_S + duration_s + 60)
        process.join(30)
        with psycopg.connect(platform.database_url("reservations")) as connection:
            row = connection.execute(
                "SELECT current_setting('synchronous_commit'), current_setting('fsync'),"
                " (SELECT count(*) FROM outbox WHERE published_at IS NULL),"
                " (SELECT count(*) FROM rate_request WHERE lifecycle IN (1, 2, 3))"
            ).fetchone()
    assert row is not None
    took, refused = load.took, load.refused
    if not took:
        msg = f"nothing was admitted: {refused[:1]}"
        raise LabError(msg)
    if (row[0], row[1]) != ("on", "on"):
        msg = f"commits are not durable: synchronous_commit {row[0]}, fsync {row[1]}"
        raise LabError(msg)
    per_s = len(took) / duration_s
    p50_ms, p99_ms = (quantile(took, share) * 1000 for share in (0.5, 0.99))
    table = (
        "| admissions/s | p50 | p99 | refused | live reservations | records that wait for the relay |\n"
        "|---|---|---|---|---|---|\n"
        f"| {per_s:.0f} | {p50_ms:.1f} ms | {p99_ms:.1f} ms | {len(refused)} | {row[3]} | {row[2]} |\n"
    )
    return Outcome(
        [
            Figure("admissions_per_s", round(per_s, 1), "1/s", GOAL_PER_S),
            Figure("p99_ms", round(p99_ms, 2), "ms", GOAL_P99_MS),
            Figure("p50_ms", round(p50_ms, 2), "ms"),
            Figure("records_waiting", float(row[2]), "1"),
            *_of_releases(load, duration_s),
        ],
        table,
        {"admitted": len(took), "refused": refused[:20], "live": row[3], "callers": CALLERS},
    )


def _of_releases(load: Load, duration_s: float) -> list[Figure]:
    """Figures of churn; none when nothing was released."""
    if not load.released:
        return []
    return [
        Figure("releases_per_s", round(len(load.released) / duration_s, 1), "1/s"),
        Figure("release_p99_ms", round(quantile(load.released, 0.99) * 1000, 2), "ms"),
        Figure("waited_share", round(load.waited / len(load.took), 4), "1"),
    ]


EXPERIMENT = Experiment(
    "admission-load", "Admissions per second of one replica, with 100,000 live reservations on 1,000 links.", run
)
CHURN = Experiment(
    "admission-churn",
    "The same while what was admitted is released, drains on its nodes and is asked for again.",
    run_churn,
)
