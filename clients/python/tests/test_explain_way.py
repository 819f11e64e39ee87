"""Ends of tunnels, proxies and edges that a flow meets, from what the registry states and nodes report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from chart_client.commands.explain_way import Part, ends_of_flow, networks, way
from chart_client.models import Node, Tunnel

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENDS = {"tunnel": "west-east", "address": "10.0.0.6"}
ORIGIN = {**ENDS, "role": "origin", "peer_node": "east", "prefixes": ["192.0.2.0/24"]}
DESTINATION = {**ENDS, "role": "destination", "peer_node": "west"}
SOURCE, DESTINATION_HOST = networks(["10.7.0.9"]), networks(["192.0.2.7"])


def node(name: str, *, enforcement: str = "enforce", faults: tuple[str, ...] = (), **fields: Any) -> Node:
    """A node whose agent reports."""
    reported = {"enforcement": enforcement, "agent_version": "1", "capabilities": [], "faults": list(faults)}
    state = {**reported, "reported_at": NOW, "stale": False}
    common = {"id": name, "revision": 1, "description": "", "addresses": [], "sensor_pod_target": "", "tags": {}}
    return Node.model_validate({**common, "state": state, **fields})


def tunnel(connections: int, error: str = "") -> Tunnel:
    """What the service tells of the tunnel."""
    counts = {"connections_wanted": 3, "connections_established": connections, "last_error": error}
    zero = dict.fromkeys(
        ("queue_packets", "queue_bytes", "dropped_packets", "late_packets", "connection_changes"),
        0,
    )
    state = {"at": NOW, "origin": "west", "destination": "east", "congestion": "cubic", "tls": True, "decaying": False}
    shown = {"id": "west-east", "rate_bps": 7_900_000, "target_bps": 8_000_000, "target_source": "settings"}
    return Tunnel.model_validate({**shown, "state": {**state, **counts, **zero, "customers": []}})


def met(*nodes: Node, tunnels: tuple[Tunnel, ...] = (), path: tuple[str, ...] = ("west", "east")) -> list[Part]:
    """What the flow of these tests meets."""
    return way(nodes, tunnels, SOURCE, DESTINATION_HOST, path)


def test_a_tunnel_by_the_prefix_that_leads_into_it() -> None:
    both = (node("west", tunnel_ends=[ORIGIN]), node("east", tunnel_ends=[DESTINATION]))
    (part,) = met(*both, tunnels=(tunnel(3),))
    assert (part.kind, part.node, part.why_not) == ("tunnel", "west", "")
    assert part.by == "prefix 192.0.2.0/24 of west's end of west-east, into chart-itm0 to east"
    assert part.state.startswith("3 of 3 connections, 7.9")
    (down,) = met(*both, tunnels=(tunnel(0, "connection to 10.0.0.6: Connection refused"),))
    assert down.why_not == "connection to 10.0.0.6: Connection refused"
    (silent,) = met(*both)
    assert (silent.state, silent.why_not) == ("not reported", "the origin on west has not reported: does it run?")
    (single,) = met(both[0], tunnels=(tunnel(0),))
    assert single.why_not == "east has no destination of west-east"
    assert way(both, [], SOURCE, networks(["198.51.100.1"]), ["west"]) == []


def test_an_edge_on_the_path_with_mode_and_fault() -> None:
    edges = [{"interface": "eth1", "aggregate_bps": 10_000_000, "exceed": "drop"}]
    (good,) = met(node("west", edges=edges))
    assert (good.kind, good.state, good.why_not) == ("edge", "enforce", "")
    assert good.by.startswith("edge eth1: grants to their rate, EF without a grant up to 10")
    (watching,) = met(node("west", enforcement="observe", edges=edges))
    assert watching.why_not == "west does not enforce: its mode is observe"
    (broken,) = met(node("west", faults=("the edge eth1 has no interface",), edges=edges))
    assert (broken.state, broken.why_not) == ("fault", "the edge eth1 has no interface")
    (unheard,) = met(node("west", edges=edges, state=None))
    assert unheard.why_not == "no agent of west reports"
    assert met(node("north", edges=edges)) == []


@pytest.mark.parametrize(
    ("prefixes", "path", "found"),
    [
        (["10.7.0.0/16"], (), "hosts of 10.7.0.0/16"),
        ([], ("west",), "all hosts"),
        ([], (), None),
        (["10.8.0.0/16"], ("west",), None),
    ],
)
def test_a_proxy_by_its_hosts(prefixes: list[str], path: tuple[str, ...], found: str | None) -> None:
    parts = met(node("west", proxied_traffic={"interfaces": ["lan0"], "prefixes": prefixes}), path=path)
    assert [one.kind for one in parts] == (["proxy"] if found else [])
    assert all(found is not None and found in one.by for one in parts)


def test_the_ends_that_a_flow_names() -> None:
    assert ends_of_flow("10.7.0.9:1-192.0.2.7:2") == (SOURCE, DESTINATION_HOST)
    assert ends_of_flow("[fd00::1]:5-[fd00::2]:6") == (networks(["fd00::1"]), networks(["fd00::2"]))
    assert ends_of_flow(":5001") == ([], [])
