"""`sensing-overhead`: what measuring costs a link, what sharing saves, and how punctual runs are.

Brassil et al., The CHART System, section 6: limits on the overhead of measurements and merging of requests. A pod with
10,000 configurations of real pings runs over an emulated link whose counters tell what the probes took in every minute;
beside it a simulated day of the same number of configurations and all kinds of sensors, and six simulated pods that
share one link.
"""

from __future__ import annotations

import asyncio
import functools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chart.sensor_pod.group import first_spread_us
from chart.sensor_pod.model import GroupKey, from_proto
from chart.sensor_pod.repository import Repository
from chart.v1.sensing_configuration_pb2 import SensingConfiguration
from chart_lab import topology
from chart_lab.errors import LabError, NoisyMachineError
from chart_lab.experiments import noise
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, temporary_lab
from chart_lab.models.sensing_day import Day, a_day, runs_alone
from chart_lab.models.shared_link import Shared, six_pods
from chart_lab.network import Lab
from chart_lab.programs import program

RATE_MBIT = 100.0
DURATION_S = 120.0
CONFIGURATIONS = 10_000
BUDGET_SHARE = 0.01
LINK = "alpha-bravo"
# Addresses of the far node, so that there is something to tell apart; applications ask at these periods.
ADDRESSES = 250
PERIODS_S = (60, 90, 120, 180)
PACKET_BYTES = (64, 80, 100, 120, 150, 200, 250, 300, 400, 500)
PROBES = 1
WINDOW_S = 60.0
START_LIMIT_S = 60.0
LATENESS_GOAL_MS = 20.0


@dataclass(frozen=True)
class Real:
    """What the real run came to."""

    started: int
    asked: int
    overlap: float
    worst_share: float
    lateness_p50_ms: float
    lateness_p99_ms: float
    lateness_max_ms: float
    measured_runs: int
    skipped: dict[str, int]
    duration_s: float

    @property
    def merged_share(self) -> float:
        """Runs saved of those asked for."""
        return 1 - self.started / self.asked


def address(number: int) -> str:
    """One of the far node's addresses."""
    return f"10.99.{number // 250}.{number % 250 + 1}"


