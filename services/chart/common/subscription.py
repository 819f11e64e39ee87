"""What a reader of streams does, whichever broker is behind it (chart.common.streams)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from chart.common.records import Partition, Record

if TYPE_CHECKING:
    from asyncio import Event


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
