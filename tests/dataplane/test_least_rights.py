"""Agents of one kernel with exactly three capabilities from their start, as containers have: they share trinity.

They cannot find each other's programs by id (that needs CAP_SYS_ADMIN), so the descriptors are handed from one to the
other (dataplane/agent/grants/trinity_share.h).
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab.network import Lab
from support.agent import PORT, Node
from support.waiting import until

pytestmark = pytest.mark.lab

CAPABILITIES = (1 << 12) | (1 << 38) | (1 << 39)  # NET_ADMIN, PERFMON, BPF
LEAST = ("setpriv", "--bounding-set", "-all,+bpf,+perfmon,+net_admin", "--inh-caps", "-all", "--ambient-caps", "-all")
RATE_BPS = 20_000_000
SOURCE = f"""
import socket
listener = socket.create_server(("127.0.0.1", {PORT}))
connection = socket.create_connection(("127.0.0.1", {PORT}))
other, _ = listener.accept()
while True:
    connection.sendall(bytes(1000))
    other.recv(1000)
"""


class Contained(Node):
    """An agent that never had more than the three."""

    def command(self, *words: str) -> list[str]:
        return [*LEAST, *super().command(*words)]

    def rights(self) -> dict[str, int]:
        """What the running agent is permitted, uses and could get."""
        assert self.process is not None
        text = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return {name: int(value, 16) for name, value in re.findall(r"^Cap(Prm|Eff|Bnd|Amb):\s*(\w+)", text, re.M)}


@pytest.fixture
def agents(lab: Lab) -> Iterator[tuple[Contained, Contained]]:
    pair = (Contained(lab, "alpha"), Contained(lab, "bravo"))
    for agent in pair:
        agent.grant(RATE_BPS)
    yield pair
    for agent in pair:
        agent.stop()


def on_trinity(lab: Lab, agent: Contained) -> None:
    """A flow of this node gets its rate."""
    source = lab.popen(agent.name, ["/usr/bin/python3", "-c", SOURCE], stdout=subprocess.DEVNULL)
    try:
        until(
            lambda: [flow["congestion_control"] for flow in agent.status()["flows"] if flow["rate_bps"] == RATE_BPS],
            f"a flow of {agent.name} runs at its rate",
            10,
        )
    finally:
        source.kill()
        source.wait()


def test_two_agents_with_three_capabilities_share_trinity(lab: Lab, agents: tuple[Contained, Contained]) -> None:
    first, second = agents
    first.start()
    second.start()
    for agent in agents:
        assert agent.rights() == {"Prm": CAPABILITIES, "Eff": CAPABILITIES, "Bnd": CAPABILITIES, "Amb": 0}
    on_trinity(lab, first)
    on_trinity(lab, second)


def test_trinity_outlives_the_agent_that_registered_it_and_its_dead_socket_harms_nobody(
    lab: Lab, agents: tuple[Contained, Contained]
) -> None:
    first, second = agents
    first.start()
    second.start()
    assert first.process is not None
    first.process.kill()
    first.process.wait()
    on_trinity(lab, second)
    # It joins the one that the other agent holds.
    first.start()
    on_trinity(lab, first)
