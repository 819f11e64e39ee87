"""Streams: one interface for publishing, following and reading state, whichever broker is behind it.

A record has a key, a protobuf message (or None, a tombstone) and headers; the catalogue (topics.yaml) says which
message a stream carries. `LocalBroker` keeps streams in memory under a fake clock for unit tests, `KafkaBroker` is the
real one; both pass the same contract tests (services/tests/common/test_streams_contract.py).

Delivery is at least once. A record that cannot be read goes to <topic>.dlq with the reason, is counted and skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from chart.common import record_check
from chart.common.compacted import CompactedState
from chart.common.records import (
    Outgoing,
    Partition,
    Record,
    Start,
    StreamError,
    StreamRejected,
    StreamUnavailable,
)
from chart.common.settings import BaseServiceSettings
from chart.common.streams_kafka import KafkaBroker
from chart.common.streams_local import LocalBroker

if TYPE_CHECKING:
    from asyncio import Event

    from google.protobuf.message import Message

    from chart.common.catalogue import Catalogue


class Subscription(AbstractAsyncContextManager["Subscription"], Protocol):
    """Records of one or more streams in order of each key; an async context manager and an async iterator.

    Abandoning a wait (`asyncio.wait_for` on the next record) loses nothing.
    """

    def __aiter__(self) -> AsyncIterator[Record]:
        """The records from the start that `Broker.subscribe` was given, without end."""
        ...

    async def __anext__(self) -> Record:
        """The next record; waits for one."""
        ...

    def ready(self) -> list[Record]:
        """Records that follow the one handed out last and need no waiting, as far as that is easily told; they count as
        handed out. For who takes thousands a second.
        """
        ...

    async def commit(self, record: Record) -> None:
        """Remember for the group that this record and those before it in its partition are done. On its way when this
        returns: what is not known when the reader dies is delivered again.
        """
        ...

    @property
    def partitions(self) -> frozenset[Partition]:
        """Partitions that this subscription reads now; changes as members of its group come and go."""
        ...

    @property
    def caught_up(self) -> Event:
        """Set once every record that was there at the start has been handed out."""
        ...


class Broker(Protocol):
    """Where streams live."""

    catalogue: Catalogue

    async def publish(
        self, topic: str, key: str, value: Message | None, *, headers: dict[str, str] | None = None
    ) -> None:
        """Write one record; returns when it is acknowledged. Adds the headers ``type`` and ``traceparent``.

        Raises:
            StreamUnavailable: not acknowledged within the delivery timeout.
            StreamRejected: never will be.
        """
        ...

    async def publish_raw(self, topic: str, key: str, payload: bytes | None, headers: dict[str, str]) -> None:
        """Write bytes that are encoded already (outbox, dead letters). Raises as `publish`."""
        ...

    async def publish_together(self, records: Sequence[Outgoing]) -> list[StreamError | None]:
        """Write records of different keys as `publish_raw` does, without waiting for one before the next is on its way;
        returns what became of each when that is known of all. Begins none later than it was called.
        """
        ...

    def subscribe(
        self,
        topics: Sequence[str],
        *,
        group: str | None = None,
        start: Start = "latest",
        on_partitions: Callable[[frozenset[Partition]], None] | None = None,
    ) -> Subscription:
        """Follow streams. With a group the members share the partitions and resume after the last commit.

        ``start`` holds where nothing was committed. ``latest`` without a group means: everything published after the
        context was entered. ``on_partitions`` is told, in the event loop, when the share of this member changes.
        """
        ...

    async def compacted(self, topic: str) -> CompactedState:
        """The newest value of each key: reads to the end, then keeps following.

        Raises:
            StreamUnavailable: the stream could not be read to its end in time.
        """
        ...

    async def close(self) -> None:
        """Send what is queued and close the connections."""
        ...


def connect(settings: BaseServiceSettings) -> Broker:
    """The broker that the settings name; ``local:`` keeps the streams in this process."""
    if settings.kafka_bootstrap.startswith("local:"):
        return LocalBroker()
    return KafkaBroker(
        settings.kafka_bootstrap,
        delivery_timeout_ms=settings.kafka_delivery_timeout_ms,
        record_check=record_check.from_settings(settings),
    )


__all__ = [
    "Broker",
    "CompactedState",
    "KafkaBroker",
    "LocalBroker",
    "Partition",
    "Record",
    "Start",
    "StreamError",
    "StreamRejected",
    "StreamUnavailable",
    "Subscription",
    "connect",
]
