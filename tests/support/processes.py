"""Servers that tests start: free ports, death with the test session, stop with a limit, pause."""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

from support.waiting import until


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now; all held open until the last is found, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def listens(address: str) -> bool:
    """Whether somebody accepts connections on "host:port"."""
    host, port = address.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


def _stands(thread: Path) -> bool:
    """Whether a thread (its folder in /proc) is stopped or gone. A busy machine lets threads run on for a while after
    the signal: one of them has to be scheduled to take it.
    """
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return True


class ServerProcess:
    """One server process with its log file. The kernel kills it when the test session dies."""

    def __init__(self, name: str, command: tuple[str, ...], log: Path, stop_signal: int = signal.SIGTERM) -> None:
        self.name = name
        self._command = command
        self._log = log
        self._stop_signal = stop_signal
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def start(self, ready: Callable[[], bool], limit_s: float = 60.0) -> None:
        """Start it and wait until it is ready."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self._command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        process = self._process

        def ready_or_dead() -> bool:
            if process.poll() is not None:
                tail = self._log.read_text(errors="replace")[-2000:]
                msg = f"{self.name} ended with status {process.returncode}:\n{tail}"
                raise RuntimeError(msg)
            return ready()

        until(ready_or_dead, f"{self.name} ready (log: {self._log})", limit_s)

    def stop(self, limit_s: float = 20.0) -> None:
        """Ask it to stop; kill it after the limit. Does nothing when it does not run."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGCONT)
        process.send_signal(self._stop_signal)
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def kill(self) -> None:
        """End it as a power failure would."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(10)

    def pause(self) -> None:
        """Stop it from running, and return when every thread stands; connections stay open and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        threads = Path(f"/proc/{self._process.pid}/task")
        until(lambda: all(_stands(thread) for thread in threads.iterdir()), f"{self.name} stands")

    def resume(self) -> None:
        """Let it run again."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
