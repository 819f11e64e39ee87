"""The simulated streams keep Kafka's promises, and break what Kafka does not promise."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator

import pytest

from chart.common.records import Record, StreamUnavailable
from chart.v1 import link_load_pb2
from chart_lab.simulation.broker import COORDINATE_S, SESSION_TIMEOUT_S, SimulatedBroker, SimulatedSubscription
from chart_lab.simulation.loop import DeadlockError, SimulatedLoop
from chart_lab.simulation.processes import Process
from support import simulated

TOPIC = "chart.link-load.v1"


class Bench(simulated.Bench):
    def __init__(self) -> None:
        super().__init__()
        self.broker = SimulatedBroker(self.loop, random.Random(1))

    def run(self, story: Callable[[], Coroutine[None, None, None]]) -> None:
        async def with_coordinator() -> None:
            coordinator = asyncio.ensure_future(self.broker.coordinate())
            async with asyncio.timeout(60):
                await story()
            coordinator.cancel()

        super().run(with_coordinator)


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    one.end()


def load(node: str, sequence: int) -> link_load_pb2.LinkLoadReport:
    return link_load_pb2.LinkLoadReport(node=node, sequence=sequence)


async def take(subscription: SimulatedSubscription, count: int) -> list[Record]:
    return [await anext(subscription) for _ in range(count)]


def sequences(records: list[Record]) -> list[int]:
    return [record.value.sequence for record in records if isinstance(record.value, link_load_pb2.LinkLoadReport)]


def test_records_of_a_key_come_in_order_and_a_late_reader_gets_all(bench: Bench) -> None:
    client = bench.broker.client(bench.process("writer"))

    async def story() -> None:
        await asyncio.gather(*(client.publish(TOPIC, "n1", load("n1", number)) for number in range(20)))
        async with client.subscribe([TOPIC], start="earliest") as records:
            assert sequences(await take(records, 20)) == list(range(20))
            # Whoever asks for the next one has dealt with all of them.
            following = asyncio.ensure_future(anext(records))
            await records.caught_up.wait()
            following.cancel()

    bench.run(story)


def test_a_broker_that_is_away_takes_nothing_and_says_so(bench: Bench) -> None:
    client = bench.broker.client(bench.process("writer"))

    async def story() -> None:
        bench.broker.up = False
        with pytest.raises(StreamUnavailable, match="was not acknowledged"):
            await client.publish(TOPIC, "n1", load("n1", 1))
        assert bench.broker.value(TOPIC, "n1") is None

    bench.run(story)


def test_a_lost_acknowledgement_is_an_error_although_the_record_is_there(bench: Bench) -> None:
    writer = bench.process("writer")
    client = bench.broker.client(writer)
    bench.broker.watchers.append(lambda topic, record: writer.cut.add("broker"))

    async def story() -> None:
        with pytest.raises(StreamUnavailable):
            await client.publish(TOPIC, "n1", load("n1", 1))
        assert bench.broker.value(TOPIC, "n1") == load("n1", 1)

    bench.run(story)


def test_members_share_and_a_dead_one_is_replaced_after_the_session_timeout(bench: Bench) -> None:
    one, two, writer = bench.process("one"), bench.process("two"), bench.process("writer")

    async def member(process: Process, taken: list[Record]) -> None:
        async with bench.broker.client(process).subscribe([TOPIC], group="g", start="earliest") as records:
            async for record in records:
                taken.append(record)
                await records.commit(record)

    async def story() -> None:
        first: list[Record] = []
        second: list[Record] = []
        one.spawn(member(one, first))
        two.spawn(member(two, second))
        await asyncio.sleep(1.0)
        client = bench.broker.client(writer)
        for number in range(16):
            await client.publish(TOPIC, f"n{number}", load(f"n{number}", 1))
        await asyncio.sleep(2.0)
        assert first
        assert second
        assert len(first) + len(second) == 16
        one.kill()
        died_s = bench.loop.time()
        before = len(second)
        for number in range(16):
            await client.publish(TOPIC, f"n{number}", load(f"n{number}", 2))
        for _ in range(100):
            if sequences(second[before:]).count(2) == 16:
                break
            await asyncio.sleep(0.1)
        # Everything since the last commits, and nothing of it missing.
        assert sequences(second[before:]).count(2) == 16
        noticed_s = bench.loop.time() - died_s
        assert SESSION_TIMEOUT_S - COORDINATE_S <= noticed_s <= SESSION_TIMEOUT_S + 3.0

    bench.run(story)


def test_a_state_holds_the_newest_value_of_each_key(bench: Bench) -> None:
    client = bench.broker.client(bench.process("reader"))

    async def story() -> None:
        for number in range(3):
            await client.publish("chart.link-load.v1", "n1", load("n1", number))
        state = await client.compacted(TOPIC)
        assert state.get("n1") == load("n1", 2)
        await client.close()

    bench.run(story)


def test_waiting_for_nothing_is_an_error_and_not_a_hang() -> None:
    loop = SimulatedLoop()
    with pytest.raises(DeadlockError):
        loop.run_until_complete(loop.create_future())
    loop.close()
