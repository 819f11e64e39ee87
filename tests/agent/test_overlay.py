"""The overlay's table from the streams: followed, kept for a start without a broker, and ended by a tombstone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agent.world import BEHIND_PREFIX, RECEIVER, SENDER, run
from chart.v1 import path_table_pb2
from support.waiting import until

if TYPE_CHECKING:
    from agent.running import World

pytestmark = pytest.mark.contract

PATH_TABLE = "chart.path-table.v1"


def table(world: World) -> path_table_pb2.PathTable:
    """One link, to a neighbour that does not answer, with a network behind it."""
    link = path_table_pb2.OverlayLink(
        link_id=world.link, neighbour="peer", local_address=SENDER, remote_address=RECEIVER, interface="to-peer"
    )
    paths = [path_table_pb2.OverlayPath(next_hops=[world.link])]
    return path_table_pb2.PathTable(
        node=world.node,
        generation=1,
        links=[link],
        owners=[
            path_table_pb2.OverlayOwner(node=world.node, prefixes=[f"{SENDER}/32"]),
            path_table_pb2.OverlayOwner(node="peer", prefixes=[BEHIND_PREFIX], paths=paths),
        ],
    )


def told(world: World) -> dict[str, Any]:
    """What the agent says of the overlay; nothing while it has no table."""
    found: dict[str, Any] = world.agent.status().get("overlay", {})
    return found


def routes(world: World) -> str:
    """Routes of the node to the network behind the peer."""
    return run("ip", "-n", world.pair.sender, "route", "show", BEHIND_PREFIX)


def test_a_table_is_followed_kept_and_ended(world: World) -> None:
    try:
        world.streams.publish(PATH_TABLE, world.node, table(world))
        until(lambda: told(world).get("running"), "the overlay runs")
        assert (told(world)["owners"], told(world)["mtu"]) == (2, 1450)
        assert [one["name"] for one in told(world)["links"]] == [world.link]
        assert "dev chart-overlay" in routes(world)
        # An agent that reaches no broker goes on with what it had.
        world.agent.stop()
        assert routes(world) == ""
        world.agent.start("--bootstrap", "127.0.0.1:1")
        assert told(world)["running"]
        assert "dev chart-overlay" in routes(world)
        world.agent.stop()
        world.agent.start()
    finally:
        world.streams.publish(PATH_TABLE, world.node, None)
    until(lambda: not told(world).get("running"), "a node without a table has no overlay")
    assert routes(world) == ""
    world.agent.stop()
    world.agent.start("--bootstrap", "127.0.0.1:1")
    assert not told(world).get("running")
