"""Agents start anew, as an upgrade does it: flows that begin at once afterwards get their rates.

An agent that starts has new epochs of its keys made, for both directions. A neighbour that sees an epoch unknown to it
asks for the keys at once; so does one that signs with an epoch that the started agent refuses, when its flow's second
request stays without an answer. A flow asks six times within 1.2 s, and then again after 10 s.
"""

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
from support.signals import Flow, control_of
from support.waiting import poll

pytestmark = pytest.mark.lab

NODES = ("alpha", "bravo")
CONTROL = "trinity"
# Within the first tries of a flow: after those it would ask again only 10 s later.
RATE_LIMIT_S = 5.0


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    empty(postgres)
    with Lab(topology.load("two-node"), f"r{secrets.token_hex(3)}", state_dir=tmp_path / "labs") as lab:
        world = World(lab, postgres, tmp_path, life_s=3600.0, lead_s=15.0)
        try:
            world.start_authority()
            yield world
        finally:
            world.stop()


def takes_part(place: World, name: str) -> bool:
    """A node knows its next hops, and whom it may believe; its keys may still be on their way."""
    authority = place.status(name).get("authority", {})
    return bool(authority.get("next_hops") and authority.get("element"))


def silence(place: World) -> str:
    """What alpha says of neighbours that answer nothing; empty: all do."""
    return str(place.status("alpha")["authority"]["silence"])


def flow_gets_its_rate(place: World) -> bool:
    """A flow that begins now is at CHART's control soon."""
    flow = Flow(place.lab)
    try:
        return poll(lambda: control_of(place.lab) == CONTROL, limit_s=RATE_LIMIT_S)
    finally:
        flow.close()


def test_flows_get_their_rates_right_after_an_agent_of_either_end_started_anew(place: World) -> None:
    agents = {name: place.start_agent(name) for name in NODES}
    place.introduce(*NODES)
    for name in NODES:
        assert poll(lambda name=name: place.keys(name) >= 2, limit_s=20), place.logs()  # type: ignore[misc]
    assert flow_gets_its_rate(place), place.logs()
    for name in ("alpha", "bravo", "alpha", "bravo"):
        agents[name].terminate()
        agents[name].wait(15)
        agents[name] = place.start_agent(name)
        assert poll(lambda name=name: takes_part(place, name), limit_s=20), place.logs()  # type: ignore[misc]
        before = {one: place.refused(one) for one in NODES}
        told = f"{name} started anew: {before}"
        assert flow_gets_its_rate(place), f"{told}, {[place.status(one) for one in NODES]}\n{place.logs()}"


def test_a_neighbour_that_answers_no_signals_is_named_until_it_answers(place: World) -> None:
    """Bravo's agent is gone, as behind a firewall that lets no signals pass: the flow goes on, alpha says it."""
    agents = {name: place.start_agent(name) for name in NODES}
    place.introduce(*NODES)
    for name in NODES:
        assert poll(lambda name=name: place.keys(name) >= 2, limit_s=20), place.logs()  # type: ignore[misc]
    assert flow_gets_its_rate(place), place.logs()
    assert silence(place) == ""
    agents["bravo"].terminate()
    agents["bravo"].wait(15)
    flow = Flow(place.lab)
    try:
        assert poll(lambda: silence(place) != "", limit_s=30), place.logs()
        assert "bravo answers no signals since" in silence(place)
        assert control_of(place.lab) != CONTROL
        place.start_agent("bravo")
        assert poll(lambda: silence(place) == "" and control_of(place.lab) == CONTROL, limit_s=40), place.logs()
    finally:
        flow.close()
