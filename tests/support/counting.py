"""Pytest plugin: what a session ran, in a file for the report of `make test` (support.stages); none without the option.

A session that repeats the tests that failed in the one before adds to that one's file (tools/pytest-again).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.skips import reason_of


class Counting:
    """Of every test how it ended, over the phases of it."""

    def __init__(self, path: Path, *, repetition: bool) -> None:
        self._path, self._began = path, time.monotonic()
        before: dict[str, Any] = json.loads(path.read_text()) if repetition and path.exists() else {}
        self._outcomes: dict[str, str] = before.get("outcomes", {})
        self._reasons: dict[str, str] = before.get("reasons", {})
        self._repeated: list[str] = before.get("repeated", [])
        self._repetition = repetition
        self._duration_s: float = before.get("duration_s", 0.0)
        self._this_session: set[str] = set()

    def _note(self, test: str, outcome: str, reason: str = "") -> None:
        if test not in self._this_session:
            self._this_session.add(test)
            self._outcomes.pop(test, None)
            if self._repetition and test not in self._repeated:
                self._repeated.append(test)
        if self._outcomes.get(test) != "failed":
            self._outcomes[test] = outcome
        if reason:
            self._reasons[test] = reason

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A phase of a test; with xdist this is called where the results come together."""
        if report.failed:
            self._note(report.nodeid, "failed")
        elif report.skipped:
            self._note(report.nodeid, "skipped", reason_of(report))
        elif report.when == "call":
            self._note(report.nodeid, "passed")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be read, or that skips itself."""
        if report.failed:
            self._note(report.nodeid, "failed")
        elif report.skipped:
            self._note(report.nodeid, "skipped", reason_of(report))

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        counted = Counter(self._outcomes.values())
        told = {
            **{outcome: counted[outcome] for outcome in ("passed", "failed", "skipped")},
            "repeated": self._repeated,
            "duration_s": round(self._duration_s + time.monotonic() - self._began, 1),
            "outcomes": self._outcomes,
            "reasons": {test: why for test, why in self._reasons.items() if self._outcomes[test] == "skipped"},
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(told, indent=1) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Where to, and whether this session repeats."""
    parser.addoption("--count-into", type=Path, help="write what was run to this file (JSON)")
    parser.addoption("--repetition", action="store_true", help="the tests that failed before are run again")


def pytest_configure(config: pytest.Config) -> None:
    """Counts where results come together, not in the workers of xdist."""
    path: Path | None = config.getoption("--count-into")
    if path is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Counting(path, repetition=config.getoption("--repetition")))
