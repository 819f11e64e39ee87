"""Processes of a lab that outlive whoever started them: left running, and reaped when they end while it is still there.

A command such as `chart lab up` ends long before its emulators do; tests and experiments do not, and an emulator that
ended would stay their zombie.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path

# Of this process alone; a pid stays ours until it is reaped. Each has the cgroup of its lab.
_left: dict[int, Path] = {}


def leave(process: subprocess.Popen[bytes], cgroup: Path) -> None:
    """Lets a process run on when its object is gone; those left before that have ended are reaped."""
    for pid in list(_left):
        _reap(pid, os.WNOHANG)
    process.returncode = 0  # not waited for by its object
    _left[process.pid] = cgroup


def reap(cgroup: Path) -> None:
    """Waits for the processes that were left in a lab whose cgroup was removed, so they were killed."""
    for pid in [pid for pid, home in _left.items() if home == cgroup]:
        _reap(pid, 0)


def _reap(pid: int, options: int) -> None:
    ended = pid
    with contextlib.suppress(ChildProcessError):
        ended, _ = os.waitpid(pid, options)
    if ended:
        _left.pop(pid, None)
