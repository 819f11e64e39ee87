"""sensing-accuracy: what sensors measure against what the emulated link is and carries.

Brassil et al., The CHART System, section 6. One link; other traffic of a stated load crosses it; pathrate, spruce and
pathchirp measure one after the other. The truth is the link's rate, and that rate less what the link carried for others
while the sensor ran, by the emulator's own count.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from chart.common.processes import end_process
from chart_lab import topology
from chart_lab.errors import LabError, NoisyMachineError
from chart_lab.experiments import noise, probing
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, dimensions, temporary_lab
from chart_lab.experiments.traffic import PAYLOAD_SHARE
from chart_lab.network import Lab
from chart_lab.programs import program

RATES_MBIT = (10.0, 45.0, 100.0, 240.0)
LOADS = (0.0, 0.2, 0.4, 0.6, 0.8)
CROSS = ("poisson", "burst")
SENSORS = ("pathrate", "spruce", "pathchirp")
CAPACITY_SENSORS = frozenset({"pathrate"})
DELAY_MS = 2.0
# Links above are reported without a goal: timestamps of this machine are too coarse for them.
JUDGED_UP_TO_MBIT = 240.0
# A burst has so many packets on average.
BURST_PACKETS = 8
CAPACITY_GOAL = "<= 0.05"
AVAILABLE_GOAL = "<= 0.15"
# A link that is nearly full: relative errors count against at least this share of it.
LEAST_SHARE = 0.05
SETTLE_S = 0.5
TRIES = 3
TRAFFIC_S = 120
RUN_LIMIT_S = 40.0
# The emulator's packets must leave one after the other as exactly as this, in the median.
SPACING_P50_LIMIT_US = 5.0


@dataclass(frozen=True)
class Cell:
    """One run of one sensor."""

    rate_mbit: float
    cross: str
    load: float
    sensor: str
    repeat: int


@dataclass(frozen=True)
class Measured:
    """What a sensor said (None: why it said nothing stands in ``error``), and the truth; bit/s."""

    cell: Cell
    value_bps: float | None
    truth_bps: float
    error: str = ""
    probe_bytes: int = 0
    duration_s: float = 0.0
    trains_sent: int = 0
    trains_spoilt: int = 0
    # It found that too many of its trains were spoilt, as a pod is told that then runs it again.
    spoilt: bool = False

    @property
    def relative_error(self) -> float:
        """Difference over the truth; a sensor that says nothing is wrong by all of it."""
        if self.value_bps is None:
            return 1.0
        least = LEAST_SHARE * self.cell.rate_mbit * 1e6
        return abs(self.value_bps - self.truth_bps) / max(self.truth_bps, least)


def cells(settings: Settings) -> list[tuple[float, str, float, int]]:
    """Links, traffic and loads in the order of measuring; without load the kind of traffic does not matter."""
    kinds = settings.cross_kinds or CROSS
    loads = settings.load or LOADS
    return [
        (rate, cross if load else "none", load, repeat)
        for rate in settings.rate_mbit or RATES_MBIT
        for load in loads
        for cross in (kinds if load else kinds[:1])
        for repeat in range(settings.repeat or 1)
    ]


def line(rate_mbit: float, delay_ms: float) -> topology.Topology:
    """Two nodes and one link."""
    nodes = [topology.Node(name=name) for name in ("alpha", "bravo")]
    link = topology.Link(ends=("alpha", "bravo"), rate_mbit=rate_mbit, delay_ms=delay_ms)
    return topology.Topology(name="sensing", nodes=nodes, links=[link])


@contextlib.contextmanager
def _process(lab: Lab, node: str, command: Sequence[str]) -> Iterator[None]:
    process = lab.popen(node, command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        end_process(process)


@contextlib.contextmanager
def cross_traffic(lab: Lab, kind: str, rate_bps: float, seed: int) -> Iterator[None]:
    """Other traffic from alpha to bravo at a mean rate of IP packets."""
    with contextlib.ExitStack() as stack:
        if kind == "tcp":
            # Header and segment: 1448 of 1500 octets are payload.
            payload_bps = rate_bps * PAYLOAD_SHARE
            address = lab.address("bravo")
            stack.enter_context(_process(lab, "bravo", ["iperf3", "-s", "-B", address]))
            time.sleep(SETTLE_S)
            client = ["iperf3", "-c", address, "-t", str(TRAFFIC_S), "-b", f"{payload_bps:.0f}", "-l", "16K"]
            stack.enter_context(_process(lab, "alpha", client))
        elif kind != "none":
            command = [str(program("sensors/tools/cross-traffic")), "--destination", lab.address("bravo")]
            command += ["--rate-bps", f"{rate_bps:.0f}", "--duration-s", str(TRAFFIC_S), "--seed", str(seed)]
            command += ["--burst", str(BURST_PACKETS if kind == "burst" else 1)]
            stack.enter_context(_process(lab, "alpha", command))
        time.sleep(SETTLE_S)
        yield


def measure(lab: Lab, cell: Cell, key_file: Path, capacity_bps: float) -> tuple[Measured, noise.Noise, float]:
    """Run a sensor once; also what disturbed it, and the emulator's median spacing error (us)."""
    command = [str(program(f"sensors/{cell.sensor}")), "--destination", lab.address("bravo"), "--json"]
    command += ["--key-file", str(key_file)]
    if cell.sensor == "spruce":
        command += ["--capacity-bps", f"{capacity_bps:.0f}"]
    before = noise.cpu_times(lab)
    lab.reset_ground_truth("alpha-bravo")
    started_s = time.monotonic()
    told = lab.exec("alpha", command, timeout_s=RUN_LIMIT_S, check=False)
    elapsed_s = time.monotonic() - started_s
    truth = lab.ground_truth("alpha-bravo")
    disturbed = noise.judge(before, noise.cpu_times(lab), truth)
    try:
        record: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        raise LabError(f"{cell.sensor} wrote no record: {told.stderr.strip()[-300:]}") from None
    sent_bytes = int(record.get("probe_bytes", 0))
    others_bps = max(0.0, (truth["forward"]["carried"]["bytes"] - sent_bytes) * 8 / elapsed_s)
    rate_bps = cell.rate_mbit * 1e6
    value_bps = record["metrics"][0]["value"] if "metrics" in record else None
    measured = Measured(
        cell=cell,
        value_bps=value_bps,
        truth_bps=rate_bps if cell.sensor in CAPACITY_SENSORS else max(0.0, rate_bps - others_bps),
        error=record.get("error", {}).get("message", ""),
        probe_bytes=sent_bytes,
        duration_s=elapsed_s,
        trains_sent=int(record.get("trains_sent", 0)),
        trains_spoilt=int(record.get("trains_spoilt", 0)),
        spoilt=record.get("error", {}).get("kind") == "spoilt",
    )
    return measured, disturbed, float(truth["forward"]["spacing_error"]["p50_us"])


