"""A sending node whose agent runs, with what its controllers would say to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from agent.world import LINK_CAPACITY_BPS, Agent, Pair, Relay, Streams, now_us
from chart.v1 import flow_grant_pb2, link_rate_pb2, policy_pb2, topology_pb2

LEASE_US = 60_000_000


@dataclass
class World:
    """Everything one test uses; ``link`` is the only link of the node."""

    pair: Pair
    agent: Agent
    streams: Streams
    generation: int = 0

    @property
    def node(self) -> str:
        """Name of the sending node."""
        return self.agent.node

    @property
    def link(self) -> str:
        """Id of the node's link."""
        return f"{self.node}:to-peer"

    def state_link(self) -> None:
        """The link as an operator states it."""
        entity = topology_pb2.TopologyEntity(revision=1)
        entity.link.id, entity.link.from_node, entity.link.interface = self.link, self.node, "to-peer"
        entity.link.capacity_bps = LINK_CAPACITY_BPS
        self.streams.publish("chart.topology.v1", self.link, entity)

    def state_policy(self, mode: policy_pb2.EnforcementMode.ValueType) -> None:
        """The node's own policy."""
        self.streams.publish("chart.policy.v1", self.node, policy_pb2.Policy(id=self.node, enforcement=mode))

    def state_rate(self, available_bps: int, lease_us: int = LEASE_US, legacy_share_bps: int = 30_000_000) -> None:
        """The link's rate as the allocator states it."""
        self.generation += 1
        rates = link_rate_pb2.LinkRates(
            node=self.node,
            generation=self.generation,
            issued_at_us=now_us(),
            valid_until_us=now_us() + lease_us,
            controller="nec",
        )
        rates.links.add(
            link_id=self.link,
            available_bps=available_bps,
            explicit_rate_capacity_bps=LINK_CAPACITY_BPS - legacy_share_bps,
            legacy_share_bps=legacy_share_bps,
        )
        self.streams.publish("chart.link-rate.v1", self.node, rates)

    def grant(
        self,
        request: str,
        guaranteed_bps: int,
        traceparent: str = "",
        port: int = 5201,
        *,
        generation: int = 1,
        with_available_rate: bool = True,
        sources: tuple[str, ...] = (),
        destinations: tuple[str, ...] = (),
    ) -> None:
        """A grant for TCP to the receiving node: to its one address, or between all those that are stated."""
        grant = flow_grant_pb2.FlowGrant(
            request_id=request,
            generation=generation,
            link_ids=[self.link],
            service=flow_grant_pb2.SERVICE_TYPE_GUARANTEED,
            guaranteed_bps=guaranteed_bps,
            valid_from_us=now_us() - 1000,
            valid_until_us=now_us() + LEASE_US,
            with_available_rate=with_available_rate,
        )
        grant.selector.destination_prefix = "10.77.0.2/32"
        grant.selector.source_prefixes.extend(sources)
        grant.selector.destination_prefixes.extend(destinations)
        grant.selector.protocol, grant.selector.destination_port = 6, port
        self.streams.publish("chart.flow-grant.v1", request, grant, traceparent)

    def release(self, request: str, traceparent: str = "") -> None:
        """A tombstone for the grant."""
        self.streams.publish("chart.flow-grant.v1", request, None, traceparent)


@contextlib.contextmanager
def world_up(pair: Pair, agent: Agent, streams: Streams) -> Iterator[World]:
    """A running agent whose link is in the topology, in mode enforce, with an available rate of 10 Mb/s."""
    world = World(pair, agent, streams)
    pair.up()
    try:
        with Relay(pair.sender, int(streams.bootstrap.rpartition(":")[2])):
            world.state_link()
            world.state_policy(policy_pb2.ENFORCEMENT_MODE_ENFORCE)
            world.state_rate(10_000_000)
            try:
                agent.start()
                yield world
            finally:
                agent.stop()
    finally:
        for topic, key in (
            ("chart.topology.v1", world.link),
            ("chart.policy.v1", world.node),
            ("chart.link-rate.v1", world.node),
        ):
            world.streams.publish(topic, key, None)
        pair.down()
