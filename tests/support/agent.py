"""chart-agent on a node of a lab, for tests: rate file, start, status."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from chart_lab.network import Lab
from chart_lab.programs import program
from support.waiting import poll

AGENT = "dataplane/chart-agent"
PORT = 5201


class Node:
    """An agent on a node of a lab, fed by a rate file."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.name = lab, name
        self.directory = lab.node_directory(name)
        self.rates = self.directory / "rates.json"
        self.process: subprocess.Popen[str] | None = None
        # An agent keeps its mode over a restart; what an earlier test told this node is not meant for this one.
        (self.directory / "enforcement").unlink(missing_ok=True)

    def command(self, *words: str) -> list[str]:
        """The command line of chart-agent on this node."""
        return [str(program(AGENT)), "--state-dir", str(self.directory), *words]

    def grant(self, *rates_bps: int, enforcement: str = "enforce", valid_for_ms: int = 0) -> None:
        """States one grant per rate in the rate file, replacing the file at once; they match all TCP from here."""
        grants = [
            {
                "request_id": f"g{index}",
                "selector": {"protocol": "tcp", "destination_port": PORT},
                "available_bps": rate_bps,
                "valid_for_ms": valid_for_ms,
            }
            for index, rate_bps in enumerate(rates_bps)
        ]
        fresh = self.rates.with_suffix(".new")
        fresh.write_text(json.dumps({"enforcement": enforcement, "grants": grants}))
        fresh.rename(self.rates)

    def start(self, *options: str) -> None:
        """Starts the agent, with more options of its command line perhaps, and waits until it answers."""
        cgroup = str(self.lab.node_cgroup(self.name))
        command = self.command("--node", self.name, "--cgroup", cgroup, "--rate-file", str(self.rates), *options)
        log = (self.directory / "agent.log").open("w")
        self.process = self.lab.popen(self.name, command, stdout=log, stderr=log)
        log.close()
        answered = poll(lambda: self.run("--status").returncode, lambda code: code == 0, 10)
        assert answered == 0, (self.directory / "agent.log").read_text()

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a chart-agent command to its end."""
        return self.lab.exec(self.name, self.command(*words), check=False)

    def status(self) -> dict[str, Any]:
        """What the agent says it does."""
        told: dict[str, Any] = json.loads(self.run("--status", "--json").stdout)
        return told

    def stop(self) -> None:
        """Ends the agent in order, when it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=10)
