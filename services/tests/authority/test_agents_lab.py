"""Real agents and a real authority in the lab: enrolment, keys in the kernel, rotation and revocation under a flow.

The authority runs in alpha's namespace, so that bravo reaches it over the link under test; its database is on the host,
reached by a unix socket.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.agent import AGENT
from support.authority import empty
from support.postgres import PostgresServer
from support.signals import PORT, Flow, wait_until

from chart.lab import topology
from chart.lab.network import Lab
from chart.lab.programs import program

pytestmark = [pytest.mark.lab, pytest.mark.timeout(200)]

LINK_BPS = 100_000_000
LIFE_S = 6.0
LEAD_S = 1.0
REFUSED = ("bad_tag", "unknown_epoch", "too_old", "replayed")


class World:
    """Two nodes with agents, an authority on alpha, and what an operator does by curl."""

    def __init__(self, lab: Lab, postgres: PostgresServer, folder: Path) -> None:
        self.lab, self.folder = lab, folder
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
            "CHART_AUTHORITY_KEY_LIFE_S": str(LIFE_S),
            "CHART_AUTHORITY_KEY_LEAD_S": str(LEAD_S),
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
        interface = self.lab.links_of(name)[0].partition(":")[2]
        command = [
            str(program(AGENT)), "--node", name, "--state-dir", str(directory),
            "--cgroup", str(self.lab.node_cgroup(name)), "--signal-file", str(directory / "signals.json"),
            "--link", f"{name}:{interface}={interface}:{LINK_BPS}",
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


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    empty(postgres)
    with Lab(topology.load("two-node"), f"a{secrets.token_hex(3)}", state_dir=tmp_path / "labs") as lab:
        world = World(lab, postgres, tmp_path)
        try:
            world.start_authority()
            for name in ("alpha", "bravo"):
                world.start_agent(name)
            addresses = {name: f"{lab.address(name)}/32" for name in ("alpha", "bravo")}
            for here, there in (("alpha", "bravo"), ("bravo", "alpha")):
                body = {"element": here, "prefix": addresses[there], "next_element": there}
                world.operator("PUT", "/v1/next-hops", body)
            yield world
        finally:
            world.stop()


def rotations(world: World, first: int) -> int:
    """Epochs of alpha > bravo since one."""
    identity = world.lab.node_directory("alpha")
    command = [
        "curl", "-sS", "--max-time", "5", "--cacert", str(world.state / "authority" / "ca.pem"),
        "--cert", str(identity / "node.pem"), "--key", str(identity / "node.key"), f"{world.url}/v1/keys/alpha/bravo",
    ]  # fmt: skip
    found = json.loads(world.lab.exec("alpha", command).stdout)
    return max(int(one["generation"]) for one in found["epochs"]) - first


@pytest.mark.slow  # one signal of a rotation may be refused: docs/security.md, "What is open"
def test_keys_rotate_while_a_flow_runs_and_a_revoked_node_is_cut_off(place: World) -> None:
    for name in ("alpha", "bravo"):
        assert wait_until(lambda name=name: place.keys(name) >= 2, 20), place.logs()  # type: ignore[misc]
        directory = place.lab.node_directory(name)
        assert {(directory / file).stat().st_mode & 0o777 for file in ("node.key", "node.pem")} == {0o600}
    seconds = float(os.environ.get("CHART_ROTATION_SECONDS", "15"))
    flow = Flow(place.lab, seconds=seconds + 30)
    try:
        assert wait_until(lambda: place.count("bravo", "accepted") > 3, 15), place.logs()
        # What came before both ends had the same keys does not count.
        before = {name: place.count(name, *REFUSED) for name in ("alpha", "bravo")}
        accepted, first = place.count("bravo", "accepted"), rotations(place, 0)
        end = time.monotonic() + seconds
        assert wait_until(lambda: time.monotonic() > end, seconds + 1)
        made = rotations(place, first)
        assert made >= seconds // (LIFE_S / 2) - 1
        assert place.count("bravo", "accepted") > accepted + 5
        refused = {name: place.count(name, *REFUSED) - before[name] for name in ("alpha", "bravo")}
        assert refused == {"alpha": 0, "bravo": 0}, (place.status("alpha"), place.status("bravo"))
        # Revocation: the node itself and its neighbour drop the keys.
        began = time.monotonic()
        place.operator("POST", "/v1/revocations", {"identity": "node/bravo"})
        assert wait_until(lambda: place.keys("alpha") == 0 and place.keys("bravo") == 0, 10), place.logs()
        assert time.monotonic() - began < 10
        assert place.status("bravo")["authority"]["revoked"]
    finally:
        flow.close()
    # No key, token or private key stands in a log.
    said = place.logs()
    for name in ("alpha", "bravo"):
        directory = place.lab.node_directory(name)
        assert (directory / "token").read_text() not in said
        assert "PRIVATE" not in said
