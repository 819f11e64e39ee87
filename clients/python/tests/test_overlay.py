"""`chart overlay`, and a node's part in the overlay in a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from chart_client.cli import build
from chart_client.client import Client
from chart_client.commands.overlay import event_row, lines_of, rows_of
from chart_client.models import Node, NodeState
from chart_client.overlay_models import (
    OverlayEvent,
    OverlayHop,
    OverlayLinkState,
    OverlayMembership,
    OverlaySkip,
    OverlayState,
    OverlayTracedPath,
    PathQuality,
)
from chart_client.registry.node_ends import FieldError, overlay
from support.gateway import NOW_US, alpha_table
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


def test_routes_traces_and_events(gateway: Running) -> None:
    gateway.place.gateway.live.apply("chart.path-table.v1", "alpha", alpha_table(), NOW_US)
    routes = run("overlay", "routes", "alpha")
    assert "10.20.0.0/16" in routes
    assert "alpha does not report how its links are" in routes
    assert json.loads(run("overlay", "routes", "alpha", "--json"))["destinations"][0]["node"] == "delta"
    assert "alpha has no path to echo" in run("overlay", "routes", "alpha", "--to", "echo")
    traced = run("overlay", "trace", "alpha", "10.20.0.5")
    assert traced.startswith("alpha to 10.20.0.5 (behind delta, 10.20.0.0/16)\n")
    assert "path 0  alpha > delta" in traced
    assert "packets take the kernel's routes" in run("overlay", "trace", "alpha", "192.0.2.1")
    past = run("overlay", "trace", "alpha", "delta", "--at", "2020-01-01 00:00:00")
    assert "no next hop answers probes" in past
    assert " at 2020-01-01 00:00:00" in past
    assert "link alpha:to-delta failed" in run("overlay", "events", "--node", "alpha")
    assert "nothing happened" in run("overlay", "events", "--to", "delta")
    assert json.loads(run("overlay", "events", "--json"))[0]["kind"] == "link-failed"
    refused = CliRunner().invoke(build(["overlay"]), ["overlay", "routes", "echo"])
    assert refused.exit_code == 1
    with Client(gateway.url) as client:
        assert client.overlay.trace("alpha", "delta").owner == "delta"


def test_a_path_in_words() -> None:
    hops = [
        OverlayHop(
            node="alpha",
            link_id="alpha:b",
            next_node="south",
            skipped=[OverlaySkip(link_id="alpha:a", reason="failed")],
            all_failed=False,
            reported=True,
        ),
        OverlayHop(node="south", link_id="south:d", next_node="delta", skipped=[], all_failed=False, reported=False),
    ]
    quality = PathQuality(alive=True, taken_by=["data"], left_by=[], rtt_ms=12.34, exchange_loss=0.015, load=0.5)
    path = OverlayTracedPath(
        colour=1,
        choice=True,
        hops=hops,
        outcome="arrives",
        detours=True,
        planned_link_ids=[],
        capacity_bps=0,
        quality=quality,
        why=["New flows of data take it."],
    )
    assert lines_of(path) == [
        "path 1  alpha > south > delta   RTT 12.3 ms, round-trip loss 1.5%, load 50%",
        "    alpha by alpha:b (not alpha:a: failed)",
        "    south by south:d  (does not report)",
        "    New flows of data take it.",
    ]


def test_an_event_in_words() -> None:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    measured: dict[str, Any] = {"at": at, "node": "alpha", "rtt_ms": 2.5, "exchange_loss": 0.25, "flow_classes": []}
    measured["interface_down"] = False
    both = {**measured, "flow_classes": ["voice", "data"]}
    left = OverlayEvent(**both, kind="path-left", owner="delta", colour=1)
    assert event_row(left)[1:] == (
        "alpha",
        "path 1 to delta is worse than another: flows of voice and data leave it (RTT 2.5 ms, round-trip loss 25.0%)",
    )
    down = OverlayEvent(**{**measured, "interface_down": True}, kind="link-failed", link_id="alpha:a")
    assert event_row(down)[2] == "link alpha:a failed: its interface is down"
    assert event_row(OverlayEvent(**measured, kind="started"))[2] == "the overlay began to run"
    # Of a later version.
    assert event_row(OverlayEvent(**measured, kind="unknown"))[2] == "unknown"
