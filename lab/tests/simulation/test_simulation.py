"""The simulation itself: it can be replayed, it keeps to the real code, and it notices broken rules."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from chart_lab.simulation import decide, report
from chart_lab.simulation.checker import Violation, peak_bps
from chart_lab.simulation.mutations import MUTATIONS
from chart_lab.simulation.world import simulate

pytestmark = pytest.mark.skipif(
    not decide.LIBRARY.exists(), reason=f"{decide.LIBRARY}: `make decide-library` builds it"
)

# A broken rule has to be noticed within so many seeds.
NOTICED_WITHIN = 25
# Looked at every time; all of them in `make verify-all`.
QUICK = ("skip-the-link-locks", "drop-the-outbox", "leases-for-nothing", "let-go-at-once")


@pytest.fixture(autouse=True)
def logs_as_before() -> object:
    """The simulation takes over the logs of its process; other tests want theirs back."""
    import structlog

    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_the_same_seed_is_the_same_run() -> None:
    first, again, other = simulate(7), simulate(7), simulate(8)
    assert first.digest == again.digest
    assert first.digest != other.digest
    assert first.violations == []
    assert first.counts["granted"] > 5
    assert first.counts["commits"] > 100


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in MUTATIONS]
)
def test_a_broken_rule_is_noticed(name: str) -> None:
    seen: set[str] = set()
    for seed in range(1, NOTICED_WITHIN + 1):
        seen |= {one.rule for one in simulate(seed, name).violations}
        if seen & set(MUTATIONS[name].noticed_as):
            return
    pytest.fail(f"{NOTICED_WITHIN} seeds without {MUTATIONS[name].noticed_as}; seen: {seen or 'nothing'}")


def test_a_failing_seed_says_what_broke_and_how_to_see_it_again(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chart_lab.simulation", "--seeds", "1", "--first-seed", "1", "--jobs", "1"]
    done = subprocess.run(
        [*command, "--mutation", "leases-for-nothing", "--out", str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(Path(decide.__file__).parents[2])},
    )
    assert done.returncode == 1, done.stderr
    assert "seed 1 breaks" in done.stdout
    assert "overcommitted:" in done.stdout
    assert "--first-seed 1 --mutation leases-for-nothing" in done.stdout
    assert (tmp_path / "trace-1.txt").stat().st_size > 10_000
    figures = {one["name"]: one["value"] for one in json.loads((tmp_path / "report.json").read_text())["figures"]}
    assert figures["seeds"] == 1
    assert figures["overcommitted"] > 0
    assert set(figures) == {
        "seeds",
        "overcommitted",
        "applied_overcommitted",
        "lost_commits",
        "untold_losers",
        "applied_sums_judged",
    }
    assert figures["applied_sums_judged"] > 1000
    assert report.replay_command(5, "") == "make simulate SEEDS=1 FIRST_SEED=5"


def test_parts_of_a_series_are_what_it_is_in_one_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(seed: int, _mutation: str = "") -> report.SeedResult:
        broken = (Violation("lost", f"by {seed}"),) if seed == 4 else ()
        return report.SeedResult(seed, broken, {"commits": seed})

    def stored(folder: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((tmp_path / folder / "report.json").read_text())
        found["details"].pop("seconds")
        return found

    monkeypatch.setattr(report, "run_seed", run)
    whole = report.run_seeds(range(3, 9), "", 1, lambda _: None)
    report.write(whole, "all of it", tmp_path / "whole", 1.0, 3)

    # Each part begins where the report ends and stops after two more.
    def part() -> None:
        before = report.read(tmp_path / "parts", 3)
        first, enough = 3 + before.seeds, before.seeds + 2
        found = report.run_seeds(
            range(first, 9), "", 1, lambda _: None, summary=before, until=lambda: before.seeds >= enough
        )
        report.write(found, "all of it", tmp_path / "parts", 1.0, 3)

    for _ in range(3):
        part()
    assert stored("parts") == stored("whole")
    assert stored("whole")["details"]["failed_seeds"] == [4]
    with pytest.raises(report.NotTheSameError, match="another first seed"):
        report.read(tmp_path / "parts", 4)
    monkeypatch.setattr(report, "code", lambda: "other")
    with pytest.raises(report.NotTheSameError, match="another state of the code"):
        report.read(tmp_path / "parts", 3)


def test_the_judge_adds_up() -> None:
    assert peak_bps([]) == (0, 0)
    assert peak_bps([(0, 10, 5), (10, 20, 7)]) == (7, 10)
    assert peak_bps([(0, 11, 5), (10, 20, 7), (15, 16, 1)]) == (12, 10)


def test_declarations_of_a_header_are_understood() -> None:
    text = (
        "#pragma once\n/* a\n comment */\n#define LEN 80\n#define LONG_US 10ll\nstruct s { char id[LEN]; long x; };\n"
    )
    assert decide.declarations(text).split() == ["struct", "s", "{", "char", "id[80];", "long", "x;", "};"]
