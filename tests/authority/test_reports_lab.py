"""A next hop that is wrong heals: alpha signs for bravo what mid must read, mid reports it, alpha learns."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab.experiments.signal_lab import line_topology
from chart_lab.network import Lab
from support.authority import empty
from support.authority_lab import World
from support.postgres import PostgresServer
from support.signals import Flow
from support.waiting import poll

pytestmark = pytest.mark.lab


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    empty(postgres)
    topology = line_topology(("alpha", "mid", "bravo"), rate_mbit=100, delay_ms=5)
    with Lab(topology, f"h{secrets.token_hex(3)}", state_dir=tmp_path / "labs") as lab:
        # Long lives: nothing rotates in this test.
        world = World(lab, postgres, tmp_path, life_s=120, lead_s=5)
        try:
            world.start_authority()
            for name in ("alpha", "mid", "bravo"):
                world.start_agent(name)
            yield world
        finally:
            world.stop()


def test_a_wrong_next_hop_heals_by_a_report(place: World) -> None:
    addresses = {name: place.lab.address(name) for name in ("alpha", "mid", "bravo")}
    wide = f"{addresses['bravo'].rsplit('.', 1)[0]}.0/24"
    entries = [
        ("alpha", f"{addresses['mid']}/32", "mid"),
        # Wrong: what goes to bravo passes mid first.
        ("alpha", wide, "bravo"),
        ("mid", f"{addresses['alpha']}/32", "alpha"),
        ("mid", f"{addresses['bravo']}/32", "bravo"),
        ("bravo", f"{addresses['alpha']}/32", "mid"),
    ]
    for element, prefix, via in entries:
        place.operator("PUT", "/v1/next-hops", {"element": element, "prefix": prefix, "next_element": via})
    for name, keys in (("alpha", 3), ("mid", 4), ("bravo", 3)):
        assert poll(lambda name=name, keys=keys: place.keys(name) >= keys, limit_s=20), place.logs()  # type: ignore[misc]
    flow = Flow(place.lab, seconds=60)
    try:
        assert poll(lambda: place.status("mid").get("authority", {}).get("reports_healed", 0) >= 1, limit_s=30), (
            place.status("mid"), place.logs(),
        )  # fmt: skip
        before = place.count("mid", "accepted")
        assert poll(lambda: place.count("mid", "accepted") > before + 2, limit_s=15), place.status("mid")
        assert poll(lambda: place.count("bravo", "accepted") > 2, limit_s=15), place.status("bravo")
    finally:
        flow.close()
