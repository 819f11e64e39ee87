"""Processes that a lab leaves running are reaped when they end: nothing stays a zombie of who started them."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from chart_lab import children
from support.waiting import until


def state(pid: int) -> str:
    """The letter of a process in /proc; empty: there is none."""
    path = Path(f"/proc/{pid}/stat")
    return path.read_text().rpartition(") ")[2][0] if path.exists() else ""


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "60"])


def test_a_lab_that_goes_down_reaps_its_own(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    children.leave(sleeper, tmp_path / "lab")
    os.kill(sleeper.pid, signal.SIGKILL)
    until(lambda: state(sleeper.pid) == "Z", "the process has ended and was not waited for")
    children.reap(tmp_path / "another")
    assert state(sleeper.pid) == "Z"
    children.reap(tmp_path / "lab")
    assert state(sleeper.pid) == ""


def test_what_ended_meanwhile_is_reaped_with_the_next_start(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    children.leave(sleeper, tmp_path / "lab")
    os.kill(sleeper.pid, signal.SIGKILL)
    until(lambda: state(sleeper.pid) == "Z", "the process has ended")
    other = subprocess.Popen(["sleep", "60"])
    children.leave(other, tmp_path / "lab")
    assert state(sleeper.pid) == ""
    os.kill(other.pid, signal.SIGKILL)
    children.reap(tmp_path / "lab")
    assert state(other.pid) == ""
