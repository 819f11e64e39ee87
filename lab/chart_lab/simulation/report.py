"""Many seeds on all cores, in one go or in parts: progress, the report, and for a failing seed how to see it again."""

from __future__ import annotations

import gc
import hashlib
import itertools
import json
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from chart_lab.simulation.checker import Violation
from chart_lab.simulation.decide import LIBRARY
from chart_lab.simulation.world import simulate

# Sets of strings are ordered by this; the same for all, so that a seed is the same run everywhere.
HASH_SEED = "0"
# Each figure and the rule that it counts.
FIGURES = {
    "overcommitted": "overcommitted",
    "applied_overcommitted": "applied_overcommitted",
    "lost_commits": "lost",
    "untold_losers": "untold",
}


@dataclass(frozen=True)
class SeedResult:
    """What a run sends home from its process."""

    seed: int
    violations: tuple[Violation, ...]
    counts: dict[str, int]
    # Events about the violations, when there were any.
    excerpt: str = ""
    trace: str = ""


@dataclass
class Summary:
    """All runs together."""

    seeds: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[SeedResult] = field(default_factory=list)
    # Seeds that failed in an earlier part of the same series, and the seconds that it took.
    failed_before: list[int] = field(default_factory=list)
    seconds_before: float = 0.0

    def add(self, result: SeedResult) -> None:
        """One more run."""
        self.seeds += 1
        self.counts.update(result.counts)
        self.rules.update(one.rule for one in result.violations)
        if result.violations:
            self.failures.append(result)


def run_seed(seed: int, mutation: str = "") -> SeedResult:
    """One run, in whatever process."""
    if not gc.get_freeze_count():
        # What the programs consist of need not be looked through after every run.
        gc.collect()
        gc.freeze()
    result = simulate(seed, mutation)
    if not result.violations:
        return SeedResult(seed, (), result.counts)
    assert result.trace is not None
    words = result.violations[0].words
    return SeedResult(seed, tuple(result.violations), result.counts, result.trace.about(words), result.trace.text())


def run_seeds(
    seeds: Sequence[int],
    mutation: str,
    jobs: int,
    progress: Callable[[Summary], None],
    *,
    summary: Summary | None = None,
    until: Callable[[], bool] = lambda: False,
) -> Summary:
    """Run many seeds in their order, `jobs` at a time, and begin none once `until` says so; `progress` is told after
    each. What is found is added to `summary`.
    """
    summary = summary or Summary()
    for result in _results(itertools.takewhile(lambda _: not until(), seeds), mutation, jobs):
        summary.add(result)
        progress(summary)
    return summary


def _results(seeds: Iterator[int], mutation: str, jobs: int) -> Iterator[SeedResult]:
    if jobs <= 1:
        for seed in seeds:
            yield run_seed(seed, mutation)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: set[Future[SeedResult]] = set()
        try:
            # One more than run at once, so that nobody waits; what was begun is always waited for.
            while True:
                running |= {
                    pool.submit(run_seed, seed, mutation) for seed in itertools.islice(seeds, jobs + 1 - len(running))
                }
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for one in done:
                    yield one.result()
        finally:
            pool.shutdown(cancel_futures=True)


def same_hashes_everywhere(arguments: Sequence[str]) -> None:
    """Start this program anew with the hash seed that replays need, unless it has it."""
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": HASH_SEED}
        command = [sys.executable, "-m", "chart_lab.simulation", *arguments]
        os.execve(sys.executable, command, environment)  # noqa: S606 - the same program again


def replay_command(seed: int, mutation: str) -> str:
    """What runs one seed again."""
    if mutation:
        return shlex.join(["python", "-m", "chart_lab.simulation", "--seeds", "1", "--first-seed", str(seed)]) + (
            f" --mutation {mutation}"
        )
    return f"make simulate SEEDS=1 FIRST_SEED={seed}"


