"""From the POST of a rate request to the confirmation by every agent on its path: REST, reservations, streams, agents
and their kernels, and back, on the topology `demo` with a platform of the experiment's own.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from chart.lab.errors import LabError
from chart.lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, quantile

REPEAT = 200
WARM_UP = 5
LIMIT_S = 15.0
# SENSE states 183 s for a simple path (mean); OSCARS minutes.
PEER_MS = 183_000.0


def _one(rest: httpx.Client, number: int) -> tuple[float, float]:
    """One request: milliseconds to its answer, and to its confirmation."""
    body = {
        "source": "alpha",
        "destination": "delta",
        "protocol": "tcp",
        "destination_port": 20_000 + number,
        "service": "guaranteed",
        "guaranteed_bps": 1_000_000,
    }
    began = time.monotonic()
    answer = rest.post("/v1/rate-requests", json=body)
    answer.raise_for_status()
    answered = time.monotonic()
    found: dict[str, Any] = answer.json()
    while found["enforcement"] != "ENFORCED":
        if time.monotonic() - began > LIMIT_S:
            msg = f"{found['id']} is not enforced after {LIMIT_S:g} s: {found['reason']}"
            raise LabError(msg)
        time.sleep(0.001)
        found = rest.get(f"/v1/rate-requests/{found['id']}").json()
    confirmed = time.monotonic()
    rest.post(f"/v1/rate-requests/{found['id']}/release").raise_for_status()
    return (answered - began) * 1000, (confirmed - began) * 1000


def run(settings: Settings, report: Report) -> Outcome:
    """See the module's head."""
    from chart.lab.experiments.admission_platform import settings_in
    from chart.platform.laboratory import chart, client, wait_ready
    from chart.platform.stack import Platform

    repeat = settings.repeat or REPEAT
    directory = Path(tempfile.mkdtemp(prefix="chart-latency-"))
    platform = Platform(settings_in(directory))
    answers, confirmed = [], []
    try:
        report("the platform comes up", 0.0)
        platform.up(lambda words: report(words, 0.1))
        chart(platform.settings, "lab", "up", "demo", "--platform")
        try:
            with client(platform.settings) as rest:
                wait_ready(rest)
                for number in range(WARM_UP + repeat):
                    answer_ms, confirmed_ms = _one(rest, number)
                    if number >= WARM_UP:
                        answers.append(answer_ms)
                        confirmed.append(confirmed_ms)
                        report(f"request {number - WARM_UP + 1} of {repeat}", 0.2 + 0.8 * len(answers) / repeat)
        finally:
            chart(platform.settings, "lab", "down", "--lab", "demo")
    finally:
        platform.down(purge=True)
        shutil.rmtree(directory, ignore_errors=True)
    p50_ms, p99_ms = quantile(confirmed, 0.5), quantile(confirmed, 0.99)
    table = (
        "| | p50 | p99 | greatest |\n|---|---|---|---|\n"
        f"| answer to the POST | {quantile(answers, 0.5):.1f} ms | {quantile(answers, 0.99):.1f} ms"
        f" | {max(answers):.1f} ms |\n"
        f"| confirmed by every agent | {p50_ms:.1f} ms | {p99_ms:.1f} ms | {max(confirmed):.1f} ms |\n"
    )
    return Outcome(
        [
            Figure("p50_ms", round(p50_ms, 2), "ms", "<= 100", PEER_MS),
            Figure("p99_ms", round(p99_ms, 2), "ms", "<= 1000"),
            Figure("answer_p50_ms", round(quantile(answers, 0.5), 2), "ms"),
        ],
        table,
        {"answers_ms": answers, "confirmed_ms": confirmed},
    )


EXPERIMENT = Experiment(
    "grant-latency", "From the POST of a rate request to the confirmation by every agent on its path.", run
)
