"""Every process killed with -9, again and again, while applications request, change and release rates: the
broker, the database, each service, each node's agent and sensor pod.

A kill follows as soon as the victim of the one before runs again, so most of the time something else is still coming
up. Afterwards everything may settle, and then what callers were told is compared with database, streams and agents.
With `--resume` a run adds to what earlier ones in the same folder found, until there are 200 kills together; with
`--slice-s` it kills for so long at most.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from chart_lab.experiments.admission_platform import settings_in
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings
from chart_lab.experiments.kill_callers import Caller, Told
from chart_lab.experiments.kill_judge import judge
from chart_lab.network import Lab
from chart_lab.platform.laboratory import chart, client, wait_ready
from chart_lab.platform.stack import Platform

KILLS = 200
CALLERS = 4
# The least time between two kills, and how long a process may take to be back.
LEAST_GAP_S = 0.3
BACK_LIMIT_S = 60.0
QUIET_S = 3.0
KEPT_FILE = "runs.jsonl"


@dataclass(frozen=True)
class Victim:
    """A process that is killed: its name, its present id, and whether it works."""

    name: str
    pid: Callable[[], int | None]
    works: Callable[[], bool]


def _of_platform(platform: Platform, name: str) -> Victim:
    def row() -> Any:
        return next(one for one in platform.supervisor.status([p for p in platform.programs() if p.name == name]))

    return Victim(name, lambda: row().pid or None, lambda: bool(row().healthy))


def _of_node(lab: Lab, node: str, command: str) -> Victim:
    """A node's agent or pod: the process whose command line names its program."""

    def pid() -> int | None:
        for one in lab.processes(node):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{one}/cmdline").read_bytes().decode(errors="replace").split("\0")
                if any(word.endswith(command) for word in words[:2]):
                    return one
        return None

    return Victim(f"{command} {node}", pid, lambda: pid() is not None)


def victims(platform: Platform, lab: Lab) -> list[Victim]:
    """Every process of a platform and of the nodes of its lab."""
    nodes = [node.name for node in lab.topology.nodes]
    return [
        *(_of_platform(platform, program.name) for program in platform.programs()),
        *(_of_node(lab, node, "chart-agent") for node in nodes),
        *(_of_node(lab, node, "chart-sensor-pod") for node in nodes),
    ]


def _rounds(found: list[Victim], chance: random.Random) -> Iterator[Victim]:
    """Each of them once in every round, in a new order."""
    while True:
        yield from chance.sample(found, len(found))


def _kill(victim: Victim) -> bool:
    """Kill one process; whether another one of its name works within a minute."""
    end = time.monotonic() + BACK_LIMIT_S
    while (pid := victim.pid()) is None:
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    time.sleep(LEAST_GAP_S)
    while time.monotonic() < end:
        if victim.pid() not in (None, pid) and victim.works():
            return True
        time.sleep(0.1)
    return False


def _one_run(platform: Platform, lab: Lab, seed: int, kills: int, limit_s: float, report: Report) -> dict[str, Any]:
    """Kill under load, let everything settle, judge."""
    told = Told()
    answer = httpx.post(
        f"{platform.settings.gateway_url}/dev-issuer/token", json={"subject": "kill-matrix", "roles": ["operator"]}
    )
    token = answer.raise_for_status().json()["access_token"]
    url = platform.settings.gateway_url
    callers = [Caller(url, token, number, seed, told) for number in range(CALLERS)]
    by_name: dict[str, int] = {}
    away: list[str] = []
    began = time.monotonic()
    for one in callers:
        one.start()
    try:
        time.sleep(QUIET_S)
        order = _rounds(victims(platform, lab), random.Random(seed))  # noqa: S311 - reproducible
        for number, victim in zip(range(kills), order, strict=False):
            if time.monotonic() - began > limit_s:
                break
            if not _kill(victim):
                away.append(f"{victim.name} was not back within {BACK_LIMIT_S:g} s")
            by_name[victim.name] = by_name.get(victim.name, 0) + 1
            report(f"kill {number + 1} of {kills}: {victim.name}", 0.1 + 0.8 * number / kills)
    finally:
        for one in callers:
            one.end()
        for one in callers:
            one.join(90)
    took_s = time.monotonic() - began
    report("everything settles", 0.9)
    verdict = judge(platform.settings, lab, told)
    return {
        "kills": sum(by_name.values()),
        "seed": seed,
        "seconds": round(took_s, 1),
        "granted": len(told.promises),
        "answered": told.answered,
        "repeated": told.repeated,
        "by_name": by_name,
        **{name: words[:50] for name, words in asdict(verdict).items()},
        "away": away,
        "unanswered": told.unanswered[:20],
        "refused": told.refused[:20],
        "wrong": told.wrong[:20],
    }