def _measure_quietly(
    lab: Lab, cell: Cell, key_file: Path, capacity_bps: float, settings: Settings
) -> tuple[Measured | None, str]:
    """A run on a machine that was quiet meanwhile, or why there was none; one that was spoilt is made again, as a pod
    does, and stands as it is when all of them were."""
    complaint = ""
    spoilt: Measured | None = None
    for _ in range(TRIES):
        measured, disturbed, spacing_us = measure(lab, cell, key_file, capacity_bps)
        complaint = disturbed.complaint() or ""
        if not complaint and spacing_us > SPACING_P50_LIMIT_US:
            complaint = f"the emulator's spacing was off by {spacing_us:.1f} us in the median"
        if complaint and settings.judge_noise:
            continue
        if not measured.spoilt:
            return measured, ""
        spoilt = measured
    return spoilt, complaint


def figures(results: Sequence[Measured]) -> list[Figure]:
    """Medians over all judged links, then per sensor and link."""
    judged = [m for m in results if m.cell.rate_mbit <= JUDGED_UP_TO_MBIT]

    def median(of: Sequence[Measured]) -> float | None:
        return statistics.median(m.relative_error for m in of) if of else None

    capacity = [m for m in judged if m.cell.sensor in CAPACITY_SENSORS]
    available = [m for m in judged if m.cell.sensor not in CAPACITY_SENSORS]
    found = []
    if capacity:
        found.append(Figure("capacity_median_error", median(capacity), "ratio", CAPACITY_GOAL))
    if available:
        found.append(Figure("available_bandwidth_median_error", median(available), "ratio", AVAILABLE_GOAL))
    for sensor, rate in sorted({(m.cell.sensor, m.cell.rate_mbit) for m in results}):
        own = [m for m in results if (m.cell.sensor, m.cell.rate_mbit) == (sensor, rate)]
        of_capacity = sensor in CAPACITY_SENSORS
        name = "capacity_median_error" if of_capacity else "available_bandwidth_median_error"
        goal = None if rate > JUDGED_UP_TO_MBIT else CAPACITY_GOAL if of_capacity else AVAILABLE_GOAL
        found.append(Figure(f"{name}{dimensions(sensor=sensor, rate_mbit=rate)}", median(own), "ratio", goal))
    return found


