"""Tunnel ends and proxied traffic of the registry in the state folder of the agent, for the programs beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from chart.v1 import topology_pb2
from support.waiting import until

if TYPE_CHECKING:
    from agent.running import World

pytestmark = pytest.mark.contract

TOPOLOGY = "chart.topology.v1"
NOTHING = {"interfaces": [], "prefixes": [], "mode": "same-ports"}


def state(world: World, *ends: topology_pb2.TunnelEnd, interfaces: tuple[str, ...] = ()) -> None:
    """The node as an operator registers it."""
    proxied = topology_pb2.ProxiedTraffic(interfaces=interfaces) if interfaces else None
    node = topology_pb2.Node(id=world.node, tunnel_ends=ends, proxied_traffic=proxied)
    world.streams.publish(TOPOLOGY, world.node, topology_pb2.TopologyEntity(revision=2, node=node))


def written(world: World) -> dict[str, Any]:
    """What stands in the file; empty while there is none."""
    path = world.agent.directory / "ends.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def test_ends_and_proxied_traffic_reach_the_node_and_stay_there(world: World) -> None:
    end = topology_pb2.TunnelEnd(
        tunnel="a-b",
        role=topology_pb2.TUNNEL_ROLE_DESTINATION,
        interface="itm0",
        address="10.0.0.2",
        port=7400,
        peer_node="other",
    )
    wanted = {
        **{"tunnel": "a-b", "role": "destination", "interface": "itm0", "address": "10.0.0.2", "port": 7400},
        **{"peer_node": "other", "applications": []},
    }
    try:
        state(world, end, interfaces=("eth1",))
        until(lambda: written(world).get("tunnel_ends") == [wanted], "the end in the file")
        assert written(world)["node"] == world.node
        assert written(world)["proxied_traffic"] == {**NOTHING, "interfaces": ["eth1"]}
        # An agent that reaches no broker leaves it.
        world.agent.stop()
        world.agent.start("--bootstrap", "127.0.0.1:1")
        assert written(world)["tunnel_ends"] == [wanted]
        world.agent.stop()
        # Only the last of the records that came meanwhile counts.
        state(world)
        end.port = 7500
        state(world, end)
        world.agent.start()
        until(lambda: [one["port"] for one in written(world)["tunnel_ends"]] == [7500], "the change")
        assert written(world)["proxied_traffic"] == NOTHING
    finally:
        world.streams.publish(TOPOLOGY, world.node, None)
    until(lambda: written(world)["tunnel_ends"] == [], "a node that is not registered has no ends")
