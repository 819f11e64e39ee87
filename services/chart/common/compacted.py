"""The state that a compacted stream holds: the newest value of each key, kept up to date.

A reader that starts cold holds the full state within 5 s for 10,000 keys (design: architecture, streams).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import structlog
from google.protobuf.message import Message

from chart.common.records import Record, StreamUnavailable

if TYPE_CHECKING:
    from chart.common.subscription import Subscription

READY_LIMIT_S = 30.0

_log = structlog.get_logger("chart.streams")


class CompactedState:
    """Newest value by key. Made by `Broker.compacted`; reads are plain dictionary look-ups of this moment."""

    def __init__(self, topic: str, subscription: Subscription) -> None:
        self.topic = topic
        self._subscription = subscription
        self._values: dict[str, Message] = {}
        self._records: dict[str, Record] = {}
        self._changes: set[Changes] = set()
        self._ready = asyncio.Event()
        self._failure: BaseException | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to read; called by the broker."""
        await self._subscription.__aenter__()
        self._task = asyncio.create_task(self._follow(), name=f"compacted {self.topic}")

    def get(self, key: str) -> Message | None:
        """The newest value of a key; None when it has none or was removed."""
        return self._values.get(key)

    def record(self, key: str) -> Record | None:
        """The newest record of a key, with headers and time; None as in `get`."""
        return self._records.get(key)

    def items(self) -> list[tuple[str, Message]]:
        """Every key with its value, as of now."""
        return list(self._values.items())

    def keys(self) -> list[str]:
        """Every key, as of now."""
        return list(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def ready(self) -> bool:
        """Whether everything that was there at the start has been read, and the reader still runs."""
        return self._ready.is_set() and self._failure is None

    async def wait_ready(self, limit_s: float = READY_LIMIT_S) -> None:
        """Return when everything that was there at the start has been read.

        Raises:
            StreamUnavailable: not within the limit, or the reader failed.
        """
        try:
            async with asyncio.timeout(limit_s):
                await self._ready.wait()
        except TimeoutError:
            msg = f"{self.topic} was not read to its end within {limit_s:g} s"
            raise StreamUnavailable(msg) from None
        if self._failure is not None:
            msg = f"the reader of {self.topic} failed: {self._failure}"
            raise StreamUnavailable(msg) from self._failure

    def subscribe_changes(self, *, with_current: bool = False) -> Changes:
        """Changes from this call on as (key, value or None); ``with_current`` gives first what is there now.

        A follower that is slower than the changes gets the newest value of each key, not every one in between.
        """
        return Changes(self._changes, dict(self._values) if with_current else {})

    async def close(self) -> None:
        """Stop following; what was read stays readable."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self._subscription.__aexit__(None, None, None)
        for changes in list(self._changes):
            changes.end()

    async def _follow(self) -> None:
        waiter = asyncio.create_task(self._note_end())
        try:
            async for record in self._subscription:
                self._apply(record)
                for more in self._subscription.ready():
                    self._apply(more)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self._failure = error
            self._ready.set()
            _log.exception("the reader of a compacted stream failed", topic=self.topic)
            for changes in list(self._changes):
                changes.end()
        finally:
            waiter.cancel()

    async def _note_end(self) -> None:
        await self._subscription.caught_up.wait()
        self._ready.set()

    def _apply(self, record: Record) -> None:
        if record.value is None:
            self._records.pop(record.key, None)
            if self._values.pop(record.key, None) is None:
                return
        else:
            self._values[record.key] = record.value
            self._records[record.key] = record
        for changes in self._changes:
            changes.put(record.key, record.value)


class Changes(AsyncIterator[tuple[str, Message | None]]):
    """Changes of a compacted state; ends when the state is closed. Close it with `aclose` when done early."""

    def __init__(self, followers: set[Changes], pending: dict[str, Message]) -> None:
        self._followers = followers
        self._pending: dict[str, Message | None] = dict(pending)
        self._news = asyncio.Event()
        self._ended = False
        if pending:
            self._news.set()
        followers.add(self)

    def put(self, key: str, value: Message | None) -> None:
        """Note a change; called by the state."""
        # To the end of the order: a later change of the key must not overtake changes of other keys.
        self._pending.pop(key, None)
        self._pending[key] = value
        self._news.set()

    def end(self) -> None:
        """No more changes will come."""
        self._ended = True
        self._followers.discard(self)
        self._news.set()

    async def __anext__(self) -> tuple[str, Message | None]:
        while not self._pending:
            if self._ended:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        key = next(iter(self._pending))
        return key, self._pending.pop(key)

    async def aclose(self) -> None:
        """Stop listening."""
        self.end()
