"""Reservations as processes on a real PostgreSQL and Kafka: never over-committed, nothing lost by kill -9."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from chart.common import rpc
from chart.common.rpc import RefusalError
from chart.v1 import flow_grant_pb2, grant_status_pb2, reservations_pb2_grpc
from chart.v1 import rate_request_pb2 as rr
from chart.v1 import reservations_pb2 as pb
from support.postgres import PostgresServer
from support.reservations import LINKS, MEGA, Platform, Replica, ask, running
from support.waiting import eventually

pytestmark = pytest.mark.contract


@pytest_asyncio.fixture
async def platform(kafka_bootstrap: str, postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Platform]:
    async with running(kafka_bootstrap, postgres, tmp_path) as found:
        yield found


@pytest_asyncio.fixture
async def replica(platform: Platform) -> AsyncIterator[Replica]:
    one = platform.replica("one")
    one.start()
    yield one
    one.process.stop()


async def create(stub: reservations_pb2_grpc.ReservationsAsyncStub, bps: int, key: str = "") -> rr.RateRequest:
    request = pb.CreateRateRequestRequest(specification=ask(bps), owner="alice", idempotency_key=key)
    with rpc.refusals():
        return (await stub.CreateRateRequest(request)).rate_request


async def test_request_is_granted_confirmed_enforced_and_released(platform: Platform, replica: Replica) -> None:
    channel, stub = replica.stub()
    async with platform.agents("resa", "resb"):
        made = await create(stub, 10 * MEGA)
        assert made.lifecycle == rr.LIFECYCLE_ACTIVE
        assert list(made.confirming_nodes) == ["resa", "resb"]
        assert list(made.link_ids) == list(LINKS)
        await eventually(lambda: made.id in platform.grants)
        record = platform.grants.record(made.id)
        assert record is not None
        assert "traceparent" in record.headers
        # Whoever waits for it is told of each change.
        known, waited = made, 0
        while known.enforcement != rr.ENFORCEMENT_ENFORCED and waited < 10:
            call = pb.GetRateRequestRequest(id=made.id, wait_us=30_000_000, known_revision=known.revision)
            newer = (await stub.GetRateRequest(call, timeout=60)).rate_request
            assert newer.revision > known.revision
            known, waited = newer, waited + 1
        assert known.enforcement == rr.ENFORCEMENT_ENFORCED
        followed = await eventually(
            lambda: (one := platform.requests.get(made.id)) is not None and one.enforced_at_us > 0 and one  # type: ignore[attr-defined]
        )
        assert len(followed.confirmations) == 2
        released = await stub.ReleaseRateRequest(pb.ReleaseRateRequestRequest(id=made.id, owner="alice"))
        assert released.rate_request.lifecycle == rr.LIFECYCLE_RELEASED
        await eventually(lambda: made.id not in platform.grants)
    # The trace of the call goes on in the confirmation.
    trace_id = record.headers["traceparent"].split("-")[1]

    def confirmed() -> bool:
        text = "".join(path.read_text() for path in replica.state_dir.glob("traces/*.jsonl"))
        spans = [json.loads(line) for line in text.splitlines()]
        return any(span["name"] == "grant confirmed" and span["trace_id"] == trace_id for span in spans)

    await eventually(confirmed)
    await channel.close(None)


async def test_parallel_creates_at_two_replicas_never_over_commit(platform: Platform, replica: Replica) -> None:
    other = platform.replica("two")
    other.start()
    channels = [replica.stub(), other.stub()]
    try:
        answers = await asyncio.gather(
            *(create(channels[number % 2][1], 3 * MEGA) for number in range(50)), return_exceptions=True
        )
        granted = [one for one in answers if isinstance(one, rr.RateRequest)]
        refused = [one for one in answers if isinstance(one, RefusalError)]
        assert len(granted) + len(refused) == 50, [one for one in answers if not isinstance(one, RefusalError)]
        assert len(granted) == 26  # 80 of 100 Mbit/s, 3 each
        assert {one.refusal.code for one in refused} == {"insufficient-capacity"}
        assert all(one.refusal.ceiling_bps == 2 * MEGA for one in refused)
        most = platform.scalar(
            "SELECT max(total) FROM (SELECT sum(rate_bps) AS total FROM reservations.commitment GROUP BY link_id) t"
        )
        assert most == 78 * MEGA
        await eventually(lambda: all(one.id in platform.grants for one in granted))
    finally:
        for channel, _ in channels:
            await channel.close(None)
        other.process.stop()


async def test_kill_in_the_middle_of_creates_loses_nothing(platform: Platform) -> None:
    one = platform.replica("killed")
    acknowledged: list[rr.RateRequest] = []

    async def ask_on(kill: int, number: int) -> None:
        """Keep asking, as an application does, until the process is gone."""
        channel = grpc.aio.insecure_channel(one.target)
        stub = reservations_pb2_grpc.ReservationsStub(channel)
        try:
            for turn in range(100):
                request = pb.CreateRateRequestRequest(
                    specification=ask(10_000), owner="alice", idempotency_key=f"{kill}-{number}-{turn}"
                )
                acknowledged.append((await stub.CreateRateRequest(request, timeout=5)).rate_request)
        except grpc.aio.AioRpcError:
            pass
        finally:
            await channel.close(None)

    for kill in range(3):
        one.start()
        before = len(acknowledged)
        tasks = [asyncio.create_task(ask_on(kill, number)) for number in range(8)]
        await eventually(lambda before=before: len(acknowledged) >= before + 20)
        one.process.kill()
        await asyncio.gather(*tasks)
    one.start()
    try:
        await eventually(lambda: all(request.id in platform.grants for request in acknowledged), 20)
        stored = platform.scalar("SELECT count(*) FROM reservations.rate_request")
        # A request may be stored whose answer the kill took; the key makes asking again harmless.
        assert len(acknowledged) <= stored <= len(acknowledged) + 3 * 8
        committed = platform.scalar("SELECT count(*) FROM reservations.commitment")
        assert committed == stored * len(LINKS)
        channel, stub = one.stub()
        again = await create_again(stub, acknowledged[0])
        assert again.replayed
        assert again.rate_request.id == acknowledged[0].id
        await channel.close(None)
    finally:
        one.process.stop()


async def create_again(
    stub: reservations_pb2_grpc.ReservationsAsyncStub, first: rr.RateRequest
) -> pb.CreateRateRequestResponse:
    for number in range(8):
        request = pb.CreateRateRequestRequest(specification=ask(10_000), owner="alice", idempotency_key=f"0-{number}-0")
        answer = await stub.CreateRateRequest(request)
        if answer.rate_request.id == first.id:
            return answer
    raise AssertionError("the first answer did not come again")


async def test_idempotency_key(platform: Platform, replica: Replica) -> None:
    channel, stub = replica.stub()
    answers = await asyncio.gather(*(create(stub, MEGA, "k1") for _ in range(10)))
    assert len({one.id for one in answers}) == 1
    with pytest.raises(RefusalError) as caught:
        await create(stub, 2 * MEGA, "k1")
    assert caught.value.refusal.code == "idempotency-key-reused"
    assert platform.scalar("SELECT count(*) FROM reservations.rate_request") == 1
    await channel.close(None)


async def test_silent_and_failing_nodes_are_named_and_late_confirmation_heals(platform: Platform) -> None:
    one = platform.replica("quick", CHART_CONFIRMATION_LIMIT_US="500000", CHART_GRANT_VALIDITY_US="4000000")
    one.start()
    channel, stub = one.stub()
    try:
        made = await create(stub, MEGA)

        async def state() -> rr.RateRequest:
            return (await stub.GetRateRequest(pb.GetRateRequestRequest(id=made.id))).rate_request

        async def becomes(enforcement: int, words: str) -> bool:
            now = await state()
            return now.enforcement == enforcement and words in now.reason

        await eventually(lambda: made.id in platform.grants)
        grant = platform.grants.get(made.id)
        assert isinstance(grant, flow_grant_pb2.FlowGrant)
        await platform.status(grant, "resa")
        await eventually(lambda: becomes(rr.ENFORCEMENT_FAILED, "no confirmation from resb"))
        await platform.status(grant, "resb", grant_status_pb2.GRANT_STATE_FAILED, "no such interface")
        await eventually(lambda: becomes(rr.ENFORCEMENT_FAILED, "resb: no such interface"))
        await platform.status(grant, "resb")
        await eventually(lambda: becomes(rr.ENFORCEMENT_ENFORCED, ""))
        # Renewal: a new generation and a later end, and the request stays enforced.
        await eventually(lambda: platform.grants.get(made.id).generation > grant.generation)  # type: ignore[union-attr]
        assert (await state()).enforcement == rr.ENFORCEMENT_ENFORCED
    finally:
        await channel.close(None)
        one.process.stop()


async def test_pages_owner_and_filters(platform: Platform, replica: Replica) -> None:
    channel, stub = replica.stub()
    made = [(await create(stub, 1000)).id for _ in range(5)]
    seen: list[str] = []
    cursor = ""
    while True:
        page = await stub.ListRateRequests(pb.ListRateRequestsRequest(owner="alice", page_size=2, cursor=cursor))
        seen += [one.id for one in page.rate_requests]
        cursor = page.next_cursor
        if not cursor:
            break
    assert sorted(seen) == sorted(made)
    assert seen == sorted(seen, reverse=True)
    nobody = await stub.ListRateRequests(pb.ListRateRequestsRequest(owner="bob"))
    assert list(nobody.rate_requests) == []
    with rpc.refusals(), pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.ReleaseRateRequest(pb.ReleaseRateRequestRequest(id=made[0], owner="bob"))
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND
    ended = pb.ListRateRequestsRequest(lifecycle=rr.LIFECYCLE_RELEASED)
    assert list((await stub.ListRateRequests(ended)).rate_requests) == []
    await channel.close(None)


async def test_preview_says_what_commit_does(platform: Platform, replica: Replica) -> None:
    """A hundred random asks, in the present and the future, on links that fill up."""
    channel, stub = replica.stub()
    chance = random.Random(7)
    outcomes, waited = set(), set()
    now_us = time.time_ns() // 1000
    for _ in range(100):
        start_us = chance.choice([0, now_us + chance.randint(3600, 7200) * MEGA])
        length_us = chance.randint(600, 3600) * MEGA
        specification = ask(
            chance.randint(1, 30) * MEGA,
            minimum_bps=chance.choice([0, MEGA]),
            start_us=start_us,
            end_us=chance.choice([0, (start_us or now_us) + length_us]),
        )
        preview = await stub.PreviewRateRequest(pb.PreviewRateRequestRequest(specification=specification))
        refusal: pb.Refusal | None = None
        try:
            with rpc.refusals():
                request = pb.CreateRateRequestRequest(specification=specification, owner="alice")
                made = (await stub.CreateRateRequest(request)).rate_request
        except RefusalError as error:
            refusal = error.refusal
            outcomes.add("refused")
        else:
            assert preview.granted_bps == made.granted_bps
            assert list(preview.link_ids) == list(made.link_ids)
            # A second when only the clocks' difference is waited for: from the moment of each call.
            assert abs(preview.waits_until_us - made.waits_until_us) < 2 * MEGA
            waited.add(made.waits_until_us > 0)
            outcomes.add("granted" if made.granted_bps == specification.guaranteed_bps else "less")
            if chance.random() < 0.3:
                await stub.ReleaseRateRequest(pb.ReleaseRateRequestRequest(id=made.id))
        assert preview.granted == (refusal is None)
        if refusal is not None:
            assert preview.refusal == refusal
    assert outcomes == {"granted", "less", "refused"}
    assert waited == {True, False}
    await channel.close(None)
