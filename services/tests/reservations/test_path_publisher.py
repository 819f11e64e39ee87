"""Path tables on their stream: written when something differs, withdrawn from who is no overlay node."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from chart.common.streams import LocalBroker
from chart.reservations.edges.network_view import NODE_STATE, PATH_TABLE, TOPOLOGY, NetworkView
from chart.reservations.edges.path_publisher import PathPublisher
from chart.v1.node_state_pb2 import NodeInterface, NodeState, OverlayLinkState, OverlayState
from chart.v1.topology_pb2 import Link, Node, OverlayMembership, TopologyEntity
from support.overlay_network import links, nodes, states
from support.waiting import eventually


async def state(broker: LocalBroker) -> None:
    """Two ways between four overlay nodes, and a host behind one of them."""
    for name, node in nodes().items():
        await broker.publish(TOPOLOGY, name, TopologyEntity(revision=1, node=node))
    for link in links():
        link.capacity_bps = link.capacity_bps or 10**8
        await broker.publish(TOPOLOGY, link.id, TopologyEntity(revision=2, link=link))
    for name, reported in states().items():
        await broker.publish(NODE_STATE, name, reported)


@contextlib.asynccontextmanager
async def following(broker: LocalBroker) -> AsyncIterator[NetworkView]:
    """A view that follows, and a publisher on it."""
    view = NetworkView()
    await view.open(broker)
    tasks = [asyncio.create_task(view.follow(topic)) for topic in (TOPOLOGY, NODE_STATE, PATH_TABLE)]
    tasks.append(asyncio.create_task(PathPublisher(broker, view).run()))
    try:
        yield view
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await broker.close()


def first_hop(view: NetworkView, node: str, owner: str) -> str:
    table = view.path_tables[node]
    return next(one.paths[0].next_hops[0] for one in table.owners if one.node == owner)


async def written(broker: LocalBroker) -> int:
    """Records of tables so far."""
    async with broker.subscribe([PATH_TABLE], group="count", start="earliest") as records:
        count = 0
        with contextlib.suppress(TimeoutError):
            while True:
                await asyncio.wait_for(anext(records), 0.05)
                count += 1
        return count


async def test_tables_follow_what_nodes_report() -> None:
    broker = LocalBroker()
    await state(broker)
    async with following(broker) as view:
        await eventually(lambda: set(view.path_tables) == {"egress", "ingress", "north", "south"})
        assert view.path_tables["ingress"].generation == 2
        assert first_hop(view, "ingress", "egress") == "ingress:to-north"
        reported = states(dead=["north:to-egress"])["north"]
        await broker.publish(NODE_STATE, "north", reported)
        await eventually(lambda: first_hop(view, "ingress", "egress") == "ingress:to-south")
        await broker.publish(TOPOLOGY, "south", TopologyEntity(revision=3, node=Node(id="south")))
        await eventually(lambda: "south" not in view.path_tables)


async def test_what_changes_nothing_writes_nothing() -> None:
    broker = LocalBroker()
    await state(broker)
    async with following(broker) as view:
        await eventually(lambda: len(view.path_tables) == 4)
        await asyncio.sleep(0.3)
        before = await written(broker)
        # A table says nothing of round-trip times, and another node is none of its business.
        reported = states()["north"]
        reported.overlay.links[0].rtt_us = 77
        await broker.publish(NODE_STATE, "north", reported)
        await broker.publish(TOPOLOGY, "other", TopologyEntity(revision=9, node=Node(id="other")))
        await asyncio.sleep(0.3)
        assert await written(broker) == before


async def test_admission_follows_the_overlay() -> None:
    broker = LocalBroker()
    await state(broker)
    async with following(broker) as view:
        await eventually(lambda: len(view.path_tables) == 4)

        def hops() -> tuple[str, ...]:
            routes = view.network.routes.get("ingress", {})
            return next((one.link_ids for prefix, one in routes.items() if str(prefix) == "10.9.0.0/16"), ())

        await eventually(lambda: hops() == ("ingress:to-north",))
        dead = states(dead=["ingress:to-north"])["ingress"]
        await broker.publish(NODE_STATE, "ingress", dead)
        await eventually(lambda: hops() == ("ingress:to-south",))


async def test_a_single_overlay_node_has_a_table_without_links() -> None:
    broker = LocalBroker()
    node = Node(id="alone", addresses=["10.0.0.1/32"], overlay=OverlayMembership())
    await broker.publish(TOPOLOGY, "alone", TopologyEntity(revision=1, node=node))
    await broker.publish(
        TOPOLOGY, "alone:eth0", TopologyEntity(link=Link(id="alone:eth0", from_node="alone", to_node="gone"))
    )
    interface = NodeInterface(link_id="alone:eth0", interface="eth0", up=True, addresses=["10.1.0.1/30"])
    heard = NodeState(node="alone", interfaces=[interface], overlay=OverlayState(links=[OverlayLinkState()]))
    await broker.publish(NODE_STATE, "alone", heard)
    async with following(broker) as view:
        await eventually(lambda: "alone" in view.path_tables)
        assert not view.path_tables["alone"].links
        assert [one.node for one in view.path_tables["alone"].owners] == ["alone"]
