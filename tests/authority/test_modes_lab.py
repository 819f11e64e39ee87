"""Agents with an authority and no signal file agree on rates in band wherever they enforce, and touch no packet in the
modes off and observe; a restarted agent goes on in its mode."""

from __future__ import annotations

import secrets
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.network import Lab
from chart_lab.programs import program
from support.authority import empty
from support.authority_lab import World
from support.postgres import PostgresServer
from support.waiting import poll

pytestmark = pytest.mark.lab

PORT = 5210
TOOL = "clients/chart-blast"
NODES = ("alpha", "bravo")
# What is promised of a change of mode.
LIMIT_S = 2.0
# An epoch that began with the neighbour's start is known within five seconds; a flow that asked before asks again after
# ten.
SETTLED_S = 25.0
# A renewal is due every second.
QUIET_S = 2.5


@pytest.fixture
def place(postgres: PostgresServer, tmp_path: Path) -> Iterator[World]:
    empty(postgres)
    with Lab(topology.load("two-node"), f"m{secrets.token_hex(3)}", state_dir=tmp_path / "labs") as lab:
        world = World(lab, postgres, tmp_path, life_s=120, lead_s=5)
        try:
            world.start_authority()
            for name in NODES:
                world.start_agent(name, rules=False)
            world.introduce(*NODES)
            for name in NODES:
                assert poll(lambda name=name: world.keys(name) >= 2, limit_s=20), world.logs()  # type: ignore[misc]
            yield world
        finally:
            world.stop()


@pytest.fixture
def flow(place: World) -> Iterator[None]:
    """A program that requests a rate for its own flow, from alpha to bravo."""
    address = f"{place.lab.address('bravo')}:{PORT}"
    tool = str(program(TOOL))
    receiver = place.lab.popen("bravo", [tool, "receive", "--listen", address], stderr=subprocess.PIPE)
    assert receiver.stderr is not None
    assert "listening" in receiver.stderr.readline()
    bound = ["--bind", place.lab.address("alpha")]
    sender = place.lab.popen(
        "alpha", [tool, "send", "--connect", address, *bound, "--available", "all", "--duration", "120"]
    )
    try:
        yield
    finally:
        for process in (sender, receiver):
            process.kill()
            process.communicate()


def control(place: World) -> str:
    told = place.lab.exec("alpha", ["ss", "-Htin", "state", "established", "dport", "=", f":{PORT}"]).stdout
    return next((line.split()[0] for line in told.splitlines() if line.startswith("\t")), "")


def is_signalled(place: World) -> bool:
    """Whether the flow has its rate, and renewals go on."""
    before = place.count("alpha", "accepted")
    rises = poll(lambda: place.count("alpha", "accepted") > before, limit_s=SETTLED_S)
    return bool(rises) and bool(poll(lambda: control(place) == "trinity", limit_s=5))


def signals(place: World) -> dict[str, int]:
    """How many were sent and taken at each node."""
    for name in NODES:
        assert poll(lambda name=name: place.status(name), limit_s=10), place.logs()  # type: ignore[misc]
    return {name: place.count(name, "sent", "shim_sent", "accepted") for name in NODES}


def assert_silent(place: World) -> None:
    """Within the promised time nothing is sent any more, and the flow is back on the control that it had."""
    began = time.monotonic()
    assert poll(lambda: control(place) not in ("trinity", ""), limit_s=LIMIT_S), place.logs()
    assert poll(lambda: time.monotonic() > began + LIMIT_S, limit_s=LIMIT_S + 1)
    before = signals(place)
    quiet = time.monotonic() + QUIET_S
    assert poll(lambda: time.monotonic() > quiet, limit_s=QUIET_S + 1)
    assert signals(place) == before
    assert control(place) not in ("trinity", "")


@pytest.mark.usefixtures("flow")
def test_off_and_observe_hold_for_signalling_and_enforce_resumes(place: World) -> None:
    assert is_signalled(place), (place.status("alpha"), place.logs())
    for mode in ("off", "observe"):
        asked = place.count("alpha", "would_ask")
        place.set_mode("alpha", mode)
        assert_silent(place)
        # What would be done is told where the mode is to observe.
        assert place.count("alpha", "would_ask") - asked == (1 if mode == "observe" else 0)
        place.set_mode("alpha", "enforce")
        assert is_signalled(place), (mode, place.status("alpha"), place.logs())


@pytest.mark.usefixtures("flow")
def test_a_receiver_that_observes_leaves_signals_alone(place: World) -> None:
    assert is_signalled(place), (place.status("alpha"), place.logs())
    place.set_mode("bravo", "observe")
    assert poll(lambda: place.status("bravo")["enforcement"] == "observe", limit_s=LIMIT_S)
    seen = place.count("bravo", "would_take")
    assert poll(lambda: place.count("bravo", "would_take") > seen, limit_s=5), place.status("bravo")
    before = place.count("bravo", "accepted", "sent")
    seen = place.count("bravo", "would_take")
    assert poll(lambda: place.count("bravo", "would_take") > seen, limit_s=15), place.status("bravo")
    assert place.count("bravo", "accepted", "sent") == before
    # Nobody answers: the rate ends and the flow goes on without.
    assert poll(lambda: control(place) not in ("trinity", ""), limit_s=10)
    place.set_mode("bravo", "enforce")
    assert poll(lambda: control(place) == "trinity", limit_s=25), place.status("alpha")


@pytest.mark.usefixtures("flow")
def test_the_local_switch_outlives_the_agent(place: World) -> None:
    assert is_signalled(place), (place.status("alpha"), place.logs())
    place.switch("alpha", "--off")
    assert_silent(place)
    process = place.processes[1]
    process.terminate()
    process.wait(15)
    place.start_agent("alpha", rules=False)
    assert poll(lambda: place.keys("alpha") >= 2, limit_s=20), place.logs()
    assert place.status("alpha")["switched_off"]
    assert_silent(place)
    place.switch("alpha", "--on")
    # What the program requested went with the agent before: it asks no more, but the node enforces.
    assert poll(lambda: place.status("alpha").get("enforcement") == "enforce", limit_s=5), place.status("alpha")
