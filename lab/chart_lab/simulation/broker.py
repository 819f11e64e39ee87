"""Streams as a faulty cluster gives them: in order of each partition, at least once, late, or not at all for a while.

`SimulatedBroker` holds the logs; each life of a process gets a `BrokerClient`, which is a chart.common.streams.Broker.
What is kept of Kafka: records of one producer stay in order within a partition; an acknowledgement may be lost although
the record was stored; what was sent before a kill -9 arrives after it; the members of a group share partitions, a dead
one is noticed after the session timeout only, and the next owner starts at the last commit.
"""

from __future__ import annotations

import asyncio
import random
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING

from chart.common import catalogue as catalogues
from chart.common.records import Partition, Record, Start, StreamUnavailable, decode
from chart.common.streams_memory import MemoryStreams
from chart_lab.simulation.loop import SimulatedLoop
from chart_lab.simulation.processes import Process, outside

if TYPE_CHECKING:
    from google.protobuf.message import Message

BROKER = "broker"
# How long a producer tries (the services' setting is 10 s; here time is short).
DELIVERY_LIMIT_S = 3.0
SESSION_TIMEOUT_S = 3.0
REBALANCE_S = 0.2
COORDINATE_S = 0.5
RETRY_S = 0.1


@cache
def _catalogue() -> catalogues.Catalogue:
    """The same for every run."""
    return catalogues.load()


@dataclass(frozen=True, slots=True)
class Stored:
    """One record of a log."""

    key: str
    payload: bytes | None
    headers: dict[str, str]
    timestamp_us: int


@dataclass
class _Group:
    committed: dict[Partition, int] = field(default_factory=dict)
    # With the moment at which each was heard last.
    members: dict[SimulatedSubscription, float] = field(default_factory=dict)
    # Whether some member was not there to hear of its share.
    unheard: bool = False


class SimulatedBroker:
    """The cluster. `up` False: it answers nobody."""

    def __init__(self, loop: SimulatedLoop, numbers: random.Random) -> None:
        self.loop = loop
        self.numbers = numbers
        self.catalogue = _catalogue()
        self.up = True
        self.logs: dict[Partition, list[Stored]] = {}
        self.newest: dict[tuple[str, str], Stored] = {}
        self.groups: dict[str, _Group] = {}
        self.readers: dict[str, dict[SimulatedSubscription, None]] = {}
        # Told every record that is stored: (topic, record).
        self.watchers: list[Callable[[str, Stored], None]] = []

    def client(self, process: Process) -> BrokerClient:
        """A connection for this life of a process."""
        return BrokerClient(self, process)

    def reachable(self, process: Process) -> bool:
        """Whether a process and the broker hear each other."""
        return self.up and process.reaches(BROKER)

    def partitions(self, topic: str) -> int:
        """Number of partitions."""
        return self.catalogue.topic(topic).partitions

    def partition_of(self, topic: str, key: str) -> Partition:
        """As librdkafka's partitioner has it."""
        return topic, zlib.crc32(key.encode()) % self.partitions(topic)

    def append(self, topic: str, record: Stored) -> None:
        """Store a record, and let the readers know of it, each after a delay of its own."""
        partition = self.partition_of(topic, record.key)
        self.logs.setdefault(partition, []).append(record)
        self.newest[topic, record.key] = record
        for watcher in self.watchers:
            watcher(topic, record)
        for reader in self.readers.get(topic, ()):
            reader.announce(partition)

    def value(self, topic: str, key: str) -> Message | None:
        """The newest value of a key, as nobody but the checker can see it."""
        record = self.newest.get((topic, key))
        return decode(self.catalogue, topic, record.payload, record.headers) if record else None

    def travel_s(self) -> float:
        """Time of one way: short, and now and then long."""
        draw = self.numbers.random()
        return self.numbers.uniform(0.05, 0.6) if draw < 0.02 else self.numbers.uniform(0.0005, 0.006)

    def join(self, member: SimulatedSubscription, group: str) -> None:
        """A member comes: the shares are dealt anew after a moment."""
        self.groups.setdefault(group, _Group()).members[member] = self.loop.time()
        self.loop.call_later(REBALANCE_S, self._deal, group)

    def leave(self, member: SimulatedSubscription, group: str) -> None:
        """A member says good-bye."""
        if self.groups[group].members.pop(member, None) is not None:
            self._deal(group)

    async def coordinate(self) -> None:
        """What the groups' coordinator does all the time: miss members, and take those that come back."""
        while True:
            await asyncio.sleep(COORDINATE_S)
            if not self.up:
                for group in self.groups.values():
                    group.members = dict.fromkeys(group.members, self.loop.time())
                continue
            for name, group in self.groups.items():
                for member, seen_s in list(group.members.items()):
                    if member.heard:
                        group.members[member] = self.loop.time()
                    elif self.loop.time() - seen_s > SESSION_TIMEOUT_S:
                        del group.members[member]
                        self._deal(name)
                if group.unheard and all(member.heard for member in group.members):
                    self._deal(name)
            for reader in [one for readers in self.readers.values() for one in readers]:
                if reader.group and reader.heard and reader not in self.groups[reader.group].members:
                    # It was taken for dead and only now learns that its share went to others.
                    reader.assign({})
                    self.join(reader, reader.group)

    def _deal(self, name: str) -> None:
        group = self.groups[name]
        members = list(group.members)
        if not members:
            return
        shares: list[dict[Partition, int]] = [{} for _ in members]
        topics = sorted({topic for member in members for topic in member.topics})
        everything = [(topic, number) for topic in topics for number in range(self.partitions(topic))]
        for index, partition in enumerate(everything):
            fresh = 0 if members[0].start == "earliest" else len(self.logs.get(partition, ()))
            shares[index % len(shares)][partition] = group.committed.get(partition, fresh)
        group.unheard = not all(member.heard for member in members)
        for member, share in zip(members, shares, strict=True):
            # A member that is not heard learns nothing: it goes on with what it has.
            if member.heard:
                member.assign(share)

    def heal(self) -> None:
        """Paths or the broker are back: everybody hears what they missed."""
        for readers in self.readers.values():
            for reader in list(readers):
                reader.catch_up()


