"""How many requests one replica admits each second, and how long one waits: gRPC, durable commits, 100,000 live
reservations, a thousand links.

Callers in a process of their own ask one after the other, half for a rate from now on, half for one in the year to
come, each with an idempotency key. An admission counts when its answer came. What the replica owes to the streams
when the load ends is told beside it: a replica that only puts off its work would not be quick.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from typing import Any

import grpc
import psycopg

from chart.v1 import rate_request_pb2, reservations_pb2, reservations_pb2_grpc, tenant_pb2
from chart_lab.errors import LabError
from chart_lab.experiments.admission_platform import GUARANTEED, LINES, NODES_OF_LINE, node, replica
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, quantile
from chart_lab.platform.programs import grpc_port

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


async def _load(target: str, seed: int, duration_s: float) -> tuple[list[float], list[str]]:
    """Callers that ask on; the seconds that each answer took, and what was refused."""
    took: list[float] = []
    refused: list[str] = []
    began = time.monotonic()
    end = began + WARM_UP_S + duration_s

    async def ask_on(number: int) -> None:
        chance = random.Random(seed * 1000 + number)  # noqa: S311 - reproducible
        async with grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub: Any = reservations_pb2_grpc.ReservationsStub(channel)
            turn = 0
            while (started := time.monotonic()) < end:
                turn += 1
                call = request(chance, time.time_ns() // 1000, f"{seed}-{number}-{turn}")
                try:
                    await stub.CreateRateRequest(call, timeout=10)
                except grpc.aio.AioRpcError as error:
                    refused.append(f"{error.code().name}: {error.details()}")
                    continue
                now = time.monotonic()
                if started >= began + WARM_UP_S and now <= end:
                    took.append(now - started)

    await asyncio.gather(*(ask_on(number) for number in range(CALLERS)))
    return took, refused


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


def _callers(target: str, seed: int, duration_s: float, answers: Any) -> None:
    answers.put(asyncio.run(_load(target, seed, duration_s)))


def run(settings: Settings, report: Report) -> Outcome:
    """Measure admissions per second and their latency with 100,000 live reservations."""
    duration_s = settings.duration_s or DURATION_S
    report(f"a database with {LIVE} reservations", 0.0)
    with replica(LIVE, settings.seed) as platform:
        target = f"127.0.0.1:{grpc_port(platform, 'reservations')}"
        report("every link has its profile", 0.2)
        asyncio.run(_touch(target))
        context = multiprocessing.get_context("spawn")
        answers: Any = context.Queue()
        process = context.Process(target=_callers, args=(target, settings.seed, duration_s, answers))
        process.start()
        report("callers ask", 0.4)
        took, refused = answers.get(timeout=WARM_UP_S + duration_s + 60)
        process.join(30)
        with psycopg.connect(platform.database_url("reservations")) as connection:
            row = connection.execute(
                "SELECT current_setting('synchronous_commit'), current_setting('fsync'),"
                " (SELECT count(*) FROM outbox WHERE published_at IS NULL),"
                " (SELECT count(*) FROM rate_request WHERE lifecycle IN (1, 2, 3))"
            ).fetchone()
    assert row is not None
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
        ],
        table,
        {"admitted": len(took), "refused": refused[:20], "live": row[3], "callers": CALLERS},
    )


EXPERIMENT = Experiment(
    "admission-load", "Admissions per second of one replica, with 100,000 live reservations on 1,000 links.", run
)
