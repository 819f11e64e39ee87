"""Edges of the registry: policed and no longer policed while the agent runs, and after a start without the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.world import SENDER, run
from chart.v1 import topology_pb2
from support.waiting import until

if TYPE_CHECKING:
    from agent.running import World

pytestmark = pytest.mark.contract

TOPOLOGY = "chart.topology.v1"


def state_edges(world: World, *edges: topology_pb2.NodeEdge) -> None:
    """The node as an operator registers it."""
    node = topology_pb2.Node(id=world.node, edges=edges)
    world.streams.publish(TOPOLOGY, world.node, topology_pb2.TopologyEntity(revision=2, node=node))


def policed(world: World) -> list[dict[str, Any]]:
    """The edges in the agent's status, without what was counted."""
    names = ("interface", "exceed", "aggregate_bps", "depth_ms", "fault")
    edges = world.agent.status().get("edges", [])
    return [{name: edge[name] for name in names if name in edge} for edge in edges]


def bleached(world: World) -> int:
    """How many packets marked EF lost their mark, after the receiver sent some."""
    run(*world.pair.command(world.pair.receiver, "ping", "-q", "-c", "3", "-i", "0.01", "-Q", "0xb8", SENDER))
    return int(world.agent.status()["edges"][0]["unmarked_packets"])


def test_edges_follow_the_registry_without_a_restart(world: World) -> None:
    edge = topology_pb2.NodeEdge(
        interface="to-peer", aggregate_bps=8_000_000, exceed=topology_pb2.EDGE_EXCEED_DROP, depth_ms=20
    )
    seen = {"interface": "to-peer", "exceed": "drop", "aggregate_bps": 8_000_000, "depth_ms": 20}
    try:
        state_edges(world, edge)
        until(lambda: policed(world) == [seen], "the edge is policed as the registry says")
        assert bleached(world) == 0, "they are within the aggregate"
        edge.aggregate_bps, edge.exceed = 0, topology_pb2.EDGE_EXCEED_REMARK
        missing = topology_pb2.NodeEdge(interface="to-nowhere", depth_ms=100)
        state_edges(world, edge, missing)
        changed = seen | {"exceed": "remark", "aggregate_bps": 0}
        absent = {"interface": "to-nowhere", "exceed": "remark", "aggregate_bps": 0, "depth_ms": 100}
        absent["fault"] = "edge to-nowhere is not policed: this node has no such interface"
        until(lambda: policed(world) == [changed, absent], "the change is followed, what is missing is told")
        assert bleached(world) == 3
        world.agent.kill()
        # A start that hears nothing of the registry: the record is gone, the file is there.
        world.agent.start("--bootstrap", "127.0.0.1:1")
        assert policed(world) == [changed, absent]
        assert bleached(world) == 3
        world.agent.stop()
        world.agent.start()
        state_edges(world)
        until(lambda: not policed(world), "nothing is policed any more")
    finally:
        world.streams.publish(TOPOLOGY, world.node, None)
