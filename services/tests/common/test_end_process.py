"""How programs of a lab are ended."""

from __future__ import annotations

import signal
import subprocess
import sys

from chart.common.processes import end_process


def started(words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", f"import signal, sys; {words}; print(flush=True); signal.pause()"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as told:
        assert told.readline(), "it has set up its handlers"
    return process


def test_a_program_may_end_in_order() -> None:
    process = started("signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))")
    end_process(process)
    assert process.returncode == 7


def test_one_that_does_not_end_is_killed() -> None:
    process = started("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    end_process(process, limit_s=0.2)
    assert process.returncode == -signal.SIGKILL


def test_one_that_has_ended_is_left_alone() -> None:
    process = started("signal.alarm(1)")
    assert process.wait(timeout=20) == -signal.SIGALRM
    end_process(process)
    assert process.returncode == -signal.SIGALRM
