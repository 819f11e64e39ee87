"""The room of nodes, as agents report it, on a real PostgreSQL and Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from chart.common import rpc
from chart.common.rpc import RefusalError
from chart.v1 import flow_grant_pb2, grant_status_pb2, node_state_pb2, reservations_pb2_grpc
from chart.v1 import rate_request_pb2 as rr
from chart.v1 import reservations_pb2 as pb
from support.postgres import PostgresServer
from support.reservations import MEGA, NODES, Platform, Replica, ask, running
from support.waiting import eventually

pytestmark = pytest.mark.contract

NODE_STATE = "chart.node-state.v1"
FULL = "node resb has no room for another grant"


@pytest_asyncio.fixture
async def platform(kafka_bootstrap: str, postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Platform]:
    async with running(kafka_bootstrap, postgres, tmp_path) as found:
        # An agent of before, which does not say what it can hold, and one that can hold three grants.
        await report(found, "resa", None)
        await report(found, "resb", 3)
        yield found
        for node in NODES:
            await found.broker.publish(NODE_STATE, node, None)


async def report(platform: Platform, node: str, grants: int | None) -> None:
    room = [] if grants is None else [node_state_pb2.NodeRoom(kind="grants", held=0, total=grants)]
    await platform.broker.publish(NODE_STATE, node, node_state_pb2.NodeState(node=node, room=room))


@asynccontextmanager
async def replicas(platform: Platform, *names: str) -> AsyncIterator[list[reservations_pb2_grpc.ReservationsAsyncStub]]:
    started: list[Replica] = []
    channels = []
    try:
        for name in names:
            started.append(platform.replica(name))
            started[-1].start()
            channels.append(started[-1].stub())
        yield [stub for _, stub in channels]
    finally:
        for channel, _ in channels:
            await channel.close(None)
        for one in started:
            one.process.stop()


async def create(stub: reservations_pb2_grpc.ReservationsAsyncStub, bps: int = MEGA) -> rr.RateRequest:
    with rpc.refusals():
        call = pb.CreateRateRequestRequest(specification=ask(bps), owner="alice")
        return (await stub.CreateRateRequest(call)).rate_request


async def refused(stub: reservations_pb2_grpc.ReservationsAsyncStub, bps: int = MEGA) -> pb.Refusal:
    with pytest.raises(RefusalError) as error:
        await create(stub, bps)
    return error.value.refusal


async def test_a_full_node_refuses_until_its_agent_has_given_a_place_back(platform: Platform) -> None:
    async with replicas(platform, "one") as [stub]:
        made = [await create(stub, 0), await create(stub), await create(stub)]
        refusal = await refused(stub)
        assert refusal.code == "no-room"
        assert refusal.detail == f"{FULL}: it holds 3 of at most 3 grants"
        assert refusal.bottleneck_link_id == "resb:to-resc"
        assert (await refused(stub, 0)).code == "no-room"
        call = pb.PreviewRateRequestRequest(specification=ask(MEGA), owner="alice")
        preview = await stub.PreviewRateRequest(call)
        assert not preview.granted
        assert preview.refusal == refusal
        # A change in service needs no second place.
        change = pb.ChangeRateRequestRequest(id=made[1].id, owner="alice", guaranteed_bps=2 * MEGA)
        assert (await stub.ChangeRateRequest(change)).rate_request.granted_bps == 2 * MEGA
        # What is released may be held until the agents say otherwise; that without a guaranteed rate too.
        grant = await eventually(lambda: platform.grants.get(made[0].id))
        assert isinstance(grant, flow_grant_pb2.FlowGrant)
        released = await stub.ReleaseRateRequest(pb.ReleaseRateRequestRequest(id=made[0].id, owner="alice"))
        assert list(released.rate_request.draining_nodes) == ["resa", "resb"]
        assert (await refused(stub)).detail.endswith("3 grants (1 of them released and not yet given back)")
        for node in ("resa", "resb"):
            await platform.status(grant, node, grant_status_pb2.GRANT_STATE_REMOVED)
        after = await eventually(lambda: granted(stub))
        assert after.lifecycle == rr.LIFECYCLE_ACTIVE
        assert (await refused(stub)).detail == f"{FULL}: it holds 3 of at most 3 grants"
        # More room, without a restart.
        await report(platform, "resb", 4)
        await eventually(lambda: granted(stub))
        assert (await refused(stub)).detail == f"{FULL}: it holds 4 of at most 4 grants"


async def granted(stub: reservations_pb2_grpc.ReservationsAsyncStub) -> rr.RateRequest | None:
    with suppress(RefusalError):
        return await create(stub)
    return None


async def test_two_replicas_do_not_fill_a_node_beyond_its_room(platform: Platform) -> None:
    await report(platform, "resb", 20)
    async with replicas(platform, "one", "two") as stubs:
        asking = (create(stubs[number % 2], number % 3 * MEGA) for number in range(40))
        answers = await asyncio.gather(*asking, return_exceptions=True)
        assert sum(isinstance(one, rr.RateRequest) for one in answers) == 20, answers
        codes = {one.refusal.code for one in answers if isinstance(one, RefusalError)}
        assert codes == {"no-room"}
        # What is counted is what a count from the requests gives.
        packed = "SELECT count(*) FROM reservations.profile WHERE link_id = 'node/resb'"
        assert platform.scalar(packed) > 0
        assert platform.scalar("SELECT count(*) FROM reservations.link WHERE id LIKE 'node/%' AND NOT stale") == 2
    # A replica that starts counts anew, and comes to the same.
    async with replicas(platform, "three") as [stub]:
        assert (await refused(stub)).detail == f"{FULL}: it holds 20 of at most 20 grants"
        await report(platform, "resb", 21)
        await eventually(lambda: granted(stub))
        assert (await refused(stub)).detail == f"{FULL}: it holds 21 of at most 21 grants"


async def test_what_a_version_before_granted_is_counted_when_a_replica_starts(platform: Platform) -> None:
    async with replicas(platform, "one") as [stub]:
        await create(stub)
        await create(stub)
    # As if that one had counted nothing.
    platform.execute("DELETE FROM reservations.profile WHERE link_id LIKE 'node/%'")
    stale = "SELECT count(*) FROM reservations.link WHERE id LIKE 'node/%' AND stale"
    async with replicas(platform, "two") as [stub]:
        await eventually(lambda: platform.scalar(stale) == 2)
        await create(stub)
        assert (await refused(stub)).detail == f"{FULL}: it holds 3 of at most 3 grants"
