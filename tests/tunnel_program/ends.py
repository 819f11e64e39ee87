"""Single ends of a chart-tunnel for tests, here or in a node of a lab."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chart_lab import linkem
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.programs import program
from support.waiting import until

PORT = 7400


def command(role: str, *options: str) -> list[str]:
    """The command line of one end."""
    return [str(program("dataplane/chart-tunnel")), role, *options]


@dataclass
class End:
    """One end, as a context manager; in a node of a lab, or without one in the machine's own namespace."""

    role: str
    directory: Path
    options: Sequence[str]
    lab: Lab | None = None
    node: str = ""
    process: subprocess.Popen[str] | None = None

    @property
    def socket(self) -> Path:
        """Its control socket."""
        return self.directory / f"{self.role}.sock"

    @property
    def log(self) -> Path:
        """What it says on standard error."""
        return self.directory / f"{self.role}.log"

    def start(self) -> None:
        """Starts it and waits until it answers."""
        line = command(self.role, *self.options, "--control", str(self.socket))
        with self.log.open("a") as output:
            if self.lab is None:
                self.process = subprocess.Popen(line, stderr=output, text=True)
            else:
                self.process = self.lab.popen(self.node, line, stdout=output, stderr=output)
        until(self._answers, f"the {self.role} answers")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            self.get()
        except LabError:
            return False
        return True

    def __enter__(self) -> Self:
        """Starts it."""
        self.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Ends it."""
        self.stop()

    def get(self) -> dict[str, Any]:
        """Its state."""
        return linkem.command(self.socket, command="get")

    def stop(self) -> None:
        """Ends it in good order."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(10)
            self.process = None

    def established(self) -> int:
        """How many connections are up."""
        return int(self.get()["gauges"]["connections_established"])
