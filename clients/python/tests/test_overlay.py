"""`chart overlay`, and a node's part in the overlay in a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

from chart_client.cli import build
from chart_client.commands.overlay import rows_of
from chart_client.models import Node, NodeState
from chart_client.overlay_models import OverlayLinkState, OverlayMembership, OverlayState
from chart_client.registry.node_ends import FieldError, overlay
from support.gateway_thread import Running


def run(*words: str) -> str:
    """The command against the gateway that the environment names."""
    result = CliRunner().invoke(build([words[0]]), list(words))
    assert result.exit_code == 0, result.output
    return result.output


def test_nodes_join_keep_their_part_and_leave(gateway: Running) -> None:
    run("node", "set", "alpha", "--address", "10.1.0.1/32")
    assert "no overlay nodes" in run("overlay", "status")
    assert "behind it: 10.20.0.0/16" in run("overlay", "join", "alpha", "--prefix", "10.20.0.0/16")
    # Other changes of the node leave it.
    run("node", "set", "alpha", "--description", "a router")
    assert json.loads(run("overlay", "status", "--json"))["alpha"]["prefixes"] == ["10.20.0.0/16"]
    assert "no report of the overlay" in run("overlay", "status")
    assert "only its own addresses" in run("overlay", "join", "alpha")
    assert "is no overlay node" in run("overlay", "leave", "alpha")
    assert "no overlay nodes" in run("overlay", "status")


def node(*links: OverlayLinkState, stale: bool = False) -> Node:
    state = NodeState(
        enforcement="enforce",
        agent_version="1",
        capabilities=[],
        faults=[],
        overlay=OverlayState(
            links=list(links),
            entered_packets=0,
            transit_packets=0,
            left_packets=0,
            detour_packets=0,
            refused_packets=0,
        ),
        reported_at=datetime.now(UTC),
        stale=stale,
    )
    return Node(
        id="alpha",
        revision=1,
        description="",
        addresses=[],
        sensor_pod_target="",
        tags={},
        overlay=OverlayMembership(member=True, prefixes=["10.20.0.0/16"]),
        state=state,
    )


def link(name: str, *, alive: bool) -> OverlayLinkState:
    return OverlayLinkState(
        link_id=name,
        alive=alive,
        rtt_ms=20.46,
        exchange_loss=0.0123,
        failures=1,
        forwarded_packets=7,
        forwarded_bytes=700,
    )


def test_a_line_for_each_overlay_link() -> None:
    rows = rows_of(node(link("alpha:a", alive=True), link("alpha:b", alive=False)))
    assert rows == [
        ("alpha", "10.20.0.0/16", "alpha:a", "alive", "20.5 ms", "1.2%", "7"),
        ("", "", "alpha:b", "failed", "20.5 ms", "1.2%", "7"),
    ]


def test_a_node_without_links_or_without_a_report_says_so() -> None:
    assert rows_of(node())[0][2] == "no overlay links"
    assert rows_of(node(link("alpha:a", alive=True), stale=True))[0][2] == "no report of the overlay"


def test_a_part_in_a_file() -> None:
    assert overlay({"prefixes": ["10.1.2.3/16"]}) == {"member": True, "prefixes": ["10.1.0.0/16"]}
    assert overlay({"member": False, "prefixes": ["10.1.0.0/16"]}) == {"member": False, "prefixes": []}
    with pytest.raises(FieldError, match="a node's part in the overlay has no networks"):
        overlay({"networks": []})
