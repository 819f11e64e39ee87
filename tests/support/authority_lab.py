"""An authority and agents in the lab. The authority runs in alpha's namespace, so that others reach it over the links
under test; its database is on the host, reached by a unix socket.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from chart_lab.network import Lab
from chart_lab.programs import program
from support.agent import AGENT
from support.postgres import PostgresServer
from support.signals import PORT
from support.waiting import poll

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
        # Of the replica that was started last; agents know all of them.
        self.url = ""
        self.urls: list[str] = []
        sockets = postgres.settings.platform_dir / "postgres" / "sockets"
        self.database = f"postgresql://authority@/chart?host={sockets}&port={postgres.settings.postgres_port}"
        self.processes: list[subprocess.Popen[str]] = []

    def start_authority(self) -> subprocess.Popen[str]:
        """One more replica; they share database and key store."""
        number = len(self.urls)
        listen = f"{self.address}:{18443 + number}"
        environment = {
            "CHART_KAFKA_BOOTSTRAP": "local:",
            "CHART_DATABASE_URL": self.database,
            "CHART_STATE_DIR": str(self.state),
            "CHART_AUTHORITY_LISTEN": listen,
            "CHART_HTTP_LISTEN": f"127.0.0.1:{18499 + number}",
            "CHART_AUTHORITY_KEY_LIFE_S": str(self.life_s),
            "CHART_AUTHORITY_KEY_LEAD_S": str(self.lead_s),
        }
        words = [f"{name}={value}" for name, value in environment.items()]
        executable = str(Path(sys.executable).parent / "chart-authority")
        log = f"authority-{number}.log"
        process = self._start("alpha", ["env", *words, executable], log)
        self.url = f"https://{listen}"
        self.urls.append(self.url)
        operator = self.state / "authority" / "identities" / "user-operator.pem"
        listens = "the authority listens"
        assert poll(lambda: operator.exists() and listens in (self.folder / log).read_text(), limit_s=20), self.logs()
        return process

    def _start(self, node: str, command: list[str], log: str) -> subprocess.Popen[str]:
        with (self.folder / log).open("w") as file:
            process = self.lab.popen(node, command, stdout=file, stderr=file)
        self.processes.append(process)
        return process

    def operator(self, method: str, path: str, body: dict[str, Any]) -> Any:
        identity = self.state / "authority" / "identities" / "user-operator"
        command = [
            "curl", "-sS", "--max-time", "10", "--cacert", str(self.state / "authority" / "ca.pem"),
            "--cert", f"{identity}.pem", "--key", f"{identity}.key", "-X", method,
            "-H", "Content-Type: application/json", "-d", json.dumps(body), self.url + path,
        ]  # fmt: skip
        done = self.lab.exec("alpha", command)
        return json.loads(done.stdout) if done.stdout else None

    def introduce(self, one: str, other: str) -> None:
        """Each of two neighbours reaches the other without anybody between."""
        for here, there in ((one, other), (other, one)):
            body = {"element": here, "prefix": f"{self.lab.address(there)}/32", "next_element": there}
            self.operator("PUT", "/v1/next-hops", body)

    def start_agent(self, name: str, *, rules: bool = True) -> subprocess.Popen[str]:
        """Enrols the node when it is not, and starts its agent. `rules`: a signal file asks for all TCP to PORT;
        without, the authority's tables are all there is. A rate file says the mode (`set_mode`), enforce at first."""
        directory = self.lab.node_directory(name)
        if not (directory / "token").exists():
            token = self.operator("POST", "/v1/enrolments", {"identity": f"node/{name}"})["token"]
            (directory / "token").write_text(token)
            (directory / "token").chmod(0o600)
        asks = {"asks": [{"selector": {"protocol": "tcp", "destination_port": PORT}, "available_bps": LINK_BPS,
                          "service": "available"}]}  # fmt: skip
        (directory / "signals.json").write_text(json.dumps(asks))
        if not (directory / "rates.json").exists():
            self.set_mode(name, "enforce")
        links = [(link, link.partition(":")[2]) for link in self.lab.links_of(name)]
        command = [
            str(program(AGENT)), "--node", name, "--state-dir", str(directory),
            "--cgroup", str(self.lab.node_cgroup(name)),
            *(("--signal-file", str(directory / "signals.json")) if rules else ()),
            "--rate-file", str(directory / "rates.json"),
            *(word for link, interface in links for word in ("--link", f"{link}={interface}:{LINK_BPS}")),
            "--authority", ",".join(self.urls), "--authority-ca", str(self.state / "authority" / "ca.pem"),
            "--enrolment-token-file", str(directory / "token"),
        ]  # fmt: skip
        return self._start(name, command, f"agent-{name}.log")

    def set_mode(self, name: str, mode: str) -> None:
        """The mode that the node's rate file says."""
        file = self.lab.node_directory(name) / "rates.json"
        fresh = file.with_suffix(".new")
        fresh.write_text(json.dumps({"enforcement": mode, "grants": []}))
        fresh.rename(file)

    def switch(self, name: str, option: str) -> None:
        """`chart-agent --off` or `--on`."""
        self.lab.exec(name, [str(program(AGENT)), "--state-dir", str(self.lab.node_directory(name)), option])

    def status(self, name: str) -> dict[str, Any]:
        command = [str(program(AGENT)), "--state-dir", str(self.lab.node_directory(name)), "--status", "--json"]
        done = self.lab.exec(name, command, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def keys(self, name: str) -> int:
        return int(self.status(name).get("authority", {}).get("keys", 0))

    def generation(self) -> int:
        """Of the newest epoch of alpha > bravo, asked of the replica that was started last."""
        identity = self.lab.node_directory("alpha")
        command = [
            "curl", "-sS", "--max-time", "5", "--cacert", str(self.state / "authority" / "ca.pem"),
            "--cert", str(identity / "node.pem"), "--key", str(identity / "node.key"),
            f"{self.url}/v1/keys/alpha/bravo",
        ]  # fmt: skip
        return max(int(one["generation"]) for one in json.loads(self.lab.exec("alpha", command).stdout)["epochs"])

    def count(self, name: str, *counters: str) -> int:
        found = self.status(name).get("signalling", {}).get("counters", {})
        return sum(int(found.get(one, 0)) for one in counters)

    def refused(self, name: str) -> int:
        """Signals that a node did not believe."""
        return self.count(name, "bad_tag", "unknown_epoch", "too_old", "replayed", "over_budget")

    def logs(self) -> str:
        return "\n".join(file.read_text()[-1500:] for file in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            process.wait(15)