@dataclass
class _Outgoing:
    topic: str
    record: Stored
    acknowledged: asyncio.Future[None]
    deadline_s: float


class BrokerClient(MemoryStreams):
    """One life's connection; see chart.common.streams.Broker."""

    def __init__(self, broker: SimulatedBroker, process: Process) -> None:
        super().__init__(broker.catalogue)
        self.broker = broker
        self.process = process
        self._life = process.life
        self._queues: dict[Partition, deque[_Outgoing]] = {}

    @property
    def alive(self) -> bool:
        """Whether the life that it was made for still is."""
        return self.process.alive and self.process.life == self._life

    async def publish_raw(self, topic: str, key: str, payload: bytes | None, headers: dict[str, str]) -> None:
        """Write bytes that are encoded already. Raises StreamUnavailable or StreamRejected."""
        loop = self.broker.loop
        record = Stored(key, payload, dict(headers), loop.now_us)
        outgoing = _Outgoing(topic, record, loop.create_future(), loop.time() + DELIVERY_LIMIT_S)
        queue = self._queues.setdefault(self.broker.partition_of(topic, key), deque())
        queue.append(outgoing)
        if len(queue) == 1:
            with outside():
                loop.create_task(self._send(queue))
        await outgoing.acknowledged

    async def _send(self, queue: deque[_Outgoing]) -> None:
        """Take one record of a partition after the other to the broker."""
        while queue:
            outgoing = queue[0]
            await asyncio.sleep(self.broker.travel_s())
            if not self.alive:
                # What was on the wire when the process died arrives or does not; the rest was never sent.
                if self.broker.up and self.broker.numbers.random() < 0.5:
                    self.broker.append(outgoing.topic, outgoing.record)
                queue.clear()
                return
            if self.broker.reachable(self.process):
                self.broker.append(outgoing.topic, outgoing.record)
                queue.popleft()
                with outside():
                    self.broker.loop.create_task(self._acknowledge(outgoing))
            elif self.broker.loop.time() >= outgoing.deadline_s:
                queue.popleft()
                self._fail(outgoing)
            else:
                await asyncio.sleep(RETRY_S)

    async def _acknowledge(self, outgoing: _Outgoing) -> None:
        await asyncio.sleep(self.broker.travel_s())
        while not self.broker.reachable(self.process):
            if not self.alive or self.broker.loop.time() >= outgoing.deadline_s:
                # Stored, but its sender will never know.
                self._fail(outgoing)
                return
            await asyncio.sleep(RETRY_S)
        if not outgoing.acknowledged.done():
            outgoing.acknowledged.set_result(None)

    @staticmethod
    def _fail(outgoing: _Outgoing) -> None:
        if not outgoing.acknowledged.done():
            msg = f"record of {outgoing.topic} with key {outgoing.record.key!r} was not acknowledged"
            outgoing.acknowledged.set_exception(StreamUnavailable(msg))

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        group: str | None = None,
        start: Start = "latest",
        on_partitions: Callable[[frozenset[Partition]], None] | None = None,
    ) -> SimulatedSubscription:
        """Records of the topics from `start` on; with a group the members share the partitions."""
        return SimulatedSubscription(self, tuple(topics), group, start, on_partitions)


