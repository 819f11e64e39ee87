"""One of two replicas is killed under a flow: the agents ask the other one, keys go on rotating, nothing is refused."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.network import Lab
from support.authority import empty
from support.authority_lab import World
from support.postgres import PostgresServer
from support.signals import Flow
from support.waiting import poll

pytestmark = pytest.mark.lab

NODES = ("alpha", "bravo")


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    empty(postgres)
    with Lab(topology.load("two-node"), f"r{secrets.token_hex(3)}", state_dir=tmp_path / "labs") as lab:
        world = World(lab, postgres, tmp_path, life_s=9, lead_s=3)
        try:
            yield world
        finally:
            world.stop()


def test_agents_go_on_with_the_next_replica(place: World) -> None:
    first = place.start_authority()
    place.start_authority()
    for name in NODES:
        place.start_agent(name)
    place.introduce(*NODES)
    flow = Flow(place.lab, seconds=90)
    try:
        for name in NODES:
            assert poll(lambda name=name: place.count(name, "accepted") > 3, limit_s=30), place.logs()  # type: ignore[misc]
        before = {name: place.refused(name) for name in NODES}
        known = place.generation()
        first.kill()
        # Three renewals: whatever the agents knew before has ended by then.
        assert poll(lambda: place.generation() >= known + 3, limit_s=30), place.logs()
        accepted = place.count("bravo", "accepted")
        assert poll(lambda: place.count("bravo", "accepted") > accepted + 5, limit_s=15), place.logs()
        assert {name: place.refused(name) - before[name] for name in NODES} == dict.fromkeys(NODES, 0)
    finally:
        flow.close()
