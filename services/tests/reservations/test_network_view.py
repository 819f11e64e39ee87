"""The network as the streams tell it."""

from __future__ import annotations

import asyncio
import ipaddress

from chart.common.ownership import End
from chart.common.streams import LocalBroker
from chart.reservations.decisions.in_band import LeaseRule, rule_of
from chart.reservations.edges.network_view import POLICY, SETTINGS, TENANT, TOPOLOGY, NetworkView
from chart.v1 import platform_settings_pb2, policy_pb2, tenant_pb2, topology_pb2
from support.waiting import eventually

LINK = "a:to-b"


async def state(broker: LocalBroker, capacity_bps: int) -> None:
    link = topology_pb2.Link(id=LINK, from_node="a", to_node="b", capacity_bps=capacity_bps)
    await broker.publish(TOPOLOGY, LINK, topology_pb2.TopologyEntity(link=link))


async def test_a_link_that_had_more_for_a_moment_counts_as_shrunk() -> None:
    broker = LocalBroker()
    for node in ("a", "b"):
        await broker.publish(TOPOLOGY, node, topology_pb2.TopologyEntity(node=topology_pb2.Node(id=node)))
    await state(broker, 50)
    view = NetworkView()
    await view.open(broker)
    following = asyncio.create_task(view.follow(TOPOLOGY))
    changes = view.changes()
    try:
        before, after = await anext(changes)
        assert (dict(before.links), after.links[LINK].capacity_bps) == ({}, 50)
        # Within the time in which changes are gathered: somebody is admitted by the network in between.
        coming = asyncio.ensure_future(anext(changes))
        await state(broker, 100)
        await eventually(lambda: view.network.links[LINK].capacity_bps == 100)
        await state(broker, 50)
        await eventually(lambda: view.network.links[LINK].capacity_bps == 50)
        before, after = await asyncio.wait_for(coming, 5)
        assert (before.links[LINK].capacity_bps, after.links[LINK].capacity_bps) == (100, 50)
        await state(broker, 70)
        before, after = await asyncio.wait_for(anext(changes), 5)
        assert (before.links[LINK].capacity_bps, after.links[LINK].capacity_bps) == (70, 70)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await broker.close()


async def test_a_node_without_a_bound_of_its_own_follows_the_default_policy() -> None:
    broker = LocalBroker()
    for policy in (
        policy_pb2.Policy(id="default", max_guaranteed_bps=10),
        policy_pb2.Policy(id="a", max_guaranteed_bps=20),
        policy_pb2.Policy(id="b", enforcement=policy_pb2.ENFORCEMENT_MODE_OFF),
        policy_pb2.Policy(id="c", max_guaranteed_bps=0),
    ):
        await broker.publish(POLICY, policy.id, policy)
    view = NetworkView()
    await view.open(broker)
    assert [view.max_guaranteed_bps(node) for node in "abcd"] == [20, 10, 0, 10]
    await broker.close()


async def test_what_is_whose_follows_tenants_and_nodes() -> None:
    broker = LocalBroker()
    node = topology_pb2.Node(id="a", addresses=["10.0.0.1/32"])
    await broker.publish(TOPOLOGY, "a", topology_pb2.TopologyEntity(node=node))
    view = NetworkView()
    await view.open(broker)
    following = [asyncio.create_task(view.follow(topic)) for topic in (TOPOLOGY, TENANT)]

    def owned(address: str) -> bool:
        return view.ownership.owns("shop", End("source", "a", (ipaddress.ip_network(address),), 0, 0))

    try:
        assert not owned("10.0.0.1")
        shop = tenant_pb2.Tenant(id="shop", ends=[tenant_pb2.TenantEnd(node="a")])
        await broker.publish(TENANT, "shop", shop)
        await eventually(lambda: owned("10.0.0.1"))
        before, network = view.ownership, view.network
        # A change of something else changes nothing of it.
        await state(broker, 50)
        await eventually(lambda: view.network is not network)
        assert view.ownership is before
        node.addresses[0] = "10.0.0.9/32"
        await broker.publish(TOPOLOGY, "a", topology_pb2.TopologyEntity(node=node))
        await eventually(lambda: owned("10.0.0.9"))
        assert not owned("10.0.0.1")
        await broker.publish(TENANT, "shop", None)
        await eventually(lambda: not owned("10.0.0.9"))
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await broker.close()


async def test_links_follow_the_oversubscription_that_operators_set() -> None:
    broker = LocalBroker()
    for node in ("a", "b"):
        await broker.publish(TOPOLOGY, node, topology_pb2.TopologyEntity(node=topology_pb2.Node(id=node)))
    await state(broker, 100)
    view = NetworkView(3.0)
    await view.open(broker)
    following = asyncio.create_task(view.follow(SETTINGS))
    try:
        assert view.network.links[LINK].oversubscription == 3
        wanted = platform_settings_pb2.PlatformSettings(id="platform", oversubscription=1, lease_greatest_share=0.05)
        await broker.publish(SETTINGS, "platform", wanted)
        await eventually(lambda: view.network.links[LINK].oversubscription == 1)
        started = LeaseRule(idle_share=0.1, greatest_share=0.5, length_us=9)
        now = rule_of(started, view.platform)
        assert (now.idle_share, now.greatest_share, now.length_us) == (0.05, 0.05, 9)
        await broker.publish(SETTINGS, "platform", platform_settings_pb2.PlatformSettings(id="platform"))
        await eventually(lambda: view.network.links[LINK].oversubscription == 3)
        assert rule_of(started, view.platform) == started
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await broker.close()
