"""The authority goes away for longer than its keys live, and comes back: flows never stop, and what is known
of it is said.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chart_lab import topology
from chart_lab.network import Lab
from support.authority import empty
from support.authority_lab import World
from support.postgres import PostgresServer
from support.signals import PORT, Flow
from support.waiting import poll

pytestmark = pytest.mark.lab

NODES = ("alpha", "bravo")
LIFE_S = 6.0


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    empty(postgres)
    with Lab(topology.load("two-node"), f"w{secrets.token_hex(3)}", state_dir=tmp_path / "labs") as lab:
        world = World(lab, postgres, tmp_path, life_s=LIFE_S)
        try:
            yield world
        finally:
            world.stop()


def told(place: World, name: str) -> dict[str, Any]:
    """What an agent says of the authority."""
    found: dict[str, Any] = place.status(name).get("authority", {})
    return found


def acknowledged_bytes(place: World) -> int:
    """Of alpha's flow to bravo."""
    shown = place.lab.exec("alpha", ["ss", "-Htin", "state", "established", "dport", "=", f":{PORT}"]).stdout
    found = re.search(r"bytes_acked:(\d+)", shown)
    return int(found[1]) if found else 0


def test_flows_go_on_without_the_authority_and_all_comes_back(place: World) -> None:
    first = place.start_authority()
    for name in NODES:
        place.start_agent(name)
    place.introduce(*NODES)
    flow = Flow(place.lab, seconds=120)
    try:
        for name in NODES:
            assert poll(lambda name=name: place.count(name, "accepted") > 3, limit_s=30), place.logs()  # type: ignore[misc]
        first.kill()
        first.wait(10)
        # The keys end; each agent says so, and nothing is signed any more.
        for name in NODES:
            assert poll(lambda name=name: not told(place, name)["records_signed"], limit_s=3 * LIFE_S), place.logs()  # type: ignore[misc]
            assert told(place, name)["enrolled"]
            assert "connect" in told(place, name)["error"].lower(), told(place, name)
        ended = "the last key has ended"
        assert poll(lambda: place.logs().count(ended) >= len(NODES), limit_s=LIFE_S), place.logs()
        quiet = place.count("bravo", "accepted")
        acknowledged = acknowledged_bytes(place)
        assert poll(lambda: acknowledged_bytes(place) > acknowledged, limit_s=10), "the flow stands still"
        assert place.count("bravo", "accepted") <= quiet + 1
        # It comes back where it was.
        place.urls.clear()
        place.start_authority()
        for name in NODES:
            assert poll(lambda name=name: told(place, name)["records_signed"], limit_s=60), place.logs()  # type: ignore[misc]
            assert poll(lambda name=name: told(place, name)["error"] == "", limit_s=30), told(place, name)  # type: ignore[misc]
        assert poll(lambda: place.count("bravo", "accepted") > quiet + 3, limit_s=30), place.logs()
    finally:
        flow.close()