def show_failure(failure: SeedResult, mutation: str, out: Path) -> str:
    """What a reader needs to begin with: the rules that were broken, what led there, how to run it again."""
    path = out / f"trace-{failure.seed}.txt"
    path.write_text(failure.trace)
    lines = [f"seed {failure.seed} breaks {len(failure.violations)} rules:"]
    lines += [f"  {one.rule}: {one.detail}" for one in failure.violations[:5]]
    lines += ["what happened around the first of them, with every fault:", failure.excerpt.rstrip()]
    lines += [f"the whole trace: {path}", f"again: {replay_command(failure.seed, mutation)}"]
    return "\n".join(lines)


class NotTheSameError(ValueError):
    """A series cannot be gone on with; the message says why."""


@cache
def code() -> str:
    """What stands for everything that a run follows from but its seed: a hash of the sources that it runs, of the
    services and of the simulation, and of the agent's library.

    Once, before the first seed: a seed that runs in this process loads further modules.
    """
    loaded = [getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith("chart.")]
    found = hashlib.sha256()
    for path in [*sorted(Path(one) for one in loaded if one), *([LIBRARY] if LIBRARY.exists() else [])]:
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def write(summary: Summary, command: str, out: Path, seconds: float, first_seed: int = 0) -> None:
    """report.json: the figures, and beside them what the runs did and which seeds failed."""
    figures = [{"name": "seeds", "value": summary.seeds, "unit": "seeds", "goal": None, "peer": None}]
    figures += [
        {"name": name, "value": summary.rules[rule], "unit": "cases", "goal": "<= 0", "peer": None}
        for name, rule in FIGURES.items()
    ]
    sums = summary.counts["applied_sums"]
    figures.append({"name": "applied_sums_judged", "value": sums, "unit": "sums", "goal": None, "peer": None})
    report = {
        "command": command,
        "figures": figures,
        "details": {
            "first_seed": first_seed,
            "code": code(),
            "seconds": round(summary.seconds_before + seconds, 1),
            "rules_broken": dict(summary.rules),
            "counts": dict(summary.counts),
            "failed_seeds": sorted([*summary.failed_before, *(one.seed for one in summary.failures)]),
        },
    }
    out.mkdir(parents=True, exist_ok=True)
    # Whoever is killed while writing leaves what was there before.
    fresh = out / "report.json.new"
    fresh.write_text(json.dumps(report, indent=1) + "\n")
    fresh.replace(out / "report.json")


def read(out: Path, first_seed: int) -> Summary:
    """What an earlier part of the same series found: the next seed is `first_seed` + `seeds`.

    Raises:
        NotTheSameError: it began with another seed, or of another state of the code.
    """
    path = out / "report.json"
    if not path.exists():
        return Summary()
    stored = json.loads(path.read_text())
    details = stored["details"]
    if details.get("first_seed") != first_seed or details.get("code") != code():
        msg = (
            f"{path} is of another first seed or another state of the code: name another folder, or leave out --resume"
        )
        raise NotTheSameError(msg)
    return Summary(
        seeds=next(one["value"] for one in stored["figures"] if one["name"] == "seeds"),
        rules=Counter(details["rules_broken"]),
        counts=Counter(details["counts"]),
        failed_before=details["failed_seeds"],
        seconds_before=details["seconds"],
    )


class Progress:
    """A line now and then: on a terminal it is overwritten."""

    def __init__(self, total: int, before: int = 0) -> None:
        self._total = total
        self._before = before
        self._began = time.monotonic()
        self._told = 0.0

    def __call__(self, summary: Summary) -> None:
        """Say how far it is, not too often."""
        now = time.monotonic()
        done = summary.seeds == self._total
        if not done and now - self._told < (0.5 if sys.stderr.isatty() else 10.0):
            return
        self._told = now
        rate = (summary.seeds - self._before) / max(now - self._began, 1e-3)
        left_s = (self._total - summary.seeds) / rate
        failed = len(summary.failures) + len(summary.failed_before)
        text = f"simulate: {summary.seeds}/{self._total} seeds, {failed} failed, {left_s:.0f} s left"
        if sys.stderr.isatty():
            print(f"\r{text:<70}", end="\n" if done else "", file=sys.stderr, flush=True)
        else:
            print(text, file=sys.stderr, flush=True)
