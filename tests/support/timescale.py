"""PostgreSQL with TimescaleDB for tests: WebAssembly behind the wire protocol (deploy/timescale)."""

from __future__ import annotations

import shutil
from pathlib import Path

import psycopg

from chart_lab.programs import build_directory
from support.postgres import role_url
from support.processes import ServerProcess, free_ports


class TimescaleServer:
    """One server in memory on a free port; one session serves every connection, a role keeps it until it hangs up."""

    def __init__(self, directory: Path) -> None:
        (port,) = free_ports(1)
        self.url = f"postgresql://chart@127.0.0.1:{port}/chart"
        node = shutil.which("node") or "node"
        command = (node, str(build_directory() / "timescale" / "server.mjs"), str(port))
        self._process = ServerProcess("timescale", command, directory / "timescale.log")

    @staticmethod
    def reason_missing() -> str:
        """Why it cannot be started here; empty when it can."""
        if not (build_directory() / "timescale" / ".stamp").exists():
            return "TimescaleDB is not there: `make timescale` fetches it"
        return "" if shutil.which("node") else "TimescaleDB needs Node.js"

    def role_url(self, role: str) -> str:
        """The database as a service sees it."""
        return role_url(self.url, role)

    def start(self) -> None:
        """Start and wait until the server answers."""
        self._process.start(self._answers)

    def stop(self) -> None:
        """Stop; everything is forgotten."""
        self._process.stop()

    def _answers(self) -> bool:
        try:
            with psycopg.connect(self.url, connect_timeout=2):
                return True
        except psycopg.OperationalError:
            return False
