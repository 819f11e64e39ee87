"""Reservations on a real PostgreSQL and Kafka: holds, changes, pre-emption, callbacks, quotas, profiles, paths."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from chart.common import rpc
from chart.common.rpc import RefusalError
from chart.reservations.decisions.ledger import Kind, Ledger, LinkCommitment
from chart.reservations.decisions.profile import Block
from chart.v1 import estimate_pb2, flow_grant_pb2, node_state_pb2, tenant_pb2, topology_pb2
from chart.v1 import rate_request_pb2 as rr
from chart.v1 import reservations_pb2 as pb
from support.postgres import PostgresServer
from support.receiver import receiver
from support.reservations import LINKS, MEGA, Platform, ask, running
from support.waiting import eventually

pytestmark = pytest.mark.contract
S = 1_000_000


@pytest_asyncio.fixture
async def world(kafka_bootstrap: str, postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[tuple[Platform, Any]]:
    async with running(kafka_bootstrap, postgres, tmp_path) as platform:
        replica = platform.replica("one")
        replica.start()
        channel, stub = replica.stub()
        try:
            yield platform, stub
        finally:
            await channel.close(None)
            replica.process.stop()


async def create(stub: Any, specification: rr.RateRequestSpecification, owner: str = "alice") -> rr.RateRequest:
    with rpc.refusals():
        request = pb.CreateRateRequestRequest(specification=specification, owner=owner)
        found: rr.RateRequest = (await stub.CreateRateRequest(request)).rate_request
        return found


async def get(stub: Any, identity: str) -> rr.RateRequest:
    found: rr.RateRequest = (await stub.GetRateRequest(pb.GetRateRequestRequest(id=identity))).rate_request
    return found


def check_profiles(platform: Platform) -> None:
    """The stored profiles are what the stored commitments add up to."""
    now_s = time.time_ns() // 10**9
    with psycopg.connect(platform.database_url) as connection:
        stored, made = Ledger(), Ledger()
        for link_id, kind, level, number, cells in connection.execute("SELECT * FROM profile").fetchall():
            stored.track(link_id, Kind(kind)).put((level, number), Block.unpack(cells))
        rows = connection.execute("SELECT link_id, rate_bps, start_us, end_us, kind FROM commitment").fetchall()
        made.add(LinkCommitment(link_id, rate, start, end, Kind(kind)) for link_id, rate, start, end, kind in rows)
    for link_id in LINKS:
        for start, length in ((now_s, 1), (now_s, 1 << 30), (now_s + 3000, 600), (now_s + 3600, 7200)):
            peaks = [one.track(link_id).peak_bps(start, start + length) for one in (stored, made)]
            assert peaks[0] == peaks[1], (link_id, start - now_s, length)


async def test_hold_commit_change_and_receipt(world: tuple[Platform, Any]) -> None:
    platform, stub = world
    held = await create(stub, ask(30 * MEGA, hold=True))
    assert (held.lifecycle, held.hold_until_us > held.created_at_us) == (rr.LIFECYCLE_HELD, True)
    assert held.id not in platform.grants
    committed = (await stub.CommitRateRequest(pb.CommitRateRequestRequest(id=held.id, owner="alice"))).rate_request
    assert committed.lifecycle == rr.LIFECYCLE_ACTIVE
    await eventually(lambda: held.id in platform.grants)
    look = pb.ChangeRateRequestRequest(id=held.id, guaranteed_bps=70 * MEGA, preview=True)
    assert (await stub.ChangeRateRequest(look)).preview.granted
    raised = (
        await stub.ChangeRateRequest(pb.ChangeRateRequestRequest(id=held.id, guaranteed_bps=70 * MEGA))
    ).rate_request
    assert (raised.granted_bps, raised.link_ids) == (70 * MEGA, held.link_ids)
    with pytest.raises(RefusalError) as caught, rpc.refusals():
        await stub.ChangeRateRequest(pb.ChangeRateRequestRequest(id=held.id, guaranteed_bps=90 * MEGA))
    assert caught.value.refusal.ceiling_bps == 80 * MEGA
    with pytest.raises(RefusalError) as caught, rpc.refusals():
        await stub.ChangeRateRequest(pb.ChangeRateRequestRequest(id=held.id, expected_revision=1, description="x"))
    assert caught.value.refusal.code == "revision-conflict"
    check_profiles(platform)
    await stub.ReleaseRateRequest(pb.ReleaseRateRequestRequest(id=held.id))
    answer = await stub.GetReceipt(pb.GetReceiptRequest(id=held.id))
    assert answer.complete
    assert [one.granted_bps for one in answer.receipt.rates] == [30 * MEGA, 70 * MEGA]
    check_profiles(platform)


async def test_preemption_is_told_and_undone(world: tuple[Platform, Any]) -> None:
    platform, stub = world
    with receiver(fail=1) as (address, received):
        low = await create(stub, ask(50 * MEGA, callback_url=address))
        secret = (await stub.GetCallbackSecret(pb.GetCallbackSecretRequest(owner="alice"))).secret
        preview = pb.PreviewRateRequestRequest(specification=ask(60 * MEGA, preemption_priority=5))
        assert (await stub.PreviewRateRequest(preview)).preempts == 1
        high = await create(stub, ask(60 * MEGA, preemption_priority=5))
        lost = await get(stub, low.id)
        assert (lost.service_state, lost.granted_bps) == (rr.SERVICE_STATE_PREEMPTED, 0)
        await eventually(lambda: platform.grants.get(low.id).guaranteed_bps == 0)  # type: ignore[union-attr]
        check_profiles(platform)
        await stub.ReleaseRateRequest(pb.ReleaseRateRequestRequest(id=high.id))

        async def restored() -> bool:
            return (await get(stub, low.id)).service_state == rr.SERVICE_STATE_GRANTED

        await eventually(restored)

        def told() -> list[str]:
            return [json.loads(body)["type"].removeprefix("rate-request.") for _, body in received]

        await eventually(lambda: told()[-3:] == ["granted", "preempted", "restored"], 15)
        assert told().count("granted") == 2, "the first answer was 503"
        for headers, body in received:
            signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
            key = base64.b64decode(secret.removeprefix("whsec_"))
            expected = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
            assert expected in headers["webhook-signature"].split(" ")

        async def delivered() -> bool:
            return (await get(stub, low.id)).callback_state == rr.CALLBACK_STATE_DELIVERED

        await eventually(delivered)
        listed = (await stub.ListCallbacks(pb.ListCallbacksRequest(request_id=low.id))).callbacks
        assert [one.attempts for one in listed] == [1, 1, 2]
    check_profiles(platform)


async def test_a_failed_link_degrades_and_its_return_restores(world: tuple[Platform, Any]) -> None:
    platform, stub = world
    made = await create(stub, ask(50 * MEGA))
    link = topology_pb2.Link(id=LINKS[1], from_node="resb", to_node="resc", capacity_bps=50 * MEGA)

    async def becomes(state: int) -> bool:
        return (await get(stub, made.id)).service_state == state

    await platform.broker.publish("chart.topology.v1", LINKS[1], topology_pb2.TopologyEntity(link=link))
    await eventually(lambda: becomes(rr.SERVICE_STATE_DEGRADED), 15)
    assert "resb:to-resc" in (await get(stub, made.id)).reason
    link.capacity_bps = 100 * MEGA
    await platform.broker.publish("chart.topology.v1", LINKS[1], topology_pb2.TopologyEntity(link=link))
    await eventually(lambda: becomes(rr.SERVICE_STATE_GRANTED), 15)
    # The same when it is what was measured that falls.
    key = "resb,resc,capacity_bps"
    estimate = estimate_pb2.Estimate(source_node="resb", destination_node="resc", metric="capacity_bps", value=5e7)
    await platform.broker.publish("chart.estimate.v1", key, estimate)
    await eventually(lambda: becomes(rr.SERVICE_STATE_DEGRADED), 15)
    await platform.broker.publish("chart.estimate.v1", key, None)
    await eventually(lambda: becomes(rr.SERVICE_STATE_GRANTED), 15)
    check_profiles(platform)


async def test_a_request_moves_with_the_routes_that_nodes_report(world: tuple[Platform, Any]) -> None:
    platform, stub = world
    made = await create(stub, ask(50 * MEGA))
    assert list(made.link_ids) == list(LINKS)
    direct = topology_pb2.Link(id="resa:direct", from_node="resa", to_node="resc", capacity_bps=100 * MEGA)

    async def report(*link_ids: str) -> None:
        state = node_state_pb2.NodeState(node="resa")
        hops = [node_state_pb2.NextHop(interface=one.partition(":")[2], link_id=one) for one in link_ids]
        state.routes.add(prefixes=["192.0.2.2/32"], next_hops=hops)
        await platform.broker.publish("chart.node-state.v1", "resa", state)

    async def goes(state: int, *path: str) -> bool:
        found = await get(stub, made.id)
        return found.service_state == state and (not path or list(found.link_ids) == list(path))

    # A shorter way that packets do not take is none.
    await report(LINKS[0])
    await platform.broker.publish("chart.topology.v1", direct.id, topology_pb2.TopologyEntity(link=direct))
    try:

        async def listed() -> bool:
            found = (await stub.FindPaths(pb.FindPathsRequest(source="resa", destination="resc"))).paths
            return (
                len(found) == 2
                and (found[0].source, list(found[0].silent_nodes)) == (pb.PATH_SOURCE_PARTLY_ROUTED, ["resb"])
                and (found[1].source, list(found[1].link_ids)) == (pb.PATH_SOURCE_COMPUTED, [direct.id])
            )

        await eventually(listed, 15)
        assert await goes(rr.SERVICE_STATE_GRANTED, *LINKS)
        avoiding = ask(MEGA)
        avoiding.avoid.append("resb")
        with pytest.raises(RefusalError) as refused:
            await create(stub, avoiding)
        assert (refused.value.refusal.code, refused.value.refusal.field) == ("no-path", "avoid")
        await report(direct.id)
        await eventually(lambda: goes(rr.SERVICE_STATE_GRANTED, direct.id), 15)
        # Both ways at once: the rate is committed on all links.
        await report(*sorted([direct.id, LINKS[0]]))
        await eventually(lambda: goes(rr.SERVICE_STATE_GRANTED, direct.id, *LINKS), 15)
        await report()
        await eventually(lambda: goes(rr.SERVICE_STATE_DEGRADED), 15)
        assert "node resa has no route to resc (192.0.2.2/32)" in (await get(stub, made.id)).reason
        await report(LINKS[0])
        await eventually(lambda: goes(rr.SERVICE_STATE_GRANTED, *LINKS), 15)
        check_profiles(platform)
    finally:
        await platform.broker.publish("chart.node-state.v1", "resa", None)
        await platform.broker.publish("chart.topology.v1", direct.id, None)


async def test_other_addresses_of_a_node_reach_grants_that_run(world: tuple[Platform, Any]) -> None:
    platform, stub = world
    made = await create(stub, ask(10 * MEGA))
    fixed = await create(stub, rr.RateRequestSpecification(source="resa", destination="192.0.2.2", guaranteed_bps=MEGA))
    later = await create(stub, ask(10 * MEGA, start_us=time.time_ns() // 1000 + 3600 * S))
    assert made.selector.destination_prefix == "192.0.2.2/32"
    addresses = ["192.0.2.2", "198.51.100.0/24", "2001:db8::2"]
    node = topology_pb2.TopologyEntity(node=topology_pb2.Node(id="resc", addresses=addresses))
    wanted = ["192.0.2.2/32", "198.51.100.0/24", "2001:db8::2/128"]
    async with platform.agents("resa", "resb"):
        await platform.broker.publish("chart.topology.v1", "resc", node)

        def granted() -> bool:
            grant = platform.grants.get(made.id)
            return grant is not None and list(grant.selector.destination_prefixes) == wanted  # type: ignore[attr-defined]

        await eventually(granted, 15)

        async def enforced() -> bool:
            found = await get(stub, made.id)
            return list(found.selector.destination_prefixes) == wanted and found.enforcement == rr.ENFORCEMENT_ENFORCED

        await eventually(enforced, 15)
    assert list((await get(stub, later.id)).selector.destination_prefixes) == wanted
    assert (await get(stub, fixed.id)).selector.destination_prefix == "192.0.2.2/32"
    assert platform.scalar("SELECT count(*) FROM reservations.audit WHERE action = 'rate-request.readdress'") == 2
    # Released, whatever order the agents' words come in.
    await stub.ReleaseRateRequest(pb.ReleaseRateRequestRequest(id=made.id, owner="alice"))
    for state in (4, 1, 4, 1):
        late = flow_grant_pb2.FlowGrant(request_id=made.id, generation=99)
        await platform.status(late, "resa", state)

    async def taken() -> bool:
        return any(one.generation == 99 for one in (await get(stub, made.id)).confirmations)

    await eventually(taken, 15)
    over = await get(stub, made.id)
    assert (over.lifecycle, over.enforcement) == (rr.LIFECYCLE_RELEASED, rr.ENFORCEMENT_ENDED)


async def test_quota_filters_paths_and_capacity(world: tuple[Platform, Any]) -> None:
    _, stub = world
    await stub.PutQuota(pb.PutQuotaRequest(quota=pb.Quota(owner="bob", max_requests=2, max_total_bps=30 * MEGA)))
    made = await create(stub, ask(20 * MEGA, tags={"site": "lab"}, description="Nightly copy"), "bob")
    with pytest.raises(RefusalError) as caught:
        await create(stub, ask(20 * MEGA), "bob")
    assert (caught.value.refusal.code, caught.value.refusal.ceiling_bps) == ("quota-exceeded", 10 * MEGA)
    await create(stub, ask(5 * MEGA), "bob")
    with pytest.raises(RefusalError):
        await create(stub, ask(MEGA), "bob")
    # Also somebody else who changes a request of the application takes from its quota, and is told so before.
    with pytest.raises(RefusalError) as caught, rpc.refusals():
        await stub.ChangeRateRequest(pb.ChangeRateRequestRequest(id=made.id, guaranteed_bps=40 * MEGA))
    assert (caught.value.refusal.code, caught.value.refusal.ceiling_bps) == ("quota-exceeded", 5 * MEGA)
    look = pb.ChangeRateRequestRequest(id=made.id, guaranteed_bps=40 * MEGA, preview=True)
    assert (await stub.ChangeRateRequest(look)).preview.refusal == caught.value.refusal
    listed = await stub.ListQuotas(pb.ListQuotasRequest())
    assert (listed.uses[0].requests, listed.uses[0].total_bps) == (2, 25 * MEGA)
    for wanted in ({"tags": {"site": "lab"}}, {"tags": {"site": ""}}, {"search": "nightly COPY"}):
        found = await stub.ListRateRequests(pb.ListRateRequestsRequest(**wanted))
        assert [one.id for one in found.rate_requests] == [made.id]
    assert not (await stub.ListRateRequests(pb.ListRateRequestsRequest(tags={"site": "x"}))).rate_requests
    paths = (await stub.FindPaths(pb.FindPathsRequest(source="resa", destination="resc"))).paths
    assert list(paths[0].link_ids) == list(LINKS)
    assert paths[0].free_bps == 55 * MEGA
    capacity = await stub.GetLinkCapacity(pb.GetLinkCapacityRequest(link_id=LINKS[0]))
    assert [one.committed_bps for one in capacity.steps] == [25 * MEGA]


async def test_the_default_quota_ends_requests_and_bounds_what_is_held(world: tuple[Platform, Any]) -> None:
    _, stub = world
    day_us = 86_400 * S
    default = pb.Quota(owner="default", max_requests=2, horizon_us=day_us, max_held_bps=10 * MEGA)
    await stub.PutQuota(pb.PutQuotaRequest(quota=default))
    before_us = time.time_ns() // 1000
    look = pb.PreviewRateRequestRequest(specification=ask(MEGA), owner="bob")
    assert (await stub.PreviewRateRequest(look)).granted
    made = await create(stub, ask(8 * MEGA, hold=True), "bob")
    assert 0 <= made.end_us - before_us - day_us < 30 * S
    assert made.specification.end_us == made.end_us
    for wrong, field in (
        (ask(3 * MEGA, hold=True), "guaranteed_bps"),
        (ask(MEGA, end_us=before_us + 2 * day_us), "end_us"),
    ):
        with pytest.raises(RefusalError) as caught:
            await create(stub, wrong, "bob")
        assert (caught.value.refusal.code, caught.value.refusal.field) == ("quota-exceeded", field)
    assert (
        "wait for their commit"
        in (
            await stub.PreviewRateRequest(
                pb.PreviewRateRequestRequest(specification=ask(3 * MEGA, hold=True), owner="bob")
            )
        ).refusal.detail
    )
    await create(stub, ask(3 * MEGA), "bob")
    with pytest.raises(RefusalError, match="has 2 requests"):
        await create(stub, ask(MEGA), "bob")
    # It does not bind operators.
    call = pb.CreateRateRequestRequest(specification=ask(MEGA), owner="bob", caller=tenant_pb2.Caller(operator=True))
    mine = (await stub.CreateRateRequest(call)).rate_request
    assert mine.end_us == (1 << 63) - 1 or mine.end_us == 0
    uses = {one.owner: use for one, use in await _quotas(stub)}
    assert uses["default"].requests == 0
    await stub.PutQuota(pb.PutQuotaRequest(quota=pb.Quota(owner="bob", max_held_bps=9 * MEGA)))
    found = {one.owner: (one.max_held_bps, use.requests, use.held_bps) for one, use in await _quotas(stub)}
    assert found["bob"] == (9 * MEGA, 3, 8 * MEGA)


async def test_an_end_by_the_quota_is_read_of_the_profiles_too(world: tuple[Platform, Any]) -> None:
    """By a replica that knows nothing of the link yet: the quota's end is in another block of the profile."""
    platform, stub = world
    day_us = 86_400 * S
    await stub.PutQuota(pb.PutQuotaRequest(quota=pb.Quota(owner="default", horizon_us=90 * day_us)))
    now_us = time.time_ns() // 1000
    for days in (1, 30, 89, 91, 200):
        asked = ask(MEGA, start_us=now_us + days * day_us, end_us=now_us + days * day_us + day_us)
        caller = tenant_pb2.Caller(operator=True)
        await stub.CreateRateRequest(pb.CreateRateRequestRequest(specification=asked, owner="ann", caller=caller))
    other = platform.replica("two")
    other.start()
    channel, fresh = other.stub()
    try:
        made = await create(fresh, ask(MEGA), "bob")
        assert 0 <= made.end_us - now_us - 90 * day_us < 60 * S
    finally:
        await channel.close(None)
        other.process.stop()
    check_profiles(platform)


async def _quotas(stub: Any) -> list[tuple[pb.Quota, pb.QuotaUse]]:
    listed = await stub.ListQuotas(pb.ListQuotasRequest())
    return list(zip(listed.quotas, listed.uses, strict=True))


async def test_profiles_are_made_anew_when_an_older_version_wrote(world: tuple[Platform, Any]) -> None:
    platform, stub = world
    await create(stub, ask(10 * MEGA))
    with psycopg.connect(platform.database_url) as connection:
        # As the version before this one does it: it knows no profiles.
        for link_id in LINKS:
            connection.execute(
                "INSERT INTO commitment (request_id, link_id, rate_bps, start_us, end_us)"
                " VALUES ('old', %s, %s, 0, %s)",
                (link_id, 60 * MEGA, (1 << 63) - 1),
            )
    with pytest.raises(RefusalError) as caught:
        await create(stub, ask(20 * MEGA))
    assert caught.value.refusal.ceiling_bps == 10 * MEGA
    check_profiles(platform)
    with psycopg.connect(platform.database_url) as connection:
        connection.execute("DELETE FROM commitment WHERE request_id = 'old'")
    await create(stub, ask(20 * MEGA))
    check_profiles(platform)
