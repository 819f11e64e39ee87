"""Pytest plugin: what tests measure. `make test` asserts what holds on any machine; `make bench-all` judges the goals.

A test that measures takes the fixture ``figures`` and tells it each figure with two bounds: ``sound``, which a machine
of any speed keeps as long as the function is there and which is always asserted, and the goal, which is judged with
``--bench`` alone. A test that is nothing but a comparison is marked ``timed`` and runs with ``--bench`` alone.

With ``--bench FILE`` what was found is added to the file, one line of JSON for each attempt; tests that the file has a
verdict on are left out (support.bench runs such sessions and makes the report).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from chart_lab.steal import Steal
from support.waiting import until

Answer = TypeVar("Answer")

MET, MISSED, NOT_JUDGED = "met", "missed", "not judged"
# With more than this stolen on average a failure says nothing of CHART. Below the limit of experiments, which average
# for minutes: single trains of packets are spoilt by less.
STEAL_LIMIT_CORES = 0.005
# For what comes in milliseconds where nothing else runs: a machine with little to give takes no longer than this.
SOUND_S = 60.0


@dataclass(frozen=True)
class Figure:
    """A number that was measured, its goal such as ``<= 1.25``, and whether it was met."""

    name: str
    value: float
    unit: str
    goal: str
    peer: str | None
    met: bool


class Figures:
    """What one test measures."""

    def __init__(self) -> None:
        self.taken: list[Figure] = []
        self.complaints: list[str] = []

    def at_most(
        self, name: str, value: float, goal: float, unit: str, *, sound: float | None, peer: str | None = None
    ) -> None:
        """A figure that is better the smaller it is; never above ``sound`` where the function is there."""
        self._take(name, value, unit, f"<= {goal:g}", value <= goal, peer)
        assert sound is None or value <= sound, f"{name}: {value:g} {unit}, more than {sound:g} on any machine"

    def at_least(
        self, name: str, value: float, goal: float, unit: str, *, sound: float | None, peer: str | None = None
    ) -> None:
        """A figure that is better the larger it is; never below ``sound`` where the function is there."""
        self._take(name, value, unit, f">= {goal:g}", value >= goal, peer)
        assert sound is None or value >= sound, f"{name}: {value:g} {unit}, less than {sound:g} on any machine"

    def within(
        self, name: str, value: float, goal: tuple[float, float], unit: str, *, sound: tuple[float, float] | None
    ) -> None:
        """A figure that shall lie between two others; never outside ``sound`` where the function is there."""
        self._take(name, value, unit, f"{goal[0]:g} to {goal[1]:g}", goal[0] <= value <= goal[1], None)
        assert sound is None or sound[0] <= value <= sound[1], (
            f"{name}: {value:g} {unit}, outside {sound[0]:g} to {sound[1]:g} on any machine"
        )

    def reached(self, condition: Callable[[], Answer], what: str, goal_s: float, limit_s: float = SOUND_S) -> Answer:
        """Wait until something is there, and how long that takes: its goal, and a limit that is asserted."""
        began = time.monotonic()
        answer = until(condition, what, limit_s=limit_s)
        self.at_most(f"until {what}", time.monotonic() - began, goal_s, "s", sound=None)
        return answer

    def disturbed(self, complaint: str | None) -> None:
        """What a measurement itself found that spoils it, if anything."""
        if complaint is not None:
            self.complaints.append(complaint)

    def _take(self, name: str, value: float, unit: str, goal: str, met: bool, peer: str | None) -> None:
        self.taken.append(Figure(name, round(float(value), 6), unit, goal, peer, met))


FIGURES = pytest.StashKey[Figures]()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> Figures:
    """Where a test tells what it measures."""
    item: pytest.Item = request.node
    return item.stash.setdefault(FIGURES, Figures())


class Bench:
    """Judges the tests that measure, and keeps what was found."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _add(self, line: dict[str, Any]) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(line) + "\n")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Those that measure, without those that have a verdict."""
        measuring = [item for item in items if measures(item)]
        lines = [json.loads(line) for line in self._path.read_text().splitlines()] if self._path.exists() else []
        judged = {line["test"] for line in lines if line.get("verdict") in (MET, MISSED)}
        kept = [item for item in measuring if item.nodeid not in judged]
        self._add({"selected": [item.nodeid for item in measuring]})
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Judge what the test measured, and add it to the file."""
        before = Steal.now()
        error: BaseException | None = None
        try:
            result = yield
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as raised:
            error = raised
            result = None
        found = item.stash.get(FIGURES, Figures())
        verdict, why = judge(found, error, Steal.now().cores_since(before))
        self._add(
            {"test": item.nodeid, "verdict": verdict, "why": why, "figures": [asdict(one) for one in found.taken]}
        )
        if error is not None:
            raise error
        assert verdict == MET, f"{verdict}: {why}"
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """What could not even be set up is not judged."""
        if report.when == "setup" and not report.passed:
            told = str(report.longrepr).strip().splitlines()
            why = f"could not be set up: {told[-1] if told else report.outcome}"
            self._add({"test": report.nodeid, "verdict": NOT_JUDGED, "why": why, "figures": []})


def judge(found: Figures, error: BaseException | None, stolen_cores: float) -> tuple[str, str]:
    """The verdict on a test, and why.

    What is good on a disturbed machine is good; what is not is missed only where nothing disturbed it.
    """
    missed = [f"{one.name} {one.value:g} {one.unit}, goal {one.goal}" for one in found.taken if not one.met]
    if error is not None:
        missed.append(str(error).partition("\n")[0] or type(error).__name__)
    if not missed:
        return MET, ""
    told = "; ".join(missed)
    if isinstance(error, pytest.skip.Exception):
        return NOT_JUDGED, told
    if stolen_cores > STEAL_LIMIT_CORES:
        return NOT_JUDGED, f"the hypervisor took {stolen_cores:.3f} cores (limit {STEAL_LIMIT_CORES}); {told}"
    if found.complaints:
        return NOT_JUDGED, f"{'; '.join(found.complaints)}; {told}"
    return MISSED, told


def measures(item: pytest.Item) -> bool:
    """Whether the test has figures that `make bench-all` judges."""
    return "figures" in getattr(item, "fixturenames", ()) or item.get_closest_marker("timed") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    """The file turns the judging on."""
    parser.addoption("--bench", type=Path, help="run and judge what measures; add what was found to this file")


def pytest_configure(config: pytest.Config) -> None:
    """Judging is a plugin of its own, there when it was asked for."""
    path: Path | None = config.getoption("--bench")
    if path is not None:
        config.pluginmanager.register(Bench(path))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without ``--bench`` nothing that only compares is run."""
    if config.getoption("--bench") is None:
        apart = [item for item in items if item.get_closest_marker("timed") is not None]
        if apart:
            config.hook.pytest_deselected(items=apart)
            items[:] = [item for item in items if item not in apart]