class SimulatedSubscription:
    """A subscription to simulated streams, with the delays and losses of the run."""

    def __init__(
        self,
        client: BrokerClient,
        topics: tuple[str, ...],
        group: str | None,
        start: Start,
        on_partitions: Callable[[frozenset[Partition]], None] | None,
    ) -> None:
        self.client = client
        self.topics = topics
        self.start = start
        self.group = group
        self._on_partitions = on_partitions
        self._positions: dict[Partition, int] = {}
        self._visible: dict[Partition, int] = {}
        self._behind: dict[Partition, int] = {}
        self._ready: deque[Partition] = deque()
        self._news = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._open = False

    async def __aenter__(self) -> SimulatedSubscription:
        broker = self.client.broker
        while not broker.reachable(self.client.process):  # noqa: ASYNC110 - simulated time costs nothing
            await asyncio.sleep(RETRY_S)
        await asyncio.sleep(broker.travel_s())
        self._open = True
        for topic in self.topics:
            broker.readers.setdefault(topic, {})[self] = None
        self.client.process.on_death.append(self._die)
        if self.group is not None:
            broker.join(self, self.group)
            return self
        earliest = self.start == "earliest"
        share = {}
        for topic in self.topics:
            for number in range(broker.partitions(topic)):
                share[topic, number] = 0 if earliest else len(broker.logs.get((topic, number), ()))
        self.assign(share)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self._close()

    @property
    def heard(self) -> bool:
        """Whether the broker hears from it."""
        return self._open and self.client.alive and self.client.broker.reachable(self.client.process)

    def _die(self) -> None:
        """The process was killed: for its group it stays a member until the session timeout."""
        if self._open:
            self._open = False
            for topic in self.topics:
                self.client.broker.readers[topic].pop(self, None)

    def _close(self) -> None:
        self._die()
        if self.group is not None:
            self.client.broker.leave(self, self.group)
        self._news.set()

    def assign(self, share: dict[Partition, int]) -> None:
        """Read these partitions from now on; those that it reads already go on where they are."""
        logs = self.client.broker.logs
        changed = share.keys() != self._positions.keys()
        self._positions = {partition: self._positions.get(partition, at) for partition, at in share.items()}
        self._visible = {partition: self._visible.get(partition, 0) for partition in share}
        self._behind = {
            partition: end for partition in share if (end := len(logs.get(partition, ()))) > self._positions[partition]
        }
        if changed and self._on_partitions is not None and self._open:
            self._on_partitions(self.partitions)
        self.catch_up()
        self._news.set()

    def announce(self, partition: Partition) -> None:
        """There is something new in a partition; it is seen after a delay, if the path is whole then."""
        if partition in self._positions:
            end = len(self.client.broker.logs[partition])
            self.client.broker.loop.call_later(self.client.broker.travel_s(), self._show, partition, end)

    def catch_up(self) -> None:
        """Look at everything that is there by now."""
        logs = self.client.broker.logs
        for partition in self._positions:
            if len(logs.get(partition, ())) > self._visible[partition]:
                self.announce(partition)

    def _show(self, partition: Partition, end: int) -> None:
        broker = self.client.broker
        if not self._open or partition not in self._positions or not broker.reachable(self.client.process):
            return
        self._visible[partition] = max(self._visible[partition], end)
        if self._positions[partition] < self._visible[partition] and partition not in self._ready:
            self._ready.append(partition)
            self._news.set()

    @property
    def partitions(self) -> frozenset[Partition]:
        """Partitions that this subscription reads now."""
        return frozenset(self._positions)

    @property
    def caught_up(self) -> asyncio.Event:
        """Set once every record that was there at the start has been handed out."""
        return self._caught_up

    def __aiter__(self) -> AsyncIterator[Record]:
        return self

    async def __anext__(self) -> Record:
        while self._open:
            self._note_progress()
            record = self._take()
            if record is not None:
                return record
            self._news.clear()
            await self._news.wait()
        if not self.client.alive:
            await asyncio.get_running_loop().create_future()
        raise StopAsyncIteration

    def ready(self) -> list[Record]:
        """Records after the last one that need no waiting; they count as handed out."""
        return []

    def _take(self) -> Record | None:
        while self._ready:
            partition = self._ready[0]
            position = self._positions.get(partition, 0)
            if position >= self._visible.get(partition, 0):
                self._ready.popleft()
                continue
            self._ready.rotate(-1)
            stored = self.client.broker.logs[partition][position]
            self._positions[partition] = position + 1
            topic, number = partition
            value = decode(self.client.broker.catalogue, topic, stored.payload, stored.headers)
            return Record(topic, stored.key, value, dict(stored.headers), stored.timestamp_us, number, position)
        return None

    def _note_progress(self) -> None:
        if self._behind:
            self._behind = {
                partition: end for partition, end in self._behind.items() if self._positions.get(partition, end) < end
            }
        if not self._behind and self._positions:
            self._caught_up.set()

    async def commit(self, record: Record) -> None:
        """Note for the group that this record and those before it in its partition are done. Without effect once the
        partition is somebody else's.
        """
        broker = self.client.broker
        await asyncio.sleep(broker.travel_s())
        partition = (record.topic, record.partition)
        if self.group is None or not broker.reachable(self.client.process) or partition not in self._positions:
            return
        committed = broker.groups[self.group].committed
        committed[partition] = max(committed.get(partition, 0), record.offset + 1)
