"""supervisord under the platform: configuration, ordered start by health, stop, status.

supervisord restarts what dies and keeps the log files; starting in stages and waiting for health is done here over its
XML-RPC interface on a unix socket.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault, ServerProxy

import httpx
from supervisor.xmlrpc import SupervisorTransport

from chart_lab import supervisord
from chart_lab.platform.programs import Program
from chart_lab.supervisord import Supervised

START_LIMIT_S = 90.0


class SupervisorError(RuntimeError):
    """The process manager or one of its programs did not do what was asked; the message says which log to read."""


@dataclass(frozen=True)
class ProgramStatus:
    """What supervisord says of one program."""

    name: str
    state: str
    pid: int
    uptime_s: int
    healthy: bool
    log: str


def healthy(check: str, timeout_s: float = 1.0) -> bool:
    """Whether a health check passes now; ``check`` as in `Program.health`."""
    if check.startswith("tcp:"):
        host, port = check[4:].rsplit(":", 1)
        try:
            with socket.create_connection((host, int(port)), timeout=timeout_s):
                return True
        except OSError:
            return False
    try:
        return httpx.get(check, timeout=timeout_s).status_code == 200
    except httpx.HTTPError:
        return False


def configuration(directory: Path, programs: Iterable[Program], identifier: str) -> str:
    """Text of supervisord.conf: nothing starts by itself, `Supervisor.start_all` does that in order."""
    logs = directory / "logs"
    return supervisord.configuration(
        directory,
        socket_path(directory),
        [
            Supervised(
                program.name,
                program.command,
                program.environment,
                logs / f"{program.name}.log",
                {
                    "directory": program.directory or directory,
                    "autostart": "false",
                    "startsecs": 1,
                    "startretries": 10,
                    "stopsignal": program.stop_signal,
                    "stopwaitsecs": program.stop_wait_s,
                },
            )
            for program in programs
        ],
        {
            "identifier": identifier,
            "logfile": logs / "supervisord.log",
            "childlogdir": logs,
            "minfds": 4096,
            "nodaemon": "false",
        },
    )


def socket_path(directory: Path) -> Path:
    """The control socket: in the state directory, or in a private folder of /run when that path is too long."""
    path = directory / "supervisor.sock"
    if len(str(path)) < 100:
        return path
    digest = hashlib.sha256(str(directory).encode()).hexdigest()[:12]
    return Path("/run") / f"chart-{os.getuid()}-{digest}.sock"


class Supervisor:
    """One supervisord and the programs in its configuration."""

    def __init__(self, directory: Path, identifier: str = "chart") -> None:
        self.directory = directory
        self.identifier = identifier

    def _call(self, method: str, *arguments: object) -> Any:
        """One call of supervisord's XML-RPC interface, on a connection of its own."""
        transport = SupervisorTransport(None, None, f"unix://{socket_path(self.directory)}")
        with contextlib.closing(transport), ServerProxy("http://127.0.0.1", transport=transport) as proxy:
            return getattr(proxy.supervisor, method)(*arguments)

    def running(self) -> bool:
        """Whether a supervisord answers on the socket."""
        try:
            return bool(self._call("getState")["statename"] == "RUNNING")
        except (OSError, Fault):
            return False

    def launch(self, programs: list[Program]) -> None:
        """Start supervisord with these programs, none of them started yet; adopts one that runs already."""
        (self.directory / "logs").mkdir(parents=True, exist_ok=True)
        config = self.directory / "supervisord.conf"
        config.write_text(configuration(self.directory, programs, self.identifier))
        config.chmod(0o600)
        if self.running():
            added, changed, removed = self._call("reloadConfig")[0]
            for name in removed + changed:
                self._call("stopProcessGroup", name)
                self._call("removeProcessGroup", name)
            for name in added + changed:
                self._call("addProcessGroup", name)
            return
        executable = Path(sys.executable).parent / "supervisord"
        done = subprocess.run(
            [str(executable), "-c", str(config)], check=False, capture_output=True, text=True, timeout=30
        )
        if done.returncode != 0:
            msg = f"supervisord did not start: {(done.stderr or done.stdout).strip()}"
            raise SupervisorError(msg)
        self._until(self.running, 10.0, "supervisord does not answer on its socket")

    def start(self, program: Program, limit_s: float = START_LIMIT_S) -> None:
        """Start one program and wait until it is healthy.

        Raises:
            SupervisorError: it gave up, or was not healthy within the limit; names the log and its last lines.
        """
        with contextlib.suppress(Fault):  # already started
            self._call("startProcess", program.name, False)
        end = time.monotonic() + limit_s
        while not healthy(program.health):
            state = self._call("getProcessInfo", program.name)["statename"]
            if state == "FATAL" or time.monotonic() > end:
                log = self.directory / "logs" / f"{program.name}.log"
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:]) if log.exists() else ""
                what = (
                    "keeps exiting" if state == "FATAL" else f"is not healthy after {limit_s:.0f} s ({program.health})"
                )
                msg = f"{program.name} {what}; see {log}\n{tail}"
                raise SupervisorError(msg)
            time.sleep(0.1)

    def start_all(self, programs: list[Program], progress: Callable[[str], None]) -> None:
        """Start the programs stage by stage; within a stage all at once."""
        for stage in sorted({program.stage for program in programs}):
            members = [program for program in programs if program.stage == stage]
            for program in members:
                with contextlib.suppress(Fault):
                    self._call("startProcess", program.name, False)
            for program in members:
                self.start(program)
                progress(program.name)

    def status(self, programs: list[Program]) -> list[ProgramStatus]:
        """State of every program; all of them STOPPED when no supervisord runs."""
        known = {info["name"]: info for info in self._call("getAllProcessInfo")} if self.running() else {}
        rows = []
        for program in programs:
            info = known.get(program.name, {"statename": "STOPPED", "pid": 0, "now": 0, "start": 0})
            up = info["statename"] in ("STARTING", "RUNNING")
            rows.append(
                ProgramStatus(
                    name=program.name,
                    state=info["statename"],
                    pid=int(info["pid"]),
                    uptime_s=int(info["now"] - info["start"]) if up else 0,
                    healthy=up and healthy(program.health),
                    log=str(self.directory / "logs" / f"{program.name}.log"),
                )
            )
        return rows

    def stop(self, programs: list[Program]) -> None:
        """Stop every program, last stage first, then supervisord itself; nothing of it runs afterwards."""
        if not self.running():
            return
        pid = int((self.directory / "supervisord.pid").read_text())
        for program in sorted(programs, key=lambda p: -p.stage):
            with contextlib.suppress(Fault):
                self._call("stopProcess", program.name, True)
        with contextlib.suppress(OSError, Fault):
            self._call("shutdown")
        try:
            self._until(lambda: not _alive(pid), 30.0, "supervisord did not stop")
        except SupervisorError:
            os.kill(pid, signal.SIGKILL)

    @staticmethod
    def _until(condition: Callable[[], bool], limit_s: float, complaint: str) -> None:
        end = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > end:
                raise SupervisorError(complaint)
            time.sleep(0.05)

    def purge(self) -> None:
        """Remove the state directory."""
        shutil.rmtree(self.directory, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z")
