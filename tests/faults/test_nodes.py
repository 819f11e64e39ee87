"""Nodes lose their agent, their broker, their permission: traffic goes on, and what was measured is not lost."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from chart_lab.network import Lab
from chart_lab.platform.laboratory import fetch
from chart_lab.platform.stack import Platform
from chart_lab.programs import program
from support import laboratory
from support.figures import Figures

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

PORT = 5201
# Of the rates of links (chart.allocator).
LEASE_S = 10
Until = Callable[..., None]


@pytest.fixture(scope="module")
def lab(platform: Platform, rest: httpx.Client) -> Iterator[Lab]:
    """The lab `demo` with agents and pods on every node."""
    with laboratory.running_lab(platform, rest) as lab:
        yield lab


@pytest.fixture
def grant(rest: httpx.Client, until: Until) -> Iterator[dict[str, Any]]:
    """An enforced guaranteed rate of 40 Mb/s from alpha to delta."""
    rest.put("/v1/policies/default", json={"enforcement": "enforce"}).raise_for_status()
    answer = rest.post(
        "/v1/rate-requests",
        json={
            "source": "alpha",
            "destination": "delta",
            "protocol": "tcp",
            "destination_port": PORT,
            "service": "variable",
            "guaranteed_bps": 40_000_000,
        },
    )
    assert answer.status_code == 201, answer.text
    request = answer.json()
    path = f"/v1/rate-requests/{request['id']}"
    try:
        until(lambda: fetch(rest, path)["enforcement"] == "ENFORCED", "the request is enforced")
        yield request
    finally:
        # Also one that was not enforced: the next test asks for as much.
        rest.post(f"{path}/release").raise_for_status()


@pytest.fixture
def flow(lab: Lab, grant: dict[str, Any]) -> Iterator[Callable[[], int]]:
    """A transfer under the grant; calling the fixture returns the octets that delta has received so far.

    It offers half of the grant: these tests are about states, and three emulators of a full link leave services and
    broker on two cores little time.
    """
    bulk = str(program("lab/bulk"))
    receiver = lab.popen("delta", [bulk, "receive", "--listen", f"0.0.0.0:{PORT}"], stderr=subprocess.DEVNULL)
    sender = lab.popen(
        "alpha",
        [bulk, "send", *("--connect", f"{lab.address('delta')}:{PORT}"), "--duration-s", "120", "--offered-mbit", "20"],
        stderr=subprocess.DEVNULL,
    )

    def received() -> int:
        listing = laboratory.established(lab, "delta", f"sport = :{PORT}")
        found = re.findall(r"bytes_received:(\d+)", listing)
        return int(found[0]) if found else 0

    try:
        yield received
    finally:
        for process in (sender, receiver):
            process.kill()
            process.communicate()


def control(lab: Lab) -> str:
    """Congestion control of the flow at its sender; empty before it is established."""
    listing = laboratory.established(lab, "alpha", f"dport = :{PORT}")
    found = re.findall(r"^\s+(?:ts |sack |ecn |ecnseen |fastopen )*(\w+)", listing, re.MULTILINE)
    return str(found[0]) if found else ""


def agent_pid(lab: Lab, node: str) -> int | None:
    """Process id of a node's agent."""
    for pid in lab.processes(node):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "chart-agent":
                return pid
    return None


def supervisor_pid(lab: Lab) -> int:
    """Process id of the lab's process manager."""
    return int((lab.directory / "supervisord.pid").read_text())


@contextlib.contextmanager
def paused(*pids: int) -> Iterator[None]:
    """The processes stopped for a while."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def progress_over(received: Callable[[], int], seconds: float, until: Until) -> int:
    """Octets received during so many seconds."""
    start, before = time.monotonic(), received()
    until(lambda: time.monotonic() - start >= seconds, "time passes", limit_s=seconds + 5)
    return received() - before


def silent(rest: httpx.Client) -> set[str]:
    """Nodes whose agent has not reported for too long."""
    return {node["id"] for node in fetch(rest, "/v1/nodes")["items"] if not node["state"] or node["state"]["stale"]}


def agent_command(lab: Lab, node: str, *arguments: str) -> list[str]:
    """Command line that talks to a node's running agent."""
    command = [str(program("dataplane/chart-agent")), "--node", node, "--state-dir", str(lab.node_directory(node))]
    return [*command, "--cgroup", str(lab.node_cgroup(node)), *arguments]