def configurations(count: int = CONFIGURATIONS) -> list[SensingConfiguration]:
    """Pings of every size to every address, each asked for by four applications."""
    made = []
    for number in range(count):
        group, application = divmod(number, len(PERIODS_S))
        variant, target = divmod(group, ADDRESSES)
        made.append(
            SensingConfiguration(
                id=f"c{number}",
                source_node="alpha",
                destination_node="bravo",
                destination_address=address(target),
                sensor="ping",
                parameters={
                    "count": str(PROBES),
                    "packet_bytes": str(PACKET_BYTES[variant % len(PACKET_BYTES)]),
                    "interval_ms": "10",
                    "timeout_ms": str(1000 + variant // len(PACKET_BYTES)),
                },
                period_ms=PERIODS_S[application] * 1000,
                owner=f"application-{application}",
            )
        )
    return made


def asked_runs(made: Sequence[SensingConfiguration], duration_s: float, start_us: int = 0) -> tuple[int, float]:
    """Runs that these would make in the time if none were shared, and the share in which they overlap.

    ``start_us`` is the pod's clock when it began: runs keep to a grid of that clock.
    """
    periods: dict[GroupKey, list[int]] = {}
    for message in made:
        periods.setdefault(from_proto(message).key, []).append(message.period_ms // 1000)
    spread_us = first_spread_us(len(periods))
    alone = functools.partial(runs_alone, duration_s=duration_s, start_us=start_us, spread_us=spread_us)
    asked = sum(alone(key, period) for key, all_periods in periods.items() for period in all_periods)
    needed = sum(alone(key, min(all_periods)) for key, all_periods in periods.items())
    return asked, 1 - needed / asked


def worst_minute(samples: Sequence[tuple[float, int]]) -> int:
    """The most bytes within any minute, from (time in s, bytes since the start) in order of time."""
    worst = 0
    window: deque[tuple[float, int]] = deque()
    for at_s, total in samples:
        window.append((at_s, total))
        while window[0][0] < at_s - WINDOW_S:
            window.popleft()
        worst = max(worst, total - window[0][1])
    return worst


async def _fill(path: Path, made: Sequence[SensingConfiguration]) -> None:
    repository = Repository(path)
    await repository.open()
    try:
        await repository.put_configurations(made, "local")
    finally:
        await repository.close()


def _environment(lab: Lab, directory: Path, rate_bps: int) -> dict[str, str]:
    return {
        **os.environ,
        "CHART_NODE": "alpha",
        # Streams within the process: what the pod does without a control plane.
        "CHART_KAFKA_BOOTSTRAP": "local:",
        "CHART_STATE_DIR": str(directory),
        "CHART_GRPC_LISTEN": "127.0.0.1:18110",
        "CHART_HTTP_LISTEN": "127.0.0.1:18210",
        "CHART_RESPONDER": "false",
        "CHART_SENSORS_DIR": str(program("sensors/ping").parent),
        "CHART_DEFAULT_CAPACITY_BPS": str(rate_bps),
        "CHART_PROBE_SHARE": str(BUDGET_SHARE),
        "CHART_LOG_LEVEL": "warning",
    }


# Asks the pod from inside its namespace: nothing of the lab can be reached from outside. Runs are counted from when the
# pod began to plan to when it tells them.
_ASK = """
import asyncio, json, time, urllib.request
from google.protobuf.json_format import MessageToJson
from chart.common import rpc
from chart.v1 import sensor_pod_pb2 as pb, sensor_pod_pb2_grpc
async def ask():
    channel = rpc.channel("127.0.0.1:18110", deadline_s=20)
    answer = await sensor_pod_pb2_grpc.SensorPodStub(channel).Report(pb.ReportRequest(skips=5))
    told_at_s = time.time()
    text = MessageToJson(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    await channel.close()
    metrics = urllib.request.urlopen("http://127.0.0.1:18210/metrics", timeout=20).read().decode()
    planned = [line for line in metrics.splitlines() if line.startswith("chart_sensor_pod_planned_timestamp_seconds ")]
    print(json.dumps({**json.loads(text), "told_at_s": told_at_s, "planned_at_s": float(planned[0].split()[1])}))
asyncio.run(ask())
"""


def _report(lab: Lab) -> dict[str, Any]:
    answer = lab.exec("alpha", [sys.executable, "-c", _ASK], timeout_s=60)
    return dict(json.loads(answer.stdout))


def _await_pod(lab: Lab, process: subprocess.Popen[str], log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    probe = "import urllib.request as u; u.urlopen('http://127.0.0.1:18210/readyz', timeout=1)"
    while lab.exec("alpha", [sys.executable, "-c", probe], check=False).returncode != 0:
        if process.poll() is not None or time.monotonic() > deadline:
            raise LabError(f"the pod does not serve: {log.read_text()[-800:]}")
        time.sleep(0.2)


def real_run(rate_mbit: float, count: int, duration_s: float, seed: int, *, judge_noise: bool, report: Report) -> Real:
    """A pod with so many configurations over an emulated link.

    Raises:
        NoisyMachineError: others used the machine meanwhile.
        LabError: the pod does not work.
    """
    base = topology.load("two-node")
    links = [link.model_copy(update={"rate_mbit": rate_mbit}) for link in base.links]
    made = configurations(count)
    with temporary_lab(base.model_copy(update={"links": links}), seed) as lab:
        for number in range(ADDRESSES):
            lab.exec("bravo", ["ip", "address", "add", f"{address(number)}/32", "dev", "lo"])
        gateway = "10.1.1.2"
        lab.exec("alpha", ["ip", "route", "add", "10.99.0.0/16", "via", gateway])
        directory = lab.node_directory("alpha") / "pod"
        asyncio.run(_fill(directory / "sensor-pod.sqlite", made))
        log = directory / "pod.log"
        with log.open("w") as output:
            before = noise.cpu_times(lab)
            process = lab.popen(
                "alpha",
                [sys.executable, "-m", "chart.sensor_pod.main"],
                stdout=output,
                stderr=output,
                env=_environment(lab, directory, round(rate_mbit * 1e6)),
            )
            try:
                _await_pod(lab, process, log)
                return _watch(lab, made, rate_mbit, duration_s, before if judge_noise else None, report)
            finally:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _watch(
    lab: Lab,
    made: Sequence[SensingConfiguration],
    rate_mbit: float,
    duration_s: float,
    before: noise.CpuTimes | None,
    report: Report,
) -> Real:
    begun = time.monotonic()
    samples: list[tuple[float, int]] = []
    while (elapsed_s := time.monotonic() - begun) < duration_s:
        truth = lab.ground_truth(LINK)
        samples.append((elapsed_s, int(truth["forward"]["offered"]["bytes"])))
        report(f"{len(made)} configurations on one pod", 0.1 + 0.7 * elapsed_s / duration_s)
        time.sleep(max(0.0, min(1.0, duration_s - elapsed_s)))
    told = _report(lab)
    truth = lab.ground_truth(LINK)
    samples.append((time.monotonic() - begun, int(truth["forward"]["offered"]["bytes"])))
    if before is not None and (complaint := noise.judge(before, noise.cpu_times(lab), truth).complaint()):
        raise NoisyMachineError(complaint)
    if int(told["configurations"]) != len(made):
        raise LabError(f"the pod follows {told['configurations']} configurations instead of {len(made)}")
    # The pod's grid is that of the machine's monotonic clock.
    planned_s = float(told["planned_at_s"]) - (time.time() - time.monotonic())
    asked, overlap = asked_runs(made, float(told["told_at_s"]) - float(told["planned_at_s"]), int(planned_s * 1e6))
    return Real(
        started=int(told["started_runs"]),
        asked=asked,
        overlap=overlap,
        worst_share=worst_minute(samples) / (rate_mbit * 1e6 / 8 * WINDOW_S),
        lateness_p50_ms=int(told["start_lateness_p50_us"]) / 1e3,
        lateness_p99_ms=int(told["start_lateness_p99_us"]) / 1e3,
        lateness_max_ms=int(told["start_lateness_max_us"]) / 1e3,
        measured_runs=int(told["start_lateness_runs"]),
        skipped={name: int(number) for name, number in told["skipped_runs"].items()},
        duration_s=duration_s,
    )


def at_least(share: float) -> str:
    """A goal of this share; written with four digits, and never as more than it is."""
    return f">= {math.floor(share * 1e4) / 1e4:.4f}"


def figures(real: Real, day: Day, shared: Shared) -> list[Figure]:
    """The figures of result.json: the worse of the real run and the simulated day, both by name, and what six simulated
    pods take of the link that they share."""
    worst = max(real.worst_share, day.worst_share)
    return [
        Figure("max_share_of_capacity", worst, "ratio", f"<= {BUDGET_SHARE:g}"),
        Figure("merged_share", real.merged_share, "ratio", at_least(real.overlap)),
        Figure("lateness_p99_ms", real.lateness_p99_ms, "ms", f"<= {LATENESS_GOAL_MS:g}"),
        Figure("lateness_p50_ms", real.lateness_p50_ms, "ms"),
        Figure("lateness_max_ms", real.lateness_max_ms, "ms"),
        Figure("max_share_of_capacity/run=real", real.worst_share, "ratio", f"<= {BUDGET_SHARE:g}"),
        Figure("max_share_of_capacity/run=day", day.worst_share, "ratio", f"<= {BUDGET_SHARE:g}"),
        Figure("merged_share/run=day", day.merged_share, "ratio", at_least(day.overlap)),
        Figure("worst_share_of_link", shared.worst_share, "ratio", f"<= {BUDGET_SHARE:g}"),
        Figure("used_share_of_budget/pods=6", shared.used_share, "ratio"),
        Figure("simulated_day_s", day.took_s, "s"),
    ]


def table(real: Real, day: Day, result: Sequence[Figure]) -> str:
    """Markdown."""
    lines = ["# What sensing costs", "", "| figure | value | goal |", "| --- | --- | --- |"]
    lines += [
        f"| {figure.name} | {'' if figure.value is None else format(figure.value, '.4g')} | {figure.goal or ''} |"
        for figure in result
    ]
    lines += [
        "",
        f"Real run: {real.duration_s:g} s, {real.asked} runs asked for, {real.started} made, {real.measured_runs}"
        f" of them judged for lateness; skipped: {real.skipped or 'none'}.",
        f"Simulated day: {day.configurations} configurations in {day.groups} groups and {day.one_shots} single runs,"
        f" {day.started} runs; skipped: {day.skipped}; each with a reason; worst link {day.worst_link}.",
    ]
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """The simulated day, then the real run."""
    rate_mbit = (settings.rate_mbit or (RATE_MBIT,))[0]
    duration_s = settings.duration_s or DURATION_S
    report("a simulated day", 0.0)
    day = a_day(CONFIGURATIONS, seed=settings.seed)
    shared = six_pods()
    report("starting the pod", 0.1)
    real = real_run(
        rate_mbit, CONFIGURATIONS, duration_s, settings.seed, judge_noise=settings.judge_noise, report=report
    )
    result = figures(real, day, shared)
    details = {"real": vars(real), "day": vars(day), "shared": vars(shared)}
    return Outcome(result, table(real, day, result), details)


EXPERIMENT = Experiment(
    "sensing-overhead",
    "What probing takes of a link in every minute, what merging saves, how late runs start (section 6).",
    run,
)
