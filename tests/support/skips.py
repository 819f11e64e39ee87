"""Pytest plugin: a test that is skipped must be on the list tests/skips.yaml, or it fails (decision record 0029)."""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

LIST = Path(__file__).resolve().parents[1] / "skips.yaml"


@dataclass(frozen=True)
class Allowed:
    """An entry of the list: regular expressions of a whole test id and of the beginning of a reason."""

    tests: str
    reason: str
    why: str

    def allows(self, test: str, reason: str) -> bool:
        """Whether it speaks of this skip."""
        return bool(re.fullmatch(self.tests, test) and re.match(self.reason, reason))


@cache
def read(path: Path) -> tuple[Allowed, ...]:
    """The list; every entry says why it is there."""
    entries = tuple(Allowed(**entry) for entry in yaml.safe_load(path.read_text())["skips"])
    for entry in entries:
        assert entry.why.strip(), f"{path}: {entry.tests}: why may it be skipped?"
    return entries


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """What a skip said of itself."""
    told = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The list is an option so that the plugin's own tests can have one."""
    parser.addoption("--skips", type=Path, default=LIST, help="list of the skips that are allowed")


def _judge(report: pytest.TestReport | pytest.CollectReport, path: Path) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = reason_of(report)
    if not any(entry.allows(report.nodeid, reason) for entry in read(path)):
        report.outcome = "failed"
        report.longrepr = f"skipped, and not on the list {path.name}: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that skips itself or is marked so. Runs where the test runs, also in a worker of xdist."""
    report = yield
    _judge(report, item.config.getoption("--skips"))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A module that skips itself while it is imported."""
    report = yield
    _judge(report, collector.config.getoption("--skips"))
    return report