def run(settings: Settings, report: Report) -> Outcome:
    """Kill every process in turn while applications make requests, and judge what was lost."""
    directory = Path(tempfile.mkdtemp(prefix="chart-kill-"))
    platform = Platform(settings_in(directory))
    kept = settings.out / KEPT_FILE
    runs = [json.loads(line) for line in kept.read_text().splitlines()] if settings.resume and kept.exists() else []
    number = len(runs) + 1
    kills = settings.repeat or max(1, KILLS - sum(one["kills"] for one in runs))
    try:
        report("the platform comes up", 0.0)
        platform.up(lambda words: report(words, 0.05))
        chart(platform.settings, "lab", "up", "demo", "--platform")
        try:
            with client(platform.settings) as rest:
                wait_ready(rest)
            lab = Lab.load("demo", state_dir=directory / "lab")
            # Another order and other requests in each run.
            seed = settings.seed + 1000 * (number - 1)
            runs.append(_one_run(platform, lab, seed, kills, settings.slice_s or float("inf"), report))
        finally:
            chart(platform.settings, "lab", "down", "--lab", "demo")
    finally:
        # Of every run: why something was not back is in the logs of its own.
        kept_logs = settings.out / "logs" / str(number)
        shutil.rmtree(kept_logs, ignore_errors=True)
        if (logs := platform.settings.platform_dir / "logs").exists():
            shutil.copytree(logs, kept_logs)
        platform.down(purge=True)
        shutil.rmtree(directory, ignore_errors=True)
    settings.out.mkdir(parents=True, exist_ok=True)
    kept.write_text("".join(json.dumps(one) + "\n" for one in runs))

    def total(*names: str) -> float:
        return float(sum(len(one[name]) for one in runs for name in names))

    killed = float(sum(one["kills"] for one in runs))
    table = (
        "| kills | granted | answers | repeated calls | lost | stuck | over-committed | twice |\n" + "|---" * 8 + "|\n"
    )
    table += (
        f"| {killed:.0f} | {sum(one['granted'] for one in runs)} | {sum(one['answered'] for one in runs)}"
        f" | {sum(one['repeated'] for one in runs)} | {total('lost'):.0f} | {total('stuck', 'away', 'unanswered'):.0f}"
        f" | {total('overcommitted'):.0f} | {total('duplicated'):.0f} |\n"
    )
    return Outcome(
        [
            Figure("kills", killed, "1", f">= {KILLS}"),
            Figure("lost_commits", total("lost"), "1", "<= 0"),
            Figure("stuck", total("stuck", "away", "unanswered"), "1", "<= 0"),
            Figure("overcommitted", total("overcommitted"), "1", "<= 0"),
            Figure("duplicated", total("duplicated"), "1", "<= 0"),
            Figure("wrong_answers", total("wrong"), "1", "<= 0"),
        ],
        table,
        runs,
    )


EXPERIMENT = Experiment(
    "kill-matrix", "Every process killed with -9 under load, 200 kills: what was promised is kept.", run
)
