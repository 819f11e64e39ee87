"""What every broker promises; run against the local one under a fake clock and against a real Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import cast

import pytest
import pytest_asyncio

from chart.common import record_mac, telemetry
from chart.common.clock import FakeClock
from chart.common.record_check import RecordCheck
from chart.common.streams import Broker, KafkaBroker, LocalBroker, Record, StreamRejected, Subscription
from chart.v1 import link_load_pb2, node_state_pb2, policy_pb2
from support.kafka import fresh_catalogue
from support.waiting import eventually

pytestmark = pytest.mark.timeout(300)
LIMIT_S = 15.0


@dataclass
class Streams:
    """A broker with two streams of its own: `state` (compacted) and `work` (16 partitions)."""

    broker: Broker
    state: str
    work: str


@pytest_asyncio.fixture(params=["local", pytest.param("kafka", marks=pytest.mark.contract)])
async def streams(request: pytest.FixtureRequest) -> AsyncIterator[Streams]:
    kind = request.param
    bootstrap = request.getfixturevalue("kafka_bootstrap") if kind == "kafka" else None
    catalogue, names = fresh_catalogue(bootstrap, state="chart.policy.v1", work="chart.link-load.v1")
    broker: Broker = (
        KafkaBroker(bootstrap, catalogue=catalogue) if bootstrap else LocalBroker(FakeClock(), catalogue=catalogue)
    )
    yield Streams(broker, names["state"], names["work"])
    await broker.close()


def policy(identity: str, revision: int = 1) -> policy_pb2.Policy:
    return policy_pb2.Policy(id=identity, revision=revision)


async def take(subscription: Subscription, count: int) -> list[Record]:
    async with asyncio.timeout(LIMIT_S):
        return [await anext(subscription) for _ in range(count)]


class TestBroker:
    async def test_a_record_arrives_as_it_was_sent(self, streams: Streams) -> None:
        async with streams.broker.subscribe([streams.state]) as subscription:
            await streams.broker.publish(streams.state, "default", policy("default", 7), headers={"origin": "test"})
            (record,) = await take(subscription, 1)
        assert record.topic == streams.state
        assert record.key == "default"
        assert record.value == policy("default", 7)
        assert record.headers["origin"] == "test"
        assert record.headers["type"] == "chart.v1.Policy"
        assert (record.partition, record.offset) == (0, 0)
        assert record.timestamp_us > 1_700_000_000_000_000

    async def test_a_record_carries_the_trace_it_was_sent_in(self, streams: Streams) -> None:
        async with streams.broker.subscribe([streams.state]) as subscription:
            with telemetry.span("cause") as span:
                await streams.broker.publish(streams.state, "default", policy("default"))
            (record,) = await take(subscription, 1)
        assert f"{span.get_span_context().trace_id:032x}" in record.headers["traceparent"]

    async def test_latest_starts_where_the_context_was_entered(self, streams: Streams) -> None:
        await streams.broker.publish(streams.state, "before", policy("before"))
        async with streams.broker.subscribe([streams.state], start="latest") as subscription:
            await streams.broker.publish(streams.state, "after", policy("after"))
            (record,) = await take(subscription, 1)
        assert record.key == "after"

    async def test_earliest_reads_everything_and_says_when_it_has(self, streams: Streams) -> None:
        for number in range(5):
            await streams.broker.publish(streams.state, f"k{number}", policy(f"k{number}"))
        async with streams.broker.subscribe([streams.state], start="earliest") as subscription:
            records = await take(subscription, 5)
            waiting = asyncio.ensure_future(anext(subscription))
            async with asyncio.timeout(LIMIT_S):
                await subscription.caught_up.wait()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert [record.key for record in records] == [f"k{number}" for number in range(5)]

    async def test_records_of_a_key_keep_their_order(self, streams: Streams) -> None:
        async with streams.broker.subscribe([streams.work], start="earliest") as subscription:
            reports = [
                (f"node{number % 7}", link_load_pb2.LinkLoadReport(node=f"node{number % 7}", sequence=number))
                for number in range(210)
            ]
            await asyncio.gather(*(streams.broker.publish(streams.work, key, report) for key, report in reports))
            records = await take(subscription, len(reports))
        for key in {key for key, _ in reports}:
            values = [record.value for record in records if record.key == key]
            sequences = [value.sequence for value in values if isinstance(value, link_load_pb2.LinkLoadReport)]
            assert sequences == sorted(sequences)
            assert len(sequences) == 30
        assert len({record.partition for record in records}) > 1

    async def test_records_that_are_ready_are_handed_out_once_and_in_order(self, streams: Streams) -> None:
        async with streams.broker.subscribe([streams.state]) as subscription:
            sent = [policy("default", number) for number in range(300)]
            for one in sent:
                await streams.broker.publish(streams.state, "default", one)
            found: list[Record] = []
            async with asyncio.timeout(LIMIT_S):
                while len(found) < len(sent):
                    found += [await anext(subscription), *subscription.ready()]
        assert [record.value for record in found] == sent
        assert [record.offset for record in found] == list(range(300))

    async def test_a_tombstone_is_a_record_without_value(self, streams: Streams) -> None:
        async with streams.broker.subscribe([streams.state]) as subscription:
            await streams.broker.publish(streams.state, "gone", None)
            (record,) = await take(subscription, 1)
        assert record.key == "gone"
        assert record.value is None

    async def test_another_message_than_the_catalogue_says_is_refused(self, streams: Streams) -> None:
        with pytest.raises(TypeError, match=r"carries chart\.v1\.Policy"):
            await streams.broker.publish(streams.state, "x", link_load_pb2.LinkLoadReport())

    async def test_a_stream_outside_the_catalogue_is_refused(self, streams: Streams) -> None:
        with pytest.raises(KeyError, match="not in the catalogue"):
            await streams.broker.publish("no.such.stream", "x", policy("x"))

    async def test_giving_up_a_wait_loses_nothing(self, streams: Streams) -> None:
        async with streams.broker.subscribe([streams.state]) as subscription:
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(subscription), 0.01)
            for number in range(3):
                await streams.broker.publish(streams.state, str(number), policy(str(number)))
            records = await take(subscription, 3)
        assert [record.key for record in records] == ["0", "1", "2"]

    async def test_what_cannot_be_read_goes_to_the_dead_letters_with_the_reason(self, streams: Streams) -> None:
        async with (
            streams.broker.subscribe([streams.state]) as subscription,
            streams.broker.subscribe([streams.state + ".dlq"]) as letters,
        ):
            await streams.broker.publish_raw(streams.state, "bad", b"\xff\xff\xff", {"type": "chart.v1.Policy"})
            await streams.broker.publish_raw(streams.state, "alien", b"", {"type": "other.Message"})
            await streams.broker.publish(streams.state, "good", policy("good"))
            (record,) = await take(subscription, 1)
            buried = await take(letters, 2)
        assert record.key == "good"
        assert [letter.headers["key"] for letter in buried] == ["bad", "alien"]
        assert "not a chart.v1.Policy" in buried[0].headers["reason"]
        assert "other.Message" in buried[1].headers["reason"]
        assert buried[0].headers["offset"] == "0"


class TestGroup:
    async def test_a_member_resumes_after_the_last_commit(self, streams: Streams) -> None:
        for number in range(4):
            await streams.broker.publish(streams.state, f"k{number}", policy(f"k{number}"))
        async with streams.broker.subscribe([streams.state], group="g", start="earliest") as first:
            records = await take(first, 3)
            await first.commit(records[1])
        async with streams.broker.subscribe([streams.state], group="g", start="earliest") as second:
            again = await take(second, 2)
        assert [record.key for record in again] == ["k2", "k3"]

    async def test_members_share_the_partitions_and_a_leaver_hands_over(self, streams: Streams) -> None:
        told: list[int] = []

        async def drain(subscription: Subscription) -> None:
            async for record in subscription:
                await subscription.commit(record)

        everything = {(streams.work, number) for number in range(16)}
        async with streams.broker.subscribe(
            [streams.work], group="g", start="earliest", on_partitions=lambda share: told.append(len(share))
        ) as first:
            draining = asyncio.ensure_future(drain(first))
            await eventually(lambda: len(first.partitions) == 16, LIMIT_S)
            async with streams.broker.subscribe([streams.work], group="g", start="earliest") as second:
                draining_too = asyncio.ensure_future(drain(second))
                await eventually(lambda: len(first.partitions) == 8 and len(second.partitions) == 8, LIMIT_S)
                assert first.partitions | second.partitions == everything
                draining_too.cancel()
                await asyncio.gather(draining_too, return_exceptions=True)
            await eventually(lambda: first.partitions == everything, LIMIT_S)
            draining.cancel()
            await asyncio.gather(draining, return_exceptions=True)
        assert told[0] == 16
        assert 8 in told

    async def test_commit_without_a_group_is_an_error(self, streams: Streams) -> None:
        async with streams.broker.subscribe([streams.state]) as subscription:
            await streams.broker.publish(streams.state, "x", policy("x"))
            (record,) = await take(subscription, 1)
            with pytest.raises(ValueError, match="group"):
                await subscription.commit(record)


class TestCompactedState:
    async def test_holds_the_newest_value_of_each_key(self, streams: Streams) -> None:
        for revision in (1, 2, 3):
            for key in ("a", "b"):
                await streams.broker.publish(streams.state, key, policy(key, revision))
        await streams.broker.publish(streams.state, "a", None)
        state = await streams.broker.compacted(streams.state)
        assert state.ready
        assert state.get("a") is None
        assert state.get("b") == policy("b", 3)
        assert state.items() == [("b", policy("b", 3))]
        record = state.record("b")
        assert record is not None
        assert record.offset == 5

    async def test_an_empty_stream_is_read_at_once(self, streams: Streams) -> None:
        state = await streams.broker.compacted(streams.state)
        assert len(state) == 0

    async def test_a_stream_that_others_keep_writing_is_read_to_where_it_ended_at_the_start(
        self, streams: Streams
    ) -> None:
        written = 0

        async def write() -> None:
            nonlocal written
            while True:
                written += 1
                await streams.broker.publish(streams.state, f"k{written % 50}", policy(f"k{written % 50}", written))

        writers = [asyncio.ensure_future(write()) for _ in range(4)]
        try:
            await eventually(lambda: written >= 200, LIMIT_S)
            held_before = {f"k{number}" for number in range(50)}
            async with asyncio.timeout(5):
                state = await streams.broker.compacted(streams.state)
            assert held_before <= set(state.keys())
            assert not any(writer.done() for writer in writers)
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)

    async def test_follows_changes(self, streams: Streams) -> None:
        await streams.broker.publish(streams.state, "a", policy("a", 1))
        state = await streams.broker.compacted(streams.state)
        changes = state.subscribe_changes()
        await streams.broker.publish(streams.state, "a", policy("a", 2))
        async with asyncio.timeout(LIMIT_S):
            assert await anext(changes) == ("a", policy("a", 2))
        await streams.broker.publish(streams.state, "a", None)
        async with asyncio.timeout(LIMIT_S):
            assert await anext(changes) == ("a", None)
        assert state.get("a") is None

    async def test_changes_with_current_start_with_what_is_there_and_end_with_the_state(self, streams: Streams) -> None:
        await streams.broker.publish(streams.state, "a", policy("a", 1))
        state = await streams.broker.compacted(streams.state)
        changes = state.subscribe_changes(with_current=True)
        await state.close()
        assert [change async for change in changes] == [("a", policy("a", 1))]


@pytest.mark.contract
async def test_kafka_refuses_a_record_that_is_too_large_for_good(kafka_bootstrap: str) -> None:
    catalogue, names = fresh_catalogue(kafka_bootstrap, state="chart.policy.v1")
    broker = KafkaBroker(kafka_bootstrap, catalogue=catalogue)
    with pytest.raises(StreamRejected):
        await broker.publish(names["state"], "x", policy("x" * 3_000_000))
    await broker.close()


class SlowKeys:
    """Keys of a node that the authority tells only when it is let."""

    def __init__(self) -> None:
        self.answered = asyncio.Event()

    async def keys(self, node: str) -> dict[int, tuple[bytes, int]]:
        await self.answered.wait()
        return {7: (node.encode(), time.time_ns() // 1000 + 60_000_000)}

    async def enrolled(self) -> frozenset[str]:
        return frozenset({"alpha"})

    async def close(self) -> None:
        pass


@pytest.mark.contract
async def test_who_gives_up_while_a_record_is_checked_reads_it_the_next_time(kafka_bootstrap: str) -> None:
    source = SlowKeys()
    broker = KafkaBroker(kafka_bootstrap, record_check=RecordCheck(source, "require"))
    topic, key = "chart.node-state.v1", "alpha"
    async with broker.subscribe([topic], start="latest") as subscription:
        for number in range(3):
            state = node_state_pb2.NodeState(node=key, reported_at_us=number)
            code = record_mac.header(key, 7, key.encode(), topic, key, state.SerializeToString())
            await broker.publish(topic, key, state, headers={record_mac.HEADER: code})
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(subscription), 1.0)
        source.answered.set()
        read = [cast(node_state_pb2.NodeState, record.value).reported_at_us for record in await take(subscription, 3)]
    assert read == [0, 1, 2]
    await broker.close()
