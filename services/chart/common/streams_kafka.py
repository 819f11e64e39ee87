"""Streams on Kafka: confluent-kafka's plain Producer and Consumer in threads, awaited from asyncio.

The asyncio classes of confluent-kafka refuse headers, hence threads: one polls the producer for acknowledgements, and
each subscription has one that fetches while a record is awaited, so a slow reader slows the fetching and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from chart.common import catalogue as catalogues
from chart.common import kafka_properties, record_mac, telemetry
from chart.common.compacted import CompactedState
from chart.common.identity_files import IdentityFiles
from chart.common.records import Outgoing, Partition, Start, StreamError, StreamRejected, StreamUnavailable, encode
from chart.common.streams_kafka_reader import KafkaSubscription

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from chart.common.catalogue import Catalogue
    from chart.common.record_check import RecordCheck
    from chart.common.record_sign import RecordSigner

# Records that may wait for an acknowledgement; further publishers wait their turn.
MAX_UNACKNOWLEDGED = 10_000
# A producer lives on for so long, at least, after another one took its place.
FORMER_S = 2.0

Headers = list[tuple[str, str | bytes | None]]

_log = structlog.get_logger("chart.streams")


class _Together:
    """Records that are waited for together. `settle` is called in the event loop."""

    __slots__ = ("_left", "done", "errors")

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.errors: list[KafkaError | None] = [None] * number
        self.done: asyncio.Future[None] = loop.create_future()
        self._left = number

    def settle(self, place: int, error: KafkaError | None) -> None:
        """One of them was acknowledged, or will not be."""
        self.errors[place] = error
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)


# What no retry can cure: the record or the topic is wrong.
_REJECTED = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_RECORD,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class KafkaBroker:
    """Streams of a Kafka cluster. Belongs to the event loop in which it is first used."""

    def __init__(
        self,
        bootstrap: str,
        *,
        delivery_timeout_ms: int = 10_000,
        catalogue: Catalogue | None = None,
        record_check: RecordCheck | None = None,
        record_signer: RecordSigner | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self.record_check = record_check
        self._record_signer = record_signer
        self.catalogue = catalogue or catalogues.load()
        self._delivery_timeout_ms = delivery_timeout_ms
        self._files = IdentityFiles()
        self._producer = self._make_producer()
        # Former producers that may still have records under way, and when their successor took over.
        self._former: list[tuple[Producer, float]] = []
        self._renewal: threading.Thread | None = None
        # Held where a former one is left alone, by the poller or by who closes.
        self._parting = threading.Lock()
        self._room = asyncio.Semaphore(MAX_UNACKNOWLEDGED)
        # Filled by the thread that polls the producer, emptied in the event loop.
        self._acknowledged: deque[tuple[_Together, int, KafkaError | None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closing = threading.Event()
        self._poller = threading.Thread(target=self._poll, name="kafka-producer", daemon=True)
        self._poller.start()
        self._states: list[CompactedState] = []
        self._closed = False

    def _make_producer(self) -> Producer:
        return Producer(
            {
                **kafka_properties.load(),
                "bootstrap.servers": self.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 2,
                "compression.type": "lz4",
                "message.timeout.ms": self._delivery_timeout_ms,
                "queue.buffering.max.messages": 2 * MAX_UNACKNOWLEDGED,
                "reconnect.backoff.ms": 50,
                "reconnect.backoff.max.ms": 1000,
                "socket.timeout.ms": 10_000,
                "error_cb": _note_error,
                "log_level": 3,
            }
        )

    async def publish(
        self, topic: str, key: str, value: Message | None, *, headers: dict[str, str] | None = None
    ) -> None:
        """Write one record; returns when it is acknowledged. Raises StreamUnavailable or StreamRejected."""
        payload, kind = encode(self.catalogue, topic, value)
        await self.publish_raw(topic, key, payload, {"type": kind, **(headers or {})})

    async def publish_raw(self, topic: str, key: str, payload: bytes | None, headers: dict[str, str]) -> None:
        """Write bytes that are encoded already. Raises StreamUnavailable or StreamRejected."""
        if self._closed:
            msg = f"record of {topic} was not sent: the connection to the broker is closed"
            raise StreamUnavailable(msg)
        headers = self._signed(topic, key, payload, headers)
        async with self._room:
            self._loop = asyncio.get_running_loop()
            together = _Together(1, self._loop)
            await self._produce(topic, key, payload, _encoded(headers), self._delivered(together, 0))
            await together.done
        if (error := _failure(topic, key, together.errors[0])) is not None:
            raise error

    async def publish_together(self, records: Sequence[Outgoing]) -> list[StreamError | None]:
        """Write records of different keys; one error or None for each, in their order."""
        if self._closed or not records:
            return [StreamUnavailable("the connection to the broker is closed") for _ in records]
        self._loop = asyncio.get_running_loop()
        together = _Together(len(records), self._loop)
        failures: list[StreamError | None] = [None] * len(records)
        for place, (topic, key, payload, headers) in enumerate(records):
            try:
                encoded = _encoded(self._signed(topic, key, payload, headers))
                self._produce_now(topic, key, payload, encoded, self._delivered(together, place))
            except BufferError:
                failures[place] = StreamUnavailable(f"record of {topic} with key {key!r} found no room")
            except StreamError as error:
                failures[place] = error
            if failures[place] is not None:
                together.settle(place, None)
        await together.done
        return [
            failure or _failure(one[0], one[1], error)
            for failure, one, error in zip(failures, records, together.errors, strict=True)
        ]

    def _signed(self, topic: str, key: str, payload: bytes | None, headers: dict[str, str]) -> dict[str, str]:
        """With the code of the node that this process writes for. Raises StreamUnavailable: it has no key now."""
        code = self._record_signer.header(topic, key, payload) if self._record_signer is not None else None
        return {**headers, record_mac.HEADER: code} if code is not None else headers

    def _delivered(self, together: _Together, place: int) -> Callable[[KafkaError | None, Any], None]:
        def delivered(error: KafkaError | None, _message: Any) -> None:
            self._acknowledged.append((together, place, error))

        return delivered

    async def _produce(self, topic: str, key: str, payload: bytes | None, headers: Headers, delivered: Any) -> None:
        """Hand a record to librdkafka; its queue is bounded in bytes too, so wait while it is full."""
        for _ in range(max(1, self._delivery_timeout_ms // 10)):
            try:
                self._produce_now(topic, key, payload, headers, delivered)
            except BufferError:
                await asyncio.sleep(0.01)
            else:
                return
        msg = f"record of {topic} with key {key!r} found no room in the producer's queue"
        raise StreamUnavailable(msg)

    def _produce_now(self, topic: str, key: str, payload: bytes | None, headers: Headers, delivered: Any) -> None:
        try:
            self._producer.produce(topic, key=key.encode(), value=payload, headers=headers, on_delivery=delivered)
        except KafkaException as error:
            msg = f"record of {topic} with key {key!r} was refused: {error}"
            raise StreamRejected(msg) from error

    def _poll(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(0.1)
            self._part_from_former()
            self._hand_over()
            renewing = self._renewal is not None and self._renewal.is_alive()
            if not renewing and not self._closed and self._files.renewed():
                # The broker's answer is waited for; acknowledgements are not to wait for that too.
                self._renewal = threading.Thread(target=self._renew, name="kafka-renewal", daemon=True)
                self._renewal.start()

    def _renew(self) -> None:
        """Records go through another producer from now on, with the identity that was renewed. Those of one key keep
        their order: who publishes waits for the acknowledgement before the next.
        """
        successor = self._files.successor(self._make_producer)
        if successor is not None:
            before, self._producer = self._producer, successor
            self._former.append((before, time.monotonic()))

    def _part_from_former(self) -> None:
        for former in list(self._former):
            producer, since = former
            producer.poll(0)
            # Whoever took it for the present one a moment ago has handed over its record by now.
            over = len(producer) == 0 and time.monotonic() > since + FORMER_S
            with self._parting:
                over = over and not self._closed
                if over:
                    self._former.remove(former)
            if over:
                producer.close()

    def _hand_over(self) -> None:
        """Tell the event loop what was acknowledged, once for all that came together: waking it costs a system call."""
        if self._acknowledged and self._loop is not None:
            # The loop may have ended before the acknowledgement came: nobody waits for it any more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._settle)

    def _settle(self) -> None:
        while self._acknowledged:
            together, place, error = self._acknowledged.popleft()
            together.settle(place, error)

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        group: str | None = None,
        start: Start = "latest",
        on_partitions: Callable[[frozenset[Partition]], None] | None = None,
    ) -> KafkaSubscription:
        """Records of the topics from `start` on; with a group the members share the partitions."""
        return KafkaSubscription(self, tuple(topics), group, start, on_partitions)

    async def compacted(self, topic: str) -> CompactedState:
        """The newest value of each key of a topic, followed from then on."""
        state = CompactedState(topic, self.subscribe([topic], start="earliest"))
        try:
            await state.start()
            await state.wait_ready()
        except BaseException:
            await state.close()
            raise
        self._states.append(state)
        return state

    async def reachable(self) -> None:
        """Health check: the cluster answers within 2 s.

        Raises:
            StreamUnavailable: it does not.
        """
        try:
            await asyncio.to_thread(self._producer.list_topics, "chart.policy.v1", 1.5)
        except KafkaException as error:
            msg = f"Kafka at {self.bootstrap} does not answer: {error.args[0].str()}"
            raise StreamUnavailable(msg) from error

    async def close(self) -> None:
        """Send what is queued and close the connections. Waits at most 3 s for acknowledgements."""
        if self._closed:
            return
        with self._parting:
            self._closed = True
        for state in self._states:
            await state.close()
        producers = [self._producer, *(former for former, _ in self._former)]
        left = sum(await asyncio.gather(*(asyncio.to_thread(one.flush, 3.0) for one in producers)))
        self._settle()
        if left:
            _log.warning("records were not acknowledged before closing", records=left)
            for one in producers:
                one.purge()
        if self.record_check is not None:
            await self.record_check.close()
        self._closing.set()
        await asyncio.to_thread(self._poller.join)
        if self._renewal is not None:
            await asyncio.to_thread(self._renewal.join)
        for one in [self._producer, *(former for former, _ in self._former)]:
            await asyncio.to_thread(one.close)
        # What was purged answered while nobody handed it over any more.
        self._settle()


def _encoded(headers: dict[str, str]) -> Headers:
    return [(name, value.encode()) for name, value in telemetry.inject(headers).items()]


def _failure(topic: str, key: str, error: KafkaError | None) -> StreamError | None:
    if error is None:
        return None
    msg = f"record of {topic} with key {key!r} was not acknowledged: {error.str()}"
    return StreamRejected(msg) if error.code() in _REJECTED else StreamUnavailable(msg)


def _note_error(error: KafkaError) -> None:
    """Called by librdkafka for what is wrong with the connection; it tries again by itself."""
    _log.warning("the broker's connection has a fault, librdkafka tries again", fault=error.str())
