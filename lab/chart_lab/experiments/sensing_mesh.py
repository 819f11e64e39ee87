"""`sensing-mesh`: twenty nodes as installed measure each other: fresh pairs, share of each link, changes of members.

Brassil et al., The CHART System, section 6. The platform runs with an agent and a sensor pod on each node; nothing but
the mesh `all` is configured. A pair is fresh when its last good result is younger than two periods. What probes and
answers take is read from the emulator's counters of every link, in both directions. One pod is stopped and started.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import httpx

from chart_lab import registration, supervise
from chart_lab.errors import LabError
from chart_lab.experiments.admission_platform import settings_in
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings
from chart_lab.experiments.sensing_overhead import WINDOW_S, worst_minute
from chart_lab.network import Lab
from chart_lab.platform.laboratory import chart, client, wait_ready
from chart_lab.platform.stack import Platform

TOPOLOGY = "sensing-mesh"
MESH = "all"
DURATION_S = 90.0
# Twenty pods start and measure all pairs for the first time.
START_LIMIT_S = 300.0
# Twenty agents on few processors.
READY_LIMIT_S = 180.0
REPLAN_LIMIT_S = 60.0
STOPPED = "n07"
SHARE_GOAL, FRESH_GOAL, REPLAN_GOAL_S = 0.01, 0.99, 10.0


def pairs(nodes: int) -> int:
    """Ordered pairs of so many nodes."""
    return nodes * (nodes - 1)


def worst_share(samples: dict[str, list[tuple[float, int]]], rate_bps: float) -> float:
    """The most that one link carried of its capacity within any minute."""
    return max(worst_minute(one) for one in samples.values()) / (rate_bps / 8 * WINDOW_S)


def _get(rest: httpx.Client, path: str) -> dict[str, Any]:
    answer = rest.get(path)
    answer.raise_for_status()
    return dict(answer.json())


def _wait(what: str, holds: Callable[[], bool], limit_s: float) -> float:
    """Seconds until it holds.

    Raises:
        LabError: it does not within the limit.
    """
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > limit_s:
            raise LabError(f"{what} within {limit_s:g} s")
        time.sleep(0.2)
    return time.monotonic() - begun


def _configured(rest: httpx.Client) -> int:
    return int(_get(rest, f"/v1/sensing-meshes/{MESH}")["plan"]["configurations"])


def _replanned_s(lab: Lab, rest: httpx.Client, action: Literal["start", "stop"], wanted: int) -> float:
    """Seconds from the order to start or stop a sensor pod until the mesh has as many configurations as it then should;
    the pod's own start or end is part of it.
    """
    begun = time.monotonic()
    supervise.control(lab, action, f"pod-{STOPPED}")
    _wait(f"the mesh did not follow the {action} of a pod", lambda: _configured(rest) == wanted, REPLAN_LIMIT_S)
    return time.monotonic() - begun


def _observe(
    lab: Lab, rest: httpx.Client, duration_s: float, report: Report
) -> tuple[list[float], dict[str, list[tuple[float, int]]]]:
    """Shares of fresh pairs, and bytes of every direction of every link, over the time."""
    fresh: list[float] = []
    samples: dict[str, list[tuple[float, int]]] = {}
    begun = time.monotonic()
    while (elapsed_s := time.monotonic() - begun) < duration_s:
        for link in lab.topology.links:
            name = "-".join(link.ends)
            truth = lab.ground_truth(name)
            for direction in ("forward", "reverse"):
                size_bytes = int(truth[direction]["offered"]["bytes"])
                samples.setdefault(f"{name} {direction}", []).append((time.monotonic() - begun, size_bytes))
        coverage = _get(rest, f"/v1/sensing-meshes/{MESH}/coverage")
        fresh.append(coverage["fresh"] / max(1, coverage["pairs"]))
        report("the mesh measures", 0.4 + 0.4 * elapsed_s / duration_s)
        time.sleep(2.0)
    return fresh, samples


def _measure(lab: Lab, rest: httpx.Client, duration_s: float, report: Report) -> Outcome:
    nodes = len(lab.topology.nodes)
    for path, _ in registration.sensing_configurations(lab.topology):
        rest.delete(path)
    report("sensor pods start", 0.3)

    def covered() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            coverage = _get(rest, f"/v1/sensing-meshes/{MESH}/coverage")
            return bool(coverage["pairs"] == pairs(nodes) and coverage["fresh"] >= FRESH_GOAL * pairs(nodes))
        return False

    started_s = _wait(f"not all {pairs(nodes)} pairs are measured", covered, START_LIMIT_S)
    fresh, samples = _observe(lab, rest, duration_s, report)
    report("one sensor pod ends and comes back", 0.85)
    gone_s = _replanned_s(lab, rest, "stop", pairs(nodes - 1))
    back_s = _replanned_s(lab, rest, "start", pairs(nodes))
    rate_bps = (lab.topology.links[0].rate_mbit or 0) * 1e6
    share = worst_share(samples, rate_bps)
    result = [
        Figure("pairs_fresh", min(fresh), "ratio", f">= {FRESH_GOAL:g}"),
        Figure("worst_share_of_link", share, "ratio", f"<= {SHARE_GOAL:g}"),
        Figure("replanned_s", max(gone_s, back_s), "s", f"<= {REPLAN_GOAL_S:g}"),
        Figure("replanned_s/change=gone", gone_s, "s", f"<= {REPLAN_GOAL_S:g}"),
        Figure("replanned_s/change=back", back_s, "s", f"<= {REPLAN_GOAL_S:g}"),
        Figure("covered_s", started_s, "s"),
    ]
    lines = ["# A mesh of twenty nodes", "", "| figure | value | goal |", "| --- | --- | --- |"]
    lines += [f"| {one.name} | {one.value:.4g} | {one.goal or ''} |" for one in result if one.value is not None]
    return Outcome(result, "\n".join(lines) + "\n", {"fresh": fresh, "nodes": nodes, "duration_s": duration_s})


def run(settings: Settings, report: Report) -> Outcome:
    """A platform of its own with twenty nodes."""
    directory = Path(tempfile.mkdtemp(prefix="chart-mesh-"))
    platform = Platform(settings_in(directory))
    try:
        report("the platform comes up", 0.0)
        platform.up(lambda words: report(words, 0.05))
        chart(platform.settings, "lab", "up", TOPOLOGY, "--platform")
        try:
            with client(platform.settings) as rest:
                wait_ready(rest, READY_LIMIT_S)
                lab = Lab.load(TOPOLOGY, state_dir=directory / "lab")
                return _measure(lab, rest, settings.duration_s or DURATION_S, report)
        finally:
            chart(platform.settings, "lab", "down", "--lab", TOPOLOGY)
    finally:
        logs = settings.out / "logs"
        shutil.rmtree(logs, ignore_errors=True)
        if (written := platform.settings.platform_dir / "logs").exists():
            shutil.copytree(written, logs)
        platform.down(purge=True)
        shutil.rmtree(directory, ignore_errors=True)


EXPERIMENT = Experiment(
    "sensing-mesh", "A mesh of twenty nodes: fresh pairs, share of each link, nodes that come and go (section 6).", run
)
