"""Topics in: feeds the live state and the event stream; survives a broker that comes and goes."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import structlog
from google.protobuf.message import Message
from prometheus_client import Counter, Gauge

from chart.common.clock import Clock
from chart.common.retries import for_ever
from chart.common.streams import Broker
from chart.gateway.events import EventHub
from chart.gateway.live import COMPACTED, NODE_STATE, PASSING, Change, LiveState
from chart.v1.node_state_pb2 import NodeState

RETRY_S = 2.0

UNUSABLE = Counter("chart_gateway_unusable_records_total", "Records skipped because they make no sense.", ["topic"])
FAULTS = Gauge(
    "chart_gateway_node_faults", "What a node's agent could not do, as it reports: edges, links, rules.", ["node"]
)

_log = structlog.get_logger("chart.gateway")


class Followers:
    """Follow the streams into the live state."""

    def __init__(self, broker: Broker, live: LiveState, hub: EventHub, clock: Clock) -> None:
        self._broker = broker
        self._live = live
        self._hub = hub
        self._clock = clock
        self._following: set[str] = set()
        # What a compacted stream held when it was last followed, to tell clients what changed while it was away.
        self._seen: dict[str, dict[str, Message]] = {}

    @property
    def missing(self) -> list[str]:
        """Streams that are not being followed now."""
        return [topic for topic in (*COMPACTED, *PASSING) if topic not in self._following]

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Endless coroutines: one per compacted stream, one for those that pass by."""
        return [
            *(self._keep(functools.partial(self._follow_state, topic), (topic,)) for topic in COMPACTED),
            self._keep(self._follow_passing, PASSING),
        ]

    async def _keep(self, follow: Callable[[], Coroutine[Any, Any, None]], topics: tuple[str, ...]) -> None:
        """Follow; when it fails, say so and begin anew after a pause. The view stays as it was meanwhile."""

        async def attempt() -> None:
            try:
                await follow()
                _log.warning("a stream ended, following it anew", topics=topics)
            finally:
                self._following.difference_update(topics)

        def told(error: Exception, in_s: float) -> None:
            _log.warning("cannot follow streams, trying again", topics=topics, error=str(error), in_s=in_s)

        # Whatever the error is, the next attempt may succeed and REST goes on.
        await for_ever(attempt, Exception, told, RETRY_S, sleep=self._clock.sleep)

    async def _follow_state(self, topic: str) -> None:
        state = await self._broker.compacted(topic)
        changes = state.subscribe_changes(with_current=False)
        try:
            before = self._seen.get(topic)
            self._seen[topic] = current = dict(state.items())
            for key in (before or {}).keys() - current.keys():
                self._hub.publish(self._apply(topic, key, None))
            for key, value in current.items():
                changed = self._apply(topic, key, value)
                # On the first reading what is there is not news: no events.
                if before is not None and before.get(key) != value:
                    self._hub.publish(changed)
            self._following.add(topic)
            async for key, change in changes:
                if change is None:
                    current.pop(key, None)
                else:
                    current[key] = change
                self._hub.publish(self._apply(topic, key, change))
        finally:
            await changes.aclose()
            await state.close()

    async def _follow_passing(self) -> None:
        async with self._broker.subscribe(PASSING, start="latest") as records:
            self._following.update(PASSING)
            async for record in records:
                self._hub.publish(self._apply(record.topic, record.key, record.value))

    def _apply(self, topic: str, key: str, value: Message | None) -> list[Change]:
        """Take in a record; one that makes no sense is logged and skipped, or it would stop all that come after it."""
        try:
            changed = self._live.apply(topic, key, value, self._clock.now_us())
            if topic == NODE_STATE:
                _note_faults(key, value)
            return changed
        except (ValueError, OverflowError) as error:
            UNUSABLE.labels(topic).inc()
            _log.warning("skipped a record that makes no sense", topic=topic, key=key, error=str(error))
            return []


def _note_faults(node: str, state: Message | None) -> None:
    """Export how many faults a node reports; of one that is gone nothing."""
    if isinstance(state, NodeState):
        FAULTS.labels(node).set(len(state.faults))
    else:
        with contextlib.suppress(KeyError):
            FAULTS.remove(node)
