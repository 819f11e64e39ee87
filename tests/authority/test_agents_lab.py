"""Real agents and a real authority in the lab: enrolment, keys in the kernel, rotation and revocation under a flow.

The authority runs in alpha's namespace, so that bravo reaches it over the link under test; its database is on the host,
reached by a unix socket.
"""

from __future__ import annotations

import secrets
import time
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

LIFE_S = 6.0
# Keys rotate every three seconds: three rotations, and twenty.
ROTATIONS_S = (10.0, pytest.param(62.0, marks=pytest.mark.slow))


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    empty(postgres)
    with Lab(topology.load("two-node"), f"a{secrets.token_hex(3)}", state_dir=tmp_path / "labs") as lab:
        world = World(lab, postgres, tmp_path, life_s=LIFE_S)
        try:
            world.start_authority()
            for name in ("alpha", "bravo"):
                world.start_agent(name)
            world.introduce("alpha", "bravo")
            yield world
        finally:
            world.stop()


@pytest.mark.parametrize("rotation_s", ROTATIONS_S)
def test_keys_rotate_while_a_flow_runs_and_a_revoked_node_is_cut_off(place: World, rotation_s: float) -> None:
    for name in ("alpha", "bravo"):
        assert poll(lambda name=name: place.keys(name) >= 2, limit_s=20), place.logs()  # type: ignore[misc]
        directory = place.lab.node_directory(name)
        assert {(directory / file).stat().st_mode & 0o777 for file in ("node.key", "node.pem")} == {0o600}
    flow = Flow(place.lab, seconds=rotation_s + 30)
    try:
        for name in ("alpha", "bravo"):
            assert poll(lambda name=name: place.count(name, "accepted") > 3, limit_s=15), place.logs()  # type: ignore[misc]
        # What came before both ends had the same keys does not count.
        before = {name: place.refused(name) for name in ("alpha", "bravo")}
        accepted, first = place.count("bravo", "accepted"), place.generation()
        end = time.monotonic() + rotation_s
        assert poll(lambda: time.monotonic() > end, limit_s=rotation_s + 1)
        made = place.generation() - first
        assert made >= rotation_s // (LIFE_S / 2) - 1
        assert place.count("bravo", "accepted") > accepted + 5
        refused = {name: place.refused(name) - before[name] for name in ("alpha", "bravo")}
        assert refused == {"alpha": 0, "bravo": 0}, (place.status("alpha"), place.status("bravo"))
        # Revocation: the node itself and its neighbour drop the keys.
        began = time.monotonic()
        place.operator("POST", "/v1/revocations", {"identity": "node/bravo"})
        assert poll(lambda: place.keys("alpha") == 0 and place.keys("bravo") == 0, limit_s=10), place.logs()
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
