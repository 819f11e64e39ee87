"""What a broker of streams does, whichever it is: publish, follow, read the newest state (chart.common.streams)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from chart.common.records import Outgoing, Partition, Start, StreamError

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from chart.common.catalogue import Catalogue
    from chart.common.compacted import CompactedState
    from chart.common.record_check import RecordCheck
    from chart.common.subscription import Subscription


class Broker(Protocol):
    """Where streams live."""

    catalogue: Catalogue
    # Of records that nodes write; None: what is read is not checked.
    record_check: RecordCheck | None

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
        """Send what is queued and let go of the broker."""
        ...
