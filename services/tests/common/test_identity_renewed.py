"""Clients of the broker go on after their certificate was renewed, also when the former one has ended."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from confluent_kafka import KafkaException

from chart.common import identity_files
from chart.common.identity_files import IdentityFiles
from chart.common.streams import KafkaBroker, StreamError, Subscription
from chart.v1 import link_rate_pb2
from support import protected_kafka as protected
from support.protected_kafka import ProtectedKafka, environment
from support.waiting import eventually

TOPIC = "chart.link-rate.v1"
IDENTITY = "service/allocator"
# Long enough to start and to renew, short enough to wait for.
SHORT_LIFE_S = 12


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[ProtectedKafka]:
    """A broker that this test starts anew."""
    with protected.running(tmp_path) as made:
        yield made


@dataclass
class Service:
    """What a service has of the streams, and the numbers of the records that came by each way."""

    broker: KafkaBroker
    subscriptions: dict[str, Subscription]
    sent: Iterator[int]
    came: dict[str, set[int]]

    async def follow(self, way: str) -> None:
        async for record in self.subscriptions[way]:
            assert isinstance(record.value, link_rate_pb2.LinkRates)
            self.came[way].add(record.value.generation)
            if way == "group":
                await self.subscriptions[way].commit(record)

    async def arrives(self, limit_s: float = 30.0) -> None:
        """A record that is published now reaches every subscription."""
        number = next(self.sent)

        async def published() -> bool:
            try:
                await self.broker.publish(TOPIC, "alpha", link_rate_pb2.LinkRates(node="alpha", generation=number))
            except StreamError:
                return False
            return True

        await eventually(published, limit_s)
        await eventually(lambda: all(number in found for found in self.came.values()), limit_s)


@pytest_asyncio.fixture
async def service(own_kafka: ProtectedKafka) -> AsyncIterator[Service]:
    protected.issue(own_kafka.folder, own_kafka.authority, IDENTITY, SHORT_LIFE_S)
    with environment(own_kafka, IDENTITY):
        broker = KafkaBroker(own_kafka.server.bootstrap, delivery_timeout_ms=3000)
        made = {"alone": broker.subscribe([TOPIC]), "group": broker.subscribe([TOPIC], group="allocator-renewed")}
        one = Service(broker, dict(made), itertools.count(1), {way: set() for way in made})
        async with made["alone"], made["group"]:
            following = [asyncio.create_task(one.follow(way)) for way in made]
            yield one
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
        await broker.close()


@pytest.mark.contract
@pytest.mark.timeout(300)
async def test_records_flow_after_the_former_certificate_has_ended(service: Service, own_kafka: ProtectedKafka) -> None:
    until_s = time.monotonic() + SHORT_LIFE_S
    await service.arrives()
    protected.issue(own_kafka.folder, own_kafka.authority, IDENTITY)
    await service.arrives()
    await eventually(lambda: time.monotonic() > until_s + 1, SHORT_LIFE_S + 5)
    # Every connection is made anew, and the former certificate would be refused.
    await asyncio.to_thread(own_kafka.server.stop)
    await asyncio.to_thread(own_kafka.server.start)
    await service.arrives()
    assert service.came["alone"] == set(range(1, next(service.sent))), "a record was missed at the change"


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Client:
    """One that the broker answers, or does not."""

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers

    def list_topics(self, topic: str = "", timeout: float = -1) -> None:
        assert topic
        assert timeout > 0
        if not self.answers:
            raise KafkaException("no answer")


@pytest.fixture
def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "service.crt"
    path.write_text("one")
    properties = tmp_path / "kafka.properties"
    properties.write_text(f"security.protocol=ssl\nssl.certificate.location={path}\n")
    monkeypatch.setenv("CHART_KAFKA_PROPERTIES", str(properties))
    return path


def replace(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(text)
    draft.rename(path)


def test_a_renewed_file_is_seen_within_a_second_and_used_once_the_broker_answered(certificate: Path) -> None:
    clock = Clock()
    files = IdentityFiles(clock)
    clock.now_s = 2 * identity_files.LOOK_EVERY_S
    assert not files.renewed()
    replace(certificate, "two")
    assert not files.renewed()  # it looked a moment ago
    clock.now_s += identity_files.LOOK_EVERY_S
    assert files.renewed()
    # It does not answer to the new one: the client in use stays, and it is tried again after a while.
    assert files.successor(lambda: Client(answers=False)) is None
    assert not files.renewed()
    clock.now_s += identity_files.RETRY_S
    assert files.renewed()
    client = Client()
    assert files.successor(lambda: client) is client
    clock.now_s += identity_files.RETRY_S
    assert not files.renewed()


def test_files_that_do_not_belong_together_are_tried_again(certificate: Path) -> None:
    clock = Clock()
    files = IdentityFiles(clock)
    replace(certificate, "two")
    clock.now_s = identity_files.LOOK_EVERY_S
    assert files.renewed()

    def mismatch() -> Client:
        raise KafkaException("the key is another certificate's")

    assert files.successor(mismatch) is None
    clock.now_s += identity_files.RETRY_S
    assert files.renewed()


def test_what_is_away_for_a_moment_is_no_renewal(certificate: Path) -> None:
    clock = Clock()
    files = IdentityFiles(clock)
    certificate.unlink()
    clock.now_s = identity_files.LOOK_EVERY_S
    assert not files.renewed()


def test_without_files_nothing_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHART_KAFKA_PROPERTIES", raising=False)
    clock = Clock()
    files = IdentityFiles(clock)
    clock.now_s = 100.0
    assert not files.renewed()