def counted_since(rest: httpx.Client, grant: dict[str, Any], node: str, at: datetime.datetime) -> bool:
    """Whether a node told of a grant what it counted after that time."""
    confirmations = fetch(rest, f"/v1/rate-requests/{grant['id']}")["confirmations"]
    counted = [one["counted_at"] for one in confirmations if one["node"] == node and one["counted_at"]]
    return any(datetime.datetime.fromisoformat(one) > at for one in counted)


def test_an_agent_killed_leaves_its_flows_and_the_others_alone(
    lab: Lab, rest: httpx.Client, grant: dict[str, Any], flow: Callable[[], int], until: Until, figures: Figures
) -> None:
    until(lambda: control(lab) == "trinity", "the flow is under its rate")
    others = {node: agent_pid(lab, node) for node in ("bravo", "charlie", "delta")}
    victim = agent_pid(lab, "alpha")
    assert victim
    with paused(supervisor_pid(lab)):
        os.kill(victim, signal.SIGKILL)
        # Nobody renews the lease: the kernel itself gives the flow back to its default control.
        until(lambda: control(lab) not in ("trinity", ""), "the flow is back on its default control", limit_s=75)
        assert progress_over(flow, 2, until) > 0
    figures.reached(lambda: agent_pid(lab, "alpha") not in (None, victim), "the agent is restarted", 5)
    restarted = datetime.datetime.now(datetime.UTC)
    figures.reached(lambda: control(lab) == "trinity", "the new agent takes the flow up again", 5)
    assert {node: agent_pid(lab, node) for node in others} == others
    assert not silent(rest) & set(others)
    # A sending node whose new agent did not report on a grant lets it drain after its release (decision 33).
    until(lambda: counted_since(rest, grant, "alpha", restarted), "the new agent reports on the grant")


def test_an_agent_that_comes_back_at_once_adopts_what_was_left(
    lab: Lab, rest: httpx.Client, grant: dict[str, Any], flow: Callable[[], int], until: Until, figures: Figures
) -> None:
    until(lambda: control(lab) == "trinity", "the flow is under its rate")
    victims = {node: agent_pid(lab, node) for node in ("alpha", "bravo")}
    for pid in victims.values():
        assert pid
        os.kill(pid, signal.SIGKILL)
    killed = datetime.datetime.now(datetime.UTC)
    assert control(lab) == "trinity", "the lease that the kernel holds lives on"

    def adopted() -> bool:
        answer = lab.exec("alpha", agent_command(lab, "alpha", "--status", "--json"), check=False)
        if answer.returncode != 0:
            return False
        status = json.loads(answer.stdout)
        return [(one["request_id"], one["congestion_control"]) for one in status["flows"]] == [(grant["id"], "trinity")]

    figures.reached(adopted, "the new agent has the flow under its grant", 5)
    assert {node: agent_pid(lab, node) for node in victims} != victims
    assert progress_over(flow, 1, until) > 0
    for node in victims:
        roots = [
            line
            for line in lab.exec(node, ["tc", "qdisc", "show"]).stdout.splitlines()
            if " root " in line and "to-" in line
        ]
        assert all("htb" in line for line in roots), f"one queue discipline of ours per link: {roots}"
    until(lambda: fetch(rest, f"/v1/rate-requests/{grant['id']}")["enforcement"] == "ENFORCED", "enforced", limit_s=60)
    until(lambda: counted_since(rest, grant, "alpha", killed), "the new agent reports on the grant")


