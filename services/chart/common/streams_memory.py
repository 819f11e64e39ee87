"""What brokers in memory have in common: LocalBroker of unit tests, and the one of the simulation."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chart.common.compacted import CompactedState
from chart.common.records import Outgoing, Partition, Start, StreamError, encode

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from chart.common.catalogue import Catalogue
    from chart.common.record_check import RecordCheck
    from chart.common.subscription import Subscription


class MemoryStreams(ABC):
    """A broker whose records stay in the memory of this process; who writes there is known, and nothing is checked."""

    record_check: RecordCheck | None = None

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._states: list[CompactedState] = []

    async def publish(
        self, topic: str, key: str, value: Message | None, *, headers: dict[str, str] | None = None
    ) -> None:
        """Write one record; returns when it is acknowledged. Raises StreamUnavailable or StreamRejected."""
        payload, kind = encode(self.catalogue, topic, value)
        await self.publish_raw(topic, key, payload, {"type": kind, **(headers or {})})

    @abstractmethod
    async def publish_raw(self, topic: str, key: str, payload: bytes | None, headers: dict[str, str]) -> None:
        """Write bytes that are encoded already. Raises StreamUnavailable or StreamRejected."""

    async def publish_together(self, records: Sequence[Outgoing]) -> list[StreamError | None]:
        """Write records of different keys; one error or None for each, in their order."""

        async def publish(one: Outgoing) -> StreamError | None:
            try:
                await self.publish_raw(*one)
            except StreamError as error:
                return error
            return None

        return await asyncio.gather(*(publish(one) for one in records))

    @abstractmethod
    def subscribe(
        self,
        topics: Sequence[str],
        *,
        group: str | None = None,
        start: Start = "latest",
        on_partitions: Callable[[frozenset[Partition]], None] | None = None,
    ) -> Subscription:
        """Records of the topics from `start` on; with a group the members share the partitions."""

    async def compacted(self, topic: str) -> CompactedState:
        """The newest value of each key of a topic, followed from then on."""
        state = CompactedState(topic, self.subscribe([topic], start="earliest"))
        await state.start()
        self._states.append(state)
        await state.wait_ready()
        return state

    async def close(self) -> None:
        """Close the compacted states."""
        for state in self._states:
            await state.close()
