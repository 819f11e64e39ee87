"""Streams in the memory of one process, with the semantics of the real broker and any clock: for unit tests."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

import structlog

from chart.common import catalogue as catalogues
from chart.common import telemetry
from chart.common.clock import Clock, SystemClock
from chart.common.records import (
    UNREADABLE,
    Partition,
    Record,
    Start,
    StreamUnavailable,
    UnreadableRecord,
    dead_letter_headers,
    dead_letter_key,
    decode,
)
from chart.common.streams_memory import MemoryStreams

if TYPE_CHECKING:
    from chart.common.catalogue import Catalogue

_log = structlog.get_logger("chart.streams")


@dataclass
class _Raw:
    key: str
    payload: bytes | None
    headers: dict[str, str]
    timestamp_us: int


@dataclass
class _Group:
    committed: dict[Partition, int] = field(default_factory=dict)
    members: list[LocalSubscription] = field(default_factory=list)


class LocalBroker(MemoryStreams):
    """Streams in memory. ``available = False`` makes it refuse to acknowledge, as a broker that is away."""

    def __init__(self, clock: Clock | None = None, catalogue: Catalogue | None = None) -> None:
        super().__init__(catalogue or catalogues.load())
        self.clock: Clock = clock or SystemClock()
        self.available = True
        self._logs: dict[Partition, list[_Raw]] = {}
        self._groups: dict[str, _Group] = {}
        self._subscriptions: set[LocalSubscription] = set()

    async def publish_raw(self, topic: str, key: str, payload: bytes | None, headers: dict[str, str]) -> None:
        """Write bytes that are encoded already. Raises StreamUnavailable or StreamRejected."""
        if not self.available:
            msg = f"no acknowledgement for a record of {topic}: the local broker was made unavailable"
            raise StreamUnavailable(msg)
        count = self._partition_count(topic)
        # The partitioner of librdkafka, so that records meet the same neighbours as with the real broker.
        partition = zlib.crc32(key.encode()) % count
        raw = _Raw(key, payload, telemetry.inject(headers), self.clock.now_us())
        self._logs.setdefault((topic, partition), []).append(raw)
        for subscription in self._subscriptions:
            subscription.wake()
        await asyncio.sleep(0)

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        group: str | None = None,
        start: Start = "latest",
        on_partitions: Callable[[frozenset[Partition]], None] | None = None,
    ) -> LocalSubscription:
        """Records of the topics from `start` on; with a group the members share the partitions."""
        return LocalSubscription(self, tuple(topics), group, start, on_partitions)

    async def close(self) -> None:
        """Close every subscription and compacted state."""
        await super().close()
        for subscription in list(self._subscriptions):
            await subscription.__aexit__(None, None, None)

    def _partition_count(self, topic: str) -> int:
        if topic.endswith(catalogues.DLQ_SUFFIX):
            return 1
        return self.catalogue.topic(topic).partitions

    def _partitions(self, topics: Sequence[str]) -> list[Partition]:
        return [(topic, number) for topic in topics for number in range(self._partition_count(topic))]

    def _records_of(self, partition: Partition) -> list[_Raw]:
        return self._logs.setdefault(partition, [])

    def _join(self, subscription: LocalSubscription, group: str) -> None:
        self._groups.setdefault(group, _Group()).members.append(subscription)
        self._rebalance(group)

    def _leave(self, subscription: LocalSubscription, group: str) -> None:
        self._groups[group].members.remove(subscription)
        self._rebalance(group)

    def _rebalance(self, name: str) -> None:
        group = self._groups[name]
        shares: dict[LocalSubscription, set[Partition]] = {member: set() for member in group.members}
        topics = sorted({topic for member in group.members for topic in member.topics})
        for index, partition in enumerate(self._partitions(topics)):
            takers = [member for member in group.members if partition[0] in member.topics]
            shares[takers[index % len(takers)]].add(partition)
        for member, share in shares.items():
            member.assign(share, group.committed)


class LocalSubscription:
    """A subscription to streams in the memory of this process."""

    def __init__(
        self,
        broker: LocalBroker,
        topics: tuple[str, ...],
        group: str | None,
        start: Start,
        on_partitions: Callable[[frozenset[Partition]], None] | None,
    ) -> None:
        self.topics = topics
        self._broker = broker
        self._group = group
        self._start = start
        self._on_partitions = on_partitions
        self._positions: dict[Partition, int] = {}
        self._behind: dict[Partition, int] = {}
        self._turn: deque[Partition] = deque()
        self._news = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._open = False

    async def __aenter__(self) -> LocalSubscription:
        self._open = True
        self._broker._subscriptions.add(self)
        if self._group is None:
            self.assign(set(self._broker._partitions(self.topics)), {})
        else:
            self._broker._join(self, self._group)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._open:
            return
        self._open = False
        self._broker._subscriptions.discard(self)
        if self._group is not None:
            self._broker._leave(self, self._group)
        self.wake()

    def assign(self, share: set[Partition], committed: dict[Partition, int]) -> None:
        """Take over a share of the partitions; those held already go on where they are."""
        positions = {}
        for partition in share:
            end = len(self._broker._records_of(partition))
            fresh = committed.get(partition, 0 if self._start == "earliest" else end)
            positions[partition] = self._positions.get(partition, fresh)
            self._behind[partition] = end
        changed = positions.keys() != self._positions.keys()
        self._positions = positions
        self._turn = deque(sorted(positions))
        if changed and self._on_partitions is not None:
            self._on_partitions(self.partitions)
        self._note_progress()
        self.wake()

    @property
    def partitions(self) -> frozenset[Partition]:
        """Partitions that this subscription reads now."""
        return frozenset(self._positions)

    @property
    def caught_up(self) -> asyncio.Event:
        """Set once every record that was there at the start has been handed out."""
        return self._caught_up

    def wake(self) -> None:
        """Something may have changed."""
        self._news.set()

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        while self._open:
            self._note_progress()
            record = await self._take()
            if record is not None:
                return record
            self._news.clear()
            await self._news.wait()
        raise StopAsyncIteration

    def ready(self) -> list[Record]:
        """Records after the last one that need no waiting; they count as handed out."""
        return []

    async def _take(self) -> Record | None:
        for _ in range(len(self._turn)):
            partition = self._turn[0]
            self._turn.rotate(-1)
            log = self._broker._records_of(partition)
            while (offset := self._positions[partition]) < len(log):
                raw = log[offset]
                self._positions[partition] += 1
                topic, number = partition
                try:
                    value = decode(self._broker.catalogue, topic, raw.payload, raw.headers)
                except UnreadableRecord as reason:
                    await self._bury(topic, number, offset, raw, str(reason))
                    continue
                return Record(topic, raw.key, value, dict(raw.headers), raw.timestamp_us, number, offset)
        return None

    async def _bury(self, topic: str, partition: int, offset: int, raw: _Raw, reason: str) -> None:
        UNREADABLE.labels(topic=topic).inc()
        _log.warning("skipped a record that cannot be read", topic=topic, offset=offset, reason=reason)
        entry = self._broker.catalogue.topic(topic)
        if entry.dlq:
            headers = dead_letter_headers(topic, raw.key, partition, offset, reason)
            await self._broker.publish_raw(entry.dlq_name, dead_letter_key(partition, offset), raw.payload, headers)

    def _note_progress(self) -> None:
        if not self._caught_up.is_set() and all(
            position >= self._behind.get(partition, 0) for partition, position in self._positions.items()
        ):
            self._caught_up.set()

    async def commit(self, record: Record) -> None:
        """Note for the group that this record and those before it in its partition are done."""
        if self._group is None:
            msg = "commit needs a group"
            raise ValueError(msg)
        committed = self._broker._groups[self._group].committed
        partition = (record.topic, record.partition)
        committed[partition] = max(committed.get(partition, 0), record.offset + 1)