def test_the_broker_away_for_thirty_seconds(
    platform: Platform, lab: Lab, rest: httpx.Client, flow: Callable[[], int], until: Until, figures: Figures
) -> None:
    until(lambda: control(lab) == "trinity", "the flow is under its rate")
    (broker,) = [row.pid for row in platform.status() if row.name == "kafka"]

    def available() -> int:
        status = json.loads(lab.exec("alpha", agent_command(lab, "alpha", "--status", "--json")).stdout)
        # A grant that could not be renewed in time is gone until the next one comes.
        return max((int(one["available_bps"]) for one in status["grants"]), default=0)

    until(lambda: available() > 0, "the links' rates are in use", limit_s=60)
    nodes = {node.name for node in lab.topology.nodes}
    until(lambda: archived_sources(platform) == nodes, f"the pods of {sorted(nodes)} measure", limit_s=60)
    until(lambda: lease_left_s(rest) >= LEASE_S / 2, "no link's lease is older than its half")
    with paused(broker):
        started, started_us = time.monotonic(), time.time_ns() // 1000
        figures.reached(lambda: available() == 0, "the link rates expire", 12)
        assert time.monotonic() - started >= 4, "a lease of 10 s, renewed at half, lasts at least 5 s"
        assert control(lab) == "trinity", "the guaranteed rate lives on"
        assert progress_over(flow, 2, until) > 0
        until(lambda: time.monotonic() - started >= 30, "thirty seconds pass", limit_s=40)
        assert control(lab) == "trinity", "the guaranteed rate still lives on"
        taken = measured(lab)
    try:
        until(lambda: available() > 0, "the link rates come back", limit_s=60)
    except AssertionError as error:
        rates = {link["id"]: link["rate"] for link in fetch(rest, "/v1/links")["items"]}
        raise AssertionError(f"{error}; the gateway knows the rates {rates}") from error
    assert any(at_us > started_us for at_us in taken.values()), "the pods went on measuring"
    # Every result that the pods took, also while the broker was away, reaches the archive.
    try:
        until(lambda: taken.keys() <= archived(platform), f"{len(taken)} measurements are archived", limit_s=60)
    except AssertionError as error:
        known = archived(platform)
        missing = sorted((at_us - started_us) / 1e6 for one, at_us in taken.items() if one not in known)
        raise AssertionError(f"{error}; not there: {len(missing)}, taken {missing[:3]} to {missing[-3:]} s") from error


def lease_left_s(rest: httpx.Client) -> float:
    """How long the rates of links hold that flows from alpha to delta take, the shortest."""
    path = ("alpha:to-bravo", "bravo:to-charlie", "charlie:to-delta")
    rates = {link["id"]: link["rate"] for link in fetch(rest, "/v1/links")["items"]}
    ends = [datetime.datetime.fromisoformat(rates[link]["valid_until"]) for link in path if rates[link]]
    return min(one.timestamp() for one in ends) - time.time() if len(ends) == len(path) else 0.0


def measured(lab: Lab) -> dict[str, int]:
    """Results in the data repositories of all pods by id, with their time (read without disturbing them)."""
    found: dict[str, int] = {}
    for node in lab.topology.nodes:
        path = lab.node_directory(node.name) / "sensor-pod.sqlite"
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            found.update(connection.execute("SELECT id, measured_at_us FROM measurement").fetchall())
    return found


def archived_sources(platform: Platform) -> set[str]:
    """Nodes of which the archive has a measurement."""
    with psycopg.connect(platform.settings.database_url("archiver"), connect_timeout=5) as connection:
        found = connection.execute("SELECT DISTINCT source FROM archiver.measurement").fetchall()
        return {str(row[0]) for row in found}


def archived(platform: Platform) -> set[str]:
    """Ids of the measurements in the archive."""
    with psycopg.connect(platform.settings.database_url("archiver"), connect_timeout=5) as connection:
        return {str(row[0]) for row in connection.execute("SELECT id FROM archiver.measurement")}


def test_enforcement_off_and_observe_give_every_flow_back(
    lab: Lab, rest: httpx.Client, grant: dict[str, Any], flow: Callable[[], int], until: Until, figures: Figures
) -> None:
    def shown() -> set[str]:
        return {one["state"] for one in fetch(rest, f"/v1/rate-requests/{grant['id']}")["confirmations"]}

    until(lambda: control(lab) == "trinity", "the flow is under its rate")
    for mode in ("off", "observe"):
        rest.put("/v1/policies/default", json={"enforcement": mode}).raise_for_status()
        figures.reached(lambda: control(lab) not in ("trinity", ""), "back on the default control", 2)
        assert progress_over(flow, 1, until) > 0
        if mode == "observe":
            figures.reached(lambda: shown() == {"OBSERVED"}, "everything is computed and shown", 5)
        rest.put("/v1/policies/default", json={"enforcement": "enforce"}).raise_for_status()
        figures.reached(lambda: control(lab) == "trinity", "enforced again", 5)


def test_the_local_off_switch_needs_no_broker(
    lab: Lab, flow: Callable[[], int], until: Until, figures: Figures
) -> None:
    until(lambda: control(lab) == "trinity", "the flow is under its rate")
    lab.exec("alpha", agent_command(lab, "alpha", "--off"))
    figures.reached(lambda: control(lab) not in ("trinity", ""), "off: back on the default control", 2)
    assert progress_over(flow, 1, until) > 0
    lab.exec("alpha", agent_command(lab, "alpha", "--on"))
