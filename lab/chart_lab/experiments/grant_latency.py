"""From the POST of a rate request to the confirmation by every agent on its path: REST, reservations, streams, agents
and their kernels, and back, on the topology `demo` with a platform of the experiment's own. One request at a time,
0.3 s apart; the application waits at the gateway for the request to change, as the client does.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from chart.common import streams
from chart.common.settings import BaseServiceSettings
from chart.v1 import flow_grant_pb2, grant_status_pb2
from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, quantile

REPEAT = 200
WARM_UP = 5
LIMIT_S = 15.0
# How long the platform rests between two requests.
PAUSE_S = 0.3
# SENSE states 183 s for a simple path (mean); OSCARS minutes.
PEER_MS = 183_000.0


@dataclass(frozen=True)
class Timed:
    """One request: when it was asked for, milliseconds to its answer and to its confirmation, when that was stored."""

    request_id: str
    asked_us: int
    answer_ms: float
    confirmed_ms: float
    stored_us: int


# What lies between two of the moments that are known of a request.
STAGES = ("to the answer", "to the grant on the stream", "to the last kernel", "to the last status", "to the database")


def _one(rest: httpx.Client, number: int) -> Timed:
    """Request a rate, wait for the confirmation, release it."""
    body = {
        "source": "alpha",
        "destination": "delta",
        "protocol": "tcp",
        "destination_port": 20_000 + number,
        "service": "guaranteed",
        "guaranteed_bps": 1_000_000,
    }
    asked_us, began = time.time_ns() // 1000, time.monotonic()
    answer = rest.post("/v1/rate-requests", json=body)
    answer.raise_for_status()
    answered = time.monotonic()
    found: dict[str, Any] = answer.json()
    while found["enforcement"] != "ENFORCED":
        if time.monotonic() - began > LIMIT_S:
            msg = f"{found['id']} is not enforced after {LIMIT_S:g} s: {found['reason']}"
            raise LabError(msg)
        newer = rest.get(
            f"/v1/rate-requests/{found['id']}",
            params={"wait_s": 5},
            headers={"If-None-Match": f'"{found["revision"]}"'},
        )
        found = found if newer.status_code == httpx.codes.NOT_MODIFIED else newer.raise_for_status().json()
    confirmed = time.monotonic()
    rest.post(f"/v1/rate-requests/{found['id']}/release").raise_for_status()
    stored_us = round(datetime.fromisoformat(found["enforced_at"]).timestamp() * 1e6)
    return Timed(found["id"], asked_us, (answered - began) * 1000, (confirmed - began) * 1000, stored_us)


async def _moments(bootstrap: str) -> dict[str, tuple[int, int, int]]:
    """Of each request: when its grant was written, when the last kernel had it, when the last status was written."""
    broker = streams.connect(BaseServiceSettings(kafka_bootstrap=bootstrap))
    granted: dict[str, int] = {}
    applied: dict[str, dict[str, tuple[int, int]]] = {}
    try:
        names = ["chart.flow-grant.v1", "chart.grant-status.v1"]
        async with broker.subscribe(names, start="earliest") as records:
            while not records.caught_up.is_set():
                try:
                    record = await asyncio.wait_for(anext(records), 1.0)
                except TimeoutError:
                    continue
                if isinstance(record.value, flow_grant_pb2.FlowGrant):
                    granted.setdefault(record.key, record.timestamp_us)
                elif isinstance(record.value, grant_status_pb2.GrantStatus) and record.value.applied_at_us:
                    moments = (record.value.applied_at_us, record.timestamp_us)
                    applied.setdefault(record.value.request_id, {}).setdefault(record.value.node, moments)
    finally:
        await broker.close()
    return {
        name: (at_us, max(one[0] for one in applied[name].values()), max(one[1] for one in applied[name].values()))
        for name, at_us in granted.items()
        if name in applied
    }


def _stages(timed: Iterable[Timed], moments: dict[str, tuple[int, int, int]]) -> list[tuple[float, ...]]:
    """Milliseconds from asking to each of the moments; records are stamped to a millisecond."""
    return [
        (one.answer_ms, *((at_us - one.asked_us) / 1000 for at_us in (*moments[one.request_id], one.stored_us)))
        for one in timed
        if one.request_id in moments
    ]


def run(settings: Settings, report: Report) -> Outcome:
    """Measure the time from a POST to the confirmation by every agent, request by request, ms."""
    from chart_lab.experiments.admission_platform import settings_in
    from chart_lab.platform.laboratory import chart, client, wait_ready
    from chart_lab.platform.stack import Platform

    repeat = settings.repeat or REPEAT
    directory = Path(tempfile.mkdtemp(prefix="chart-latency-"))
    platform = Platform(settings_in(directory))
    timed: list[Timed] = []
    try:
        report("the platform comes up", 0.0)
        platform.up(lambda words: report(words, 0.1))
        chart(platform.settings, "lab", "up", "demo", "--platform")
        try:
            with client(platform.settings) as rest:
                wait_ready(rest)
                for number in range(WARM_UP + repeat):
                    one = _one(rest, number)
                    time.sleep(PAUSE_S)
                    if number >= WARM_UP:
                        timed.append(one)
                        report(f"request {len(timed)} of {repeat}", 0.2 + 0.8 * len(timed) / repeat)
            stages = _stages(timed, asyncio.run(_moments(platform.settings.kafka_bootstrap)))
        finally:
            chart(platform.settings, "lab", "down", "--lab", "demo")
    finally:
        platform.down(purge=True)
        shutil.rmtree(directory, ignore_errors=True)
    answers, confirmed = [one.answer_ms for one in timed], [one.confirmed_ms for one in timed]
    p50_ms, p99_ms = quantile(confirmed, 0.5), quantile(confirmed, 0.99)
    table = (
        "| | p50 | p99 | greatest |\n|---|---|---|---|\n"
        f"| answer to the POST | {quantile(answers, 0.5):.1f} ms | {quantile(answers, 0.99):.1f} ms"
        f" | {max(answers):.1f} ms |\n"
        f"| confirmed by every agent | {p50_ms:.1f} ms | {p99_ms:.1f} ms | {max(confirmed):.1f} ms |\n"
    )
    table += "\nFrom asking, median:\n\n| | |\n|---|---|\n"
    for name, column in zip(STAGES, zip(*stages, strict=True), strict=True):
        table += f"| {name} | {statistics.median(column):.1f} ms |\n"
    return Outcome(
        [
            Figure("p50_ms", round(p50_ms, 2), "ms", "<= 100", PEER_MS),
            Figure("p99_ms", round(p99_ms, 2), "ms", "<= 1000"),
            Figure("answer_p50_ms", round(quantile(answers, 0.5), 2), "ms"),
        ],
        table,
        {"answers_ms": answers, "confirmed_ms": confirmed, "stages_ms": stages},
    )


EXPERIMENT = Experiment(
    "grant-latency", "From the POST of a rate request to the confirmation by every agent on its path.", run
)