def table(results: Sequence[Measured]) -> str:
    """Markdown: every run."""
    lines = [
        "# Sensors against the emulator's truth",
        "",
        "| sensor | link Mb/s | traffic | load | measured Mb/s | truth Mb/s | error | trains spoilt |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for m in sorted(results, key=lambda m: (m.cell.sensor, m.cell.rate_mbit, m.cell.load, m.cell.cross)):
        value = m.error or "nothing" if m.value_bps is None else f"{m.value_bps / 1e6:.2f}"
        lines.append(
            f"| {m.cell.sensor} | {m.cell.rate_mbit:g} | {m.cell.cross} | {m.cell.load:g} "
            f"| {value} | {m.truth_bps / 1e6:.2f} | {m.relative_error:.3f} | {m.trains_spoilt} of {m.trains_sent} |"
        )
    return "\n".join(lines) + "\n"


def run(settings: Settings, report: Report) -> Outcome:
    """All links, loads and kinds of traffic. Raises NoisyMachineError when more than half could not be judged."""
    sensors = settings.sensor or SENSORS
    todo = cells(settings)
    delay_ms = (settings.delay_ms or (DELAY_MS,))[0]
    results: list[Measured] = []
    complaints: list[str] = []
    with tempfile.TemporaryDirectory(prefix="chart-sensing-") as folder:
        key_file = probing.make_key(Path(folder))
        for number, (rate, cross, load, repeat) in enumerate(todo):
            report(f"{rate:g} Mb/s, {cross} {load:.0%}", number / len(todo))
            with (
                temporary_lab(line(rate, delay_ms), settings.seed) as lab,
                probing.responder(lab, "bravo", key_file),
                cross_traffic(lab, cross, load * rate * 1e6, settings.seed * 1000 + number),
            ):
                capacity_bps = rate * 1e6
                for sensor in sensors:
                    cell = Cell(rate, cross, load, sensor, repeat)
                    measured, complaint = _measure_quietly(lab, cell, key_file, capacity_bps, settings)
                    if measured is None:
                        complaints.append(complaint)
                        continue
                    results.append(measured)
                    # spruce works with what pathrate found, as in use.
                    if sensor in CAPACITY_SENSORS and measured.value_bps:
                        capacity_bps = measured.value_bps
    if len(complaints) > len(results):
        raise NoisyMachineError(f"{len(complaints)} runs could not be judged; the last: {complaints[-1]}")
    details = {"runs": [asdict(m) | {"relative_error": m.relative_error} for m in results], "not_judged": complaints}
    return Outcome(figures(results), table(results), details)


EXPERIMENT = Experiment(
    "sensing-accuracy",
    "Capacity and available bandwidth that the sensors measure, against the emulator's truth (section 6).",
    run,
)
