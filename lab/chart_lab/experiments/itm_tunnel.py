"""Both ends of a chart-tunnel in a lab, and talking to them over their control sockets (dataplane/tunnel/control.h).

The destination has a user's address on its lo, and the origin routes that address into the tunnel; answers go back over
the lab's ordinary routes.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chart.common.processes import end_process
from chart_lab import linkem
from chart_lab.errors import LabError
from chart_lab.network import Lab
from chart_lab.programs import program

PORT = 7400
DEVICE = "chart-itm0"
USER_ADDRESS = "172.20.0.2"
USER_ADDRESS_V6 = "fd20::2"
ORIGIN_ADDRESS_V6 = "fd20::1"
START_TIMEOUT_S = 10.0
TRAFFIC = Path(__file__).with_name("itm_traffic.py")


class Tunnel:
    """A tunnel between two nodes; as a context manager it runs from entry to exit."""

    def __init__(
        self,
        lab: Lab,
        origin: str,
        destination: str,
        *,
        origin_options: Sequence[str] = (),
        destination_options: Sequence[str] = (),
    ) -> None:
        self.lab = lab
        self.nodes = {"origin": origin, "destination": destination}
        self.options = {"origin": list(origin_options), "destination": list(destination_options)}
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def socket(self, role: str) -> Path:
        """The control socket of an end."""
        return self.lab.runtime_directory / f"itm-{role}.sock"

    def __enter__(self) -> Self:
        """Starts the destination, then the origin, and routes the user's addresses."""
        try:
            for role in ("destination", "origin"):
                self.start(role)
            await_state(lambda: self.get()["connections"]["established"] >= 1, "the tunnel's first connection")
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Ends both."""
        self.close()

    def start(self, role: str) -> None:
        """Starts one end and sets its addresses and routes; raises LabError with what it said when it ends at once."""
        node = self.nodes[role]
        listen = f"{self.lab.address(self.nodes['destination'])}:{PORT}"
        own = ["--listen", listen] if role == "destination" else ["--destination", listen]
        if role == "origin":
            own += ["--bind", self.lab.address(node)]
        else:
            own += ["--peer", self.lab.address(self.nodes["origin"])]
        command = [str(program("dataplane/chart-tunnel")), role, *own, "--control", str(self.socket(role))]
        log = self.lab.node_directory(node) / f"chart-tunnel-{role}.log"
        with log.open("a") as output:
            process = self.lab.popen(
                node, [*command, "--tun", DEVICE, *self.options[role]], stdout=output, stderr=output
            )
        self.processes[role] = process
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            if process.poll() is not None:
                raise LabError(f"the tunnel's {role} ended: {log.read_text().strip()[-500:]}")
            try:
                self.get(role)
                break
            except LabError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.01)
        self._route(role)

    def _route(self, role: str) -> None:
        if role == "destination":
            self.lab.exec(self.nodes[role], ["ip", "address", "replace", f"{USER_ADDRESS}/32", "dev", "lo"])
            self.lab.exec(self.nodes[role], ["ip", "-6", "address", "replace", f"{USER_ADDRESS_V6}/128", "dev", "lo"])
            return
        node = self.nodes[role]
        source = self.lab.address(node)
        self.lab.exec(node, ["ip", "-6", "address", "replace", f"{ORIGIN_ADDRESS_V6}/128", "dev", "lo"])
        self.lab.exec(node, ["ip", "route", "replace", USER_ADDRESS, "dev", DEVICE, "src", source])
        self.lab.exec(node, ["ip", "-6", "route", "replace", USER_ADDRESS_V6, "dev", DEVICE, "src", ORIGIN_ADDRESS_V6])

    def get(self, role: str = "origin") -> dict[str, Any]:
        """State of an end."""
        return linkem.command(self.socket(role), command="get")

    def set(self, **members: object) -> None:
        """Changes connections (with lease_ms) or weights at the origin. Raises LabError when it refuses."""
        linkem.command(self.socket("origin"), command="set", **members)

    def command(self, role: str, **members: object) -> dict[str, Any]:
        """Any command to an end. Raises LabError when it refuses."""
        return linkem.command(self.socket(role), **members)

    def kill(self, role: str) -> None:
        """Ends one end without warning (SIGKILL)."""
        process = self.processes.pop(role)
        process.kill()
        process.wait()

    def close(self) -> None:
        """Ends both ends, the origin first."""
        for role in ("origin", "destination"):
            process = self.processes.pop(role, None)
            if process is not None:
                end_process(process)


def traffic(lab: Lab, node: str, role: str, *arguments: str) -> subprocess.Popen[str]:
    """Starts itm_traffic.py in a node; those that listen are ready on return."""
    process = lab.popen(node, [sys.executable, "-u", str(TRAFFIC), role, *arguments], stdin=subprocess.PIPE)
    if role in {"sink", "count"}:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise LabError(f"{role} in node {node} does not start")
    return process


def finish(process: subprocess.Popen[str]) -> str:
    """Closes the input of a traffic program and returns what it says at its end."""
    try:
        output, _ = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return output


def await_state(reached: Any, what: str, limit_s: float = START_TIMEOUT_S) -> None:
    """Polls until reached() is true; raises LabError after limit_s."""
    deadline_s = time.monotonic() + limit_s
    while not reached():
        if time.monotonic() > deadline_s:
            raise LabError(f"{what} did not come within {limit_s:g} s")
        time.sleep(0.02)
