"""An authority and agents in the lab. The authority runs in alpha's namespace, so that others reach it over the links
under test; its database is on the host, reached by a unix socket.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from chart.lab.network import Lab
from chart.lab.programs import program
from support.agent import AGENT
from support.postgres import PostgresServer
from support.signals import PORT, wait_until

LINK_BPS = 100_000_000


class World:
    """Nodes with agents, an authority on alpha, and what an operator does by curl."""

    def __init__(
        self, lab: Lab, postgres: PostgresServer, folder: Path, *, life_s: float = 6.0, lead_s: float = 1.0
    ) -> None:
        self.lab, self.folder = lab, folder
        self.life_s, self.lead_s = life_s, lead_s
        self.state = folder / "authority-state"
        self.state.mkdir()
        self.address = lab.address("alpha")
        self.url = f"https://{self.address}:18443"
        sockets = postgres.settings.platform_dir / "postgres" / "sockets"
        self.database = f"postgresql://authority@/chart?host={sockets}&port={postgres.settings.postgres_port}"
        self.processes: list[subprocess.Popen[str]] = []

    def start_authority(self) -> None:
        environment = {
            "CHART_KAFKA_BOOTSTRAP": "local:",
            "CHART_DATABASE_URL": self.database,
            "CHART_STATE_DIR": str(self.state),
            "CHART_AUTHORITY_LISTEN": f"{self.address}:18443",
            "CHART_HTTP_LISTEN": "127.0.0.1:18499",
            "CHART_AUTHORITY_KEY_LIFE_S": str(self.life_s),
            "CHART_AUTHORITY_KEY_LEAD_S": str(self.lead_s),
        }
        words = [f"{name}={value}" for name, value in environment.items()]
        executable = str(Path(sys.executable).parent / "chart-authority")
        self._start("alpha", ["env", *words, executable], "authority.log")
        operator = self.state / "authority" / "identities" / "user-operator.pem"
        assert wait_until(operator.exists, 20), (self.folder / "authority.log").read_text()[-2000:]

    def _start(self, node: str, command: list[str], log: str) -> None:
        with (self.folder / log).open("w") as file:
            self.processes.append(self.lab.popen(node, command, stdout=file, stderr=file))

    def operator(self, method: str, path: str, body: dict[str, Any]) -> Any:
        identity = self.state / "authority" / "identities" / "user-operator"
        command = [
            "curl", "-sS", "--max-time", "10", "--cacert", str(self.state / "authority" / "ca.pem"),
            "--cert", f"{identity}.pem", "--key", f"{identity}.key", "-X", method,
            "-H", "Content-Type: application/json", "-d", json.dumps(body), self.url + path,
        ]  # fmt: skip
        done = self.lab.exec("alpha", command)
        return json.loads(done.stdout) if done.stdout else None

    def start_agent(self, name: str) -> None:
        directory = self.lab.node_directory(name)
        token = self.operator("POST", "/v1/enrolments", {"identity": f"node/{name}"})["token"]
        (directory / "token").write_text(token)
        (directory / "token").chmod(0o600)
        asks = {"asks": [{"selector": {"protocol": "tcp", "destination_port": PORT}, "available_bps": LINK_BPS,
                          "service": "available"}]}  # fmt: skip
        (directory / "signals.json").write_text(json.dumps(asks))
        links = [(link, link.partition(":")[2]) for link in self.lab.links_of(name)]
        command = [
            str(program(AGENT)), "--node", name, "--state-dir", str(directory),
            "--cgroup", str(self.lab.node_cgroup(name)), "--signal-file", str(directory / "signals.json"),
            *(word for link, interface in links for word in ("--link", f"{link}={interface}:{LINK_BPS}")),
            "--authority", self.url, "--authority-ca", str(self.state / "authority" / "ca.pem"),
            "--enrolment-token-file", str(directory / "token"),
        ]  # fmt: skip
        self._start(name, command, f"agent-{name}.log")

    def status(self, name: str) -> dict[str, Any]:
        command = [str(program(AGENT)), "--state-dir", str(self.lab.node_directory(name)), "--status", "--json"]
        done = self.lab.exec(name, command, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def keys(self, name: str) -> int:
        return int(self.status(name).get("authority", {}).get("keys", 0))

    def count(self, name: str, *counters: str) -> int:
        found = self.status(name).get("signalling", {}).get("counters", {})
        return sum(int(found.get(one, 0)) for one in counters)

    def logs(self) -> str:
        return "\n".join(file.read_text()[-1500:] for file in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(15)
