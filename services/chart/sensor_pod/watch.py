"""Those who follow results as they come; each has a bounded queue, and a slow one loses its oldest, never the pod."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager

from prometheus_client import Counter, Gauge

from chart.v1 import measurement_pb2

WATCHERS_MAX = 100
QUEUE_MAX = 1000

WATCHING = Gauge("chart_sensor_pod_watchers_count", "Open Watch calls")
DROPPED = Counter("chart_sensor_pod_watch_dropped_measurements_total", "Results that slow watchers did not get")


class TooManyWatchersError(Exception):
    """There are as many as there may be."""


class Watcher:
    """One follower; empty names match anything."""

    def __init__(self, destination: str, metric: str) -> None:
        self._destination = destination
        self._metric = metric
        self._queue: asyncio.Queue[measurement_pb2.Measurement] = asyncio.Queue(QUEUE_MAX)

    def give(self, measurement: measurement_pb2.Measurement) -> None:
        """Hand over a result that matches."""
        if self._destination not in ("", measurement.destination_node) or self._metric not in ("", measurement.metric):
            return
        if self._queue.full():
            self._queue.get_nowait()
            DROPPED.inc()
        self._queue.put_nowait(measurement)

    async def results(self) -> AsyncIterator[measurement_pb2.Measurement]:
        """The results, without end."""
        while True:
            yield await self._queue.get()


class Watchers:
    """All followers of a pod."""

    def __init__(self) -> None:
        self._watchers: set[Watcher] = set()

    @contextmanager
    def watch(self, destination: str = "", metric: str = "") -> Iterator[Watcher]:
        """Follow inside the context.

        Raises:
            TooManyWatchersError: there are 100 already.
        """
        if len(self._watchers) >= WATCHERS_MAX:
            raise TooManyWatchersError
        watcher = Watcher(destination, metric)
        self._watchers.add(watcher)
        WATCHING.set(len(self._watchers))
        try:
            yield watcher
        finally:
            self._watchers.discard(watcher)
            WATCHING.set(len(self._watchers))

    def give(self, measurements: Iterable[measurement_pb2.Measurement]) -> None:
        """Hand over new results."""
        for measurement in measurements:
            for watcher in self._watchers:
                watcher.give(measurement)
