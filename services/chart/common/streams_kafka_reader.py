"""Reading streams from Kafka: one consumer per subscription, fetched in a thread while a record is awaited.

Without a group partitions are assigned by hand and nothing is committed; with one the members share the partitions by
the cooperative-sticky protocol and commit by hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from tenacity import RetryError, Retrying, retry_if_exception_type, retry_if_not_result, stop_after_delay, wait_fixed
from tenacity.retry import retry_base

from chart.common import broker_access, kafka_properties
from chart.common.catalogue import DLQ_SUFFIX
from chart.common.counters import from_zero
from chart.common.identity_files import IdentityFiles
from chart.common.record_mac import RecordMacError
from chart.common.records import (
    UNREADABLE,
    Partition,
    Record,
    Start,
    StreamError,
    StreamUnavailable,
    UnreadableRecord,
    dead_letter_headers,
    dead_letter_key,
    decode,
)

if TYPE_CHECKING:
    from chart.common.catalogue import Catalogue
    from chart.common.record_check import RecordCheck

# Fetched records held at a time; more wait in librdkafka, which stops fetching when its own queue is full.
BATCH_RECORDS = 1000
# How long one fetch waits when there is nothing; closing waits at most this long.
FETCH_WAIT_S = 0.25
# Offset that no record reaches: the end of a partition is known from the broker's word only.
UNKNOWN_END = 2**63
# How long opening tries before it gives up, waits for one answer, for a topic to appear, and between tries.
OPEN_LIMIT_S = 30.0
ANSWER_LIMIT_S = 5.0
MISSING_LIMIT_S = 10.0
RETRY_S = 0.1

_log = structlog.get_logger("chart.streams")


class Source(Protocol):
    """What a subscription needs of the broker that made it."""

    bootstrap: str
    catalogue: Catalogue
    record_check: RecordCheck | None

    async def publish_raw(self, topic: str, key: str, payload: bytes | None, headers: dict[str, str]) -> None:
        """Write the dead letter of a record that cannot be read."""
        ...


class KafkaSubscription:
    """A subscription over one Kafka consumer, fetched in a thread."""

    def __init__(
        self,
        broker: Source,
        topics: tuple[str, ...],
        group: str | None,
        start: Start,
        on_partitions: Callable[[frozenset[Partition]], None] | None,
    ) -> None:
        self.topics = topics
        from_zero(UNREADABLE, topics)
        self._broker = broker
        self._group = group
        self._start = start
        self._on_partitions = on_partitions
        self._consumer: Consumer | None = None
        # Held where the consumer is replaced: by its successor in the thread of the fetches, by none in the loop.
        self._replacing = threading.Lock()
        self._files: IdentityFiles | None = None
        # Where partitions are read from of which no record was fetched yet; without a group.
        self._begins: dict[Partition, int] = {}
        self._thread: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fetched: deque[Any] = deque()
        self._fetch: asyncio.Future[list[Any]] | None = None
        self._partitions: frozenset[Partition] = frozenset()
        # Where each partition ended at the start, until that is reached. Kafka's word that a partition is
        # at its end is not enough: it never comes while others write more often than a fetch waits.
        self._behind: dict[Partition, int] = {}
        self._handed_out: tuple[Partition, int] | None = None
        self._caught_up = asyncio.Event()

    async def __aenter__(self) -> KafkaSubscription:
        for topic in self.topics:
            if not topic.endswith(DLQ_SUFFIX):
                self._broker.catalogue.topic(topic)
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"kafka {self.topics[0]}")
        self._files = IdentityFiles()
        self._consumer = Consumer(self._configuration())
        try:
            if self._group is None:
                await self._loop.run_in_executor(self._thread, self._assign_all)
                self._note_progress()
            else:
                self._join(self._consumer)
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._replacing:
            consumer, self._consumer = self._consumer, None
        if consumer is None or self._thread is None or self._loop is None:
            return
        # In the thread of the fetches: it runs after the one that is under way.
        with contextlib.suppress(KafkaException, RuntimeError):
            await self._loop.run_in_executor(self._thread, consumer.close)
        self._thread.shutdown(wait=False)
        self._fetched.clear()

    def _configuration(self) -> dict[str, Any]:
        configuration: dict[str, Any] = {
            **kafka_properties.load(),
            "bootstrap.servers": self._broker.bootstrap,
            "group.id": self._group or broker_access.UNGROUPED,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": self._start,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 100,
            "queued.min.messages": 2 * BATCH_RECORDS,
            "queued.max.messages.kbytes": 16384,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1000,
            # A broker that was cut off without a word is asked anew after this long, not after a minute.
            "socket.timeout.ms": 10_000,
            "topic.metadata.refresh.interval.ms": 30_000,
            "error_cb": _note_error,
            "log_level": 3,
        }
        if self._group is not None:
            configuration["partition.assignment.strategy"] = "cooperative-sticky"
            configuration["on_commit"] = self._note_commit
            # A member that died is replaced before a lease of 10 s ends. The broker waits at most the last of these for
            # members that no longer answer, such as the former selves of all of them after it was away itself.
            configuration["session.timeout.ms"] = 6_000
            configuration["heartbeat.interval.ms"] = 1_000
            configuration["max.poll.interval.ms"] = 12_000
        return configuration

    def _assign_all(self) -> None:
        """Assign every partition of the topics. `latest` is fixed here, so that nothing published later is missed."""
        # A broker or a topic that has just come up needs a moment: leaders are elected, metadata spreads.
        try:
            ends = _tried(retry_if_exception_type(KafkaException), OPEN_LIMIT_S)(self._all_ends)
        except KafkaException as error:
            msg = f"Kafka at {self._broker.bootstrap} does not tell where {self.topics} end: {error.args[0]}"
            raise StreamUnavailable(msg) from error
        assert self._consumer is not None
        earliest = self._start == "earliest"
        self._begins = {partition: OFFSET_BEGINNING if earliest else last for partition, (_, last) in ends.items()}
        self._partitions = frozenset(ends)
        self._behind = {partition: last for partition, (first, last) in ends.items() if earliest and first < last}
        self._consumer.assign([TopicPartition(*partition, begin) for partition, begin in self._begins.items()])

    def _join(self, consumer: Consumer) -> None:
        consumer.subscribe(list(self.topics), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked)

    def _follow_identity(self) -> None:
        """Another consumer in the place of this one when the files by which it proves who it is are others; it goes on
        where this one is, or joins the group as it would after a restart. Runs in the thread of the fetches.
        """
        if self._files is None or not self._files.renewed():
            return
        before = self._consumer
        successor = self._files.successor(lambda: Consumer(self._configuration()))
        if before is None or successor is None:
            return
        if self._group is None:
            places = before.position([TopicPartition(*partition) for partition in self._begins])
            successor.assign(
                [
                    TopicPartition(one.topic, one.partition, one.offset)
                    if one.offset >= 0
                    else TopicPartition(one.topic, one.partition, self._begins[one.topic, one.partition])
                    for one in places
                ]
            )
        with self._replacing:
            closed = self._consumer is None
            if not closed:
                self._consumer = successor
        if closed:
            successor.close()
            return
        before.close()
        if self._group is not None:
            self._share(frozenset())
            self._join(successor)

    def _all_ends(self) -> dict[Partition, tuple[int, int]]:
        return {partition: end for topic in self.topics for partition, end in self._ends_of(topic).items()}

    def _ends_of(self, topic: str) -> dict[Partition, tuple[int, int]]:
        """First offset and next offset of each partition of a topic; runs in the thread of the fetches."""
        consumer = self._consumer
        if consumer is None:
            msg = f"closed while opening {topic}"
            raise StreamUnavailable(msg)
        try:
            partitions = _tried(retry_if_not_result(bool), MISSING_LIMIT_S)(
                lambda: consumer.list_topics(topic, ANSWER_LIMIT_S).topics[topic].partitions
            )
        except RetryError as error:
            msg = f"stream {topic} does not exist at the broker: run `chart topics apply`"
            raise StreamUnavailable(msg) from error
        return {
            (topic, number): consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=ANSWER_LIMIT_S)
            for number in sorted(partitions)
        }

    def _assigned(self, consumer: Consumer, share: list[TopicPartition]) -> None:
        consumer.incremental_assign(self._resumed(consumer, share))
        self._share(self._partitions | {(entry.topic, entry.partition) for entry in share})

    def _resumed(self, consumer: Consumer, share: list[TopicPartition]) -> list[TopicPartition]:
        """Where to go on: after the last commit, or where the subscription starts when there is none.

        librdkafka would look that up itself, once: when the coordinator is just coming back ("Not coordinator") it
        gives up and the partitions are never read.
        """
        start = OFFSET_BEGINNING if self._start == "earliest" else OFFSET_END

        def committed() -> list[TopicPartition]:
            known: list[TopicPartition] = consumer.committed(share, 2.0)
            reason = next((entry.error for entry in known if entry.error is not None), None)
            if reason is not None:
                raise KafkaException(reason)
            return known

        try:
            known = _tried(retry_if_exception_type(KafkaException), ANSWER_LIMIT_S)(committed)
        except KafkaException as error:
            reason = str(error.args[0])
            _log.warning("the last commits are not known, left to the library", group=self._group, fault=reason)
            return share
        return [TopicPartition(one.topic, one.partition, one.offset if one.offset >= 0 else start) for one in known]

    def _revoked(self, consumer: Consumer, share: list[TopicPartition]) -> None:
        with contextlib.suppress(KafkaException):
            consumer.incremental_unassign(share)
        self._share(self._partitions - {(entry.topic, entry.partition) for entry in share})

    def _share(self, partitions: frozenset[Partition]) -> None:
        """The members of the group changed; runs in the thread of the fetches."""
        fresh = dict.fromkeys(partitions - self._partitions, UNKNOWN_END)
        self._behind = {**{one: end for one, end in self._behind.items() if one in partitions}, **fresh}
        self._partitions = partitions
        _log.info("the share of this member changed", group=self._group, partitions=len(partitions))
        if self._on_partitions is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens
                self._loop.call_soon_threadsafe(self._on_partitions, partitions)

    @property
    def partitions(self) -> frozenset[Partition]:
        """Partitions that this subscription reads now."""
        return self._partitions

    @property
    def caught_up(self) -> asyncio.Event:
        """Set once every record that was there at the start has been handed out."""
        return self._caught_up

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        self._note_progress()
        while True:
            while self._fetched:
                # It leaves the queue when it has been read: who gives up while its check waits finds it again.
                message = self._fetched[0]
                record = self._read_plainly(message) or await self._read(message)
                if not self._fetched:
                    raise StopAsyncIteration  # closed in the meantime
                self._fetched.popleft()
                if message.error() is None:
                    self._handed_out = (message.topic(), message.partition()), message.offset() + 1
                if record is not None:
                    return record
                self._note_progress()
            await self._fill()

    def ready(self) -> list[Record]:
        """Records after the last one that need no waiting; they count as handed out. While it is counted how far the
        start has been read they come one by one.
        """
        found: list[Record] = []
        if any(end < UNKNOWN_END for end in self._behind.values()):
            return found
        while self._fetched:
            record = self._read_plainly(self._fetched[0])
            if record is None:
                break
            self._fetched.popleft()
            found.append(record)
        return found

    def _note_progress(self) -> None:
        """Compare what has been handed out (the caller asks for more, so it has dealt with it) with the ends."""
        if self._handed_out is not None:
            partition, position = self._handed_out
            self._handed_out = None
            if position >= self._behind.get(partition, UNKNOWN_END):
                self._behind.pop(partition, None)
        if not self._behind and self._partitions:
            self._caught_up.set()

    async def _fill(self) -> None:
        """Fetch a batch. A caller that gives up leaves the fetch running, the next one takes it over."""
        if self._consumer is None or self._loop is None:
            raise StopAsyncIteration
        if self._fetch is None:
            self._fetch = self._loop.run_in_executor(self._thread, self._poll_batch)
        await asyncio.wait([self._fetch])
        fetch, self._fetch = self._fetch, None
        if self._consumer is None:
            raise StopAsyncIteration
        self._fetched.extend(fetch.result())

    def _poll_batch(self) -> list[Any]:
        self._follow_identity()
        consumer = self._consumer
        # consume() alone would wait for a full batch; poll() returns with the first record.
        first = consumer.poll(FETCH_WAIT_S) if consumer is not None else None
        if consumer is None or first is None:
            return []
        return [first, *consumer.consume(BATCH_RECORDS - 1, 0)]

    def _read_plainly(self, message: Any) -> Record | None:
        """The record of a message with which nothing is wrong and nothing is to be checked, as most are; None: `_read`
        says.
        """
        broker = self._broker
        if broker.record_check is not None or message.error() is not None:
            return None
        partition = message.topic(), message.partition()
        if self._group is not None and partition not in self._partitions:
            return None
        found = message.headers()
        headers = {name: (value or b"").decode(errors="replace") for name, value in found} if found else {}
        try:
            value = decode(broker.catalogue, partition[0], message.value(), headers)
        except UnreadableRecord:
            return None
        key = (message.key() or b"").decode(errors="replace")
        return Record(partition[0], key, value, headers, message.timestamp()[1] * 1000, partition[1], message.offset())

    async def _read(self, message: Any) -> Record | None:
        """The record of a fetched message; None for what is not one."""
        if (error := message.error()) is not None:
            self._note_message_error(message, error)
            return None
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if self._group is not None and (topic, partition) not in self._partitions:
            # Fetched before the partition went to another member, which reads it again from the last commit.
            return None
        headers = {name: (value or b"").decode(errors="replace") for name, value in message.headers() or []}
        key = (message.key() or b"").decode(errors="replace")
        payload = message.value()
        try:
            value = decode(self._broker.catalogue, topic, payload, headers)
            if self._broker.record_check is not None:
                await self._broker.record_check.check(topic, key, payload, headers, value)
        except (UnreadableRecord, RecordMacError) as reason:
            await self._bury(topic, key, partition, offset, payload, str(reason))
            return None
        return Record(topic, key, value, headers, message.timestamp()[1] * 1000, partition, offset)

    def _note_message_error(self, message: Any, error: KafkaError) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._behind.pop((message.topic(), message.partition()), None)
            return
        if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            msg = f"not allowed to read {', '.join(self.topics)}: {error.str()}"
            raise StreamError(msg)
        _log.warning("fetching has a fault, trying again", topics=self.topics, fault=error.str())

    async def _bury(
        self, topic: str, key: str, partition: int, offset: int, payload: bytes | None, reason: str
    ) -> None:
        UNREADABLE.labels(topic=topic).inc()
        _log.warning("skipped a record that cannot be read", topic=topic, offset=offset, reason=reason)
        entry = self._broker.catalogue.topic(topic)
        if not entry.dlq:
            return
        headers = dead_letter_headers(topic, key, partition, offset, reason)
        try:
            await self._broker.publish_raw(entry.dlq_name, dead_letter_key(partition, offset), payload, headers)
        except StreamError as error:
            # The record itself stays where it is until its retention ends; reading must go on.
            _log.error("a dead letter could not be written", topic=topic, offset=offset, reason=str(error))

    async def commit(self, record: Record) -> None:
        """Note for the group that this record and those before it in its partition are done. After the share moved to
        another member this has no effect.

        It is sent, not waited for: who waits does not fetch, and who does not fetch learns of no move of the share
        and loses its place in the group. Closing waits for those that are on their way.
        """
        if self._group is None or self._consumer is None:
            msg = "commit needs a group and an open subscription"
            raise ValueError(msg)
        done = [TopicPartition(record.topic, record.partition, record.offset + 1)]
        try:
            self._consumer.commit(offsets=done, asynchronous=True)
        except KafkaException as error:
            self._note_commit(error.args[0], done)

    def _note_commit(self, error: KafkaError | None, _: list[TopicPartition]) -> None:
        if error is not None:
            _log.warning("not committed, the record may be delivered again", group=self._group, reason=error.str())


def _tried(condition: retry_base, limit_s: float) -> Retrying:
    """Makes a call again, in the thread of the fetches, while the condition holds and until the limit."""
    return Retrying(retry=condition, wait=wait_fixed(RETRY_S), stop=stop_after_delay(limit_s), reraise=True)


def _note_error(error: KafkaError) -> None:
    """Called by librdkafka for what is wrong with the connection; it tries again by itself."""
    _log.warning("the broker's connection has a fault, librdkafka tries again", fault=error.str())
