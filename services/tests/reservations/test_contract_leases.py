"""What a link's lease for in-band requests holds of it, as reservations shows it."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from chart.v1 import link_load_pb2, node_state_pb2, topology_pb2
from chart.v1 import reservations_pb2 as pb
from support.postgres import PostgresServer
from support.reservations import LINKS, MEGA, NODES, Platform, running
from support.waiting import eventually

pytestmark = pytest.mark.contract


async def loads(platform: Platform) -> None:
    """The agent of the first node reports that nothing is drawn on its link, until cancelled."""
    for sequence in itertools.count():
        report = link_load_pb2.LinkLoadReport(node=NODES[0], sequence=sequence)
        report.links.add(link_id=LINKS[0])
        await platform.broker.publish("chart.link-load.v1", NODES[0], report)
        await asyncio.sleep(0.3)


async def test_a_link_that_shrinks_shows_what_drains_of_its_lease(
    kafka_bootstrap: str, postgres: PostgresServer, tmp_path: Path
) -> None:
    async with running(kafka_bootstrap, postgres, tmp_path) as platform:
        replica = platform.replica("one", CHART_LEASE_LENGTH_US="4000000", CHART_LEASE_LIFETIME_US="5000000")
        replica.start()
        channel, stub = replica.stub()
        state = node_state_pb2.NodeState(node=NODES[0], capabilities=["in-band"])
        await platform.broker.publish("chart.node-state.v1", NODES[0], state)
        reporting = asyncio.create_task(loads(platform))
        try:
            await _shrink(platform, stub)
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            await platform.broker.publish("chart.node-state.v1", NODES[0], None)
            await channel.close(None)
            replica.process.stop()


async def _shrink(platform: Platform, stub: Any) -> None:
    told = pb.GetLinkCapacityResponse()

    async def look() -> pb.GetLinkCapacityResponse:
        told.CopyFrom(await stub.GetLinkCapacity(pb.GetLinkCapacityRequest(link_id=LINKS[0])))
        # Whatever the lease, everything committed here is it, or drains of it.
        committed = told.steps[0].committed_bps if told.steps else 0
        assert committed == told.lease_bps + told.lease_draining_bps
        return told

    async def leased() -> bool:
        return (await look()).lease_bps == 8 * MEGA

    await eventually(leased)
    assert (told.lease_draining_bps, told.lease_draining_until_us) == (0, 0)
    small = topology_pb2.Link(id=LINKS[0], from_node=NODES[0], to_node=NODES[1], capacity_bps=10 * MEGA)
    await platform.broker.publish("chart.topology.v1", LINKS[0], topology_pb2.TopologyEntity(link=small))

    async def lowered() -> bool:
        return (await look()).lease_bps == MEGA * 8 // 10

    await eventually(lowered)
    assert told.lease_draining_bps == 8 * MEGA - told.lease_bps
    assert 0 < told.lease_draining_until_us - time.time_ns() // 1000 < 12 * MEGA

    async def drained() -> bool:
        return (await look()).lease_draining_bps == 0

    await eventually(drained, 20)
    assert told.lease_draining_until_us == 0
