"""From the data repository to chart.measurement.v1, with a cursor that survives restarts.

A broker that is away for any time loses nothing: results wait in the repository and are replayed in order of each key
(at least once; ids make repetitions harmless).
"""

from __future__ import annotations

import asyncio
import functools

import structlog
from prometheus_client import Counter, Gauge

from chart.common.clock import Clock
from chart.common.retries import until_done
from chart.common.streams import Broker, StreamError
from chart.sensor_pod.repository import Repository, Retention
from chart.v1 import measurement_pb2

TOPIC = "chart.measurement.v1"
CURSOR = "published"
BATCH_ROWS = 500
PRUNE_EVERY_S = 60.0
BACK_OFF_S = (0.2, 10.0)

PUBLISHED = Counter("chart_sensor_pod_published_measurements_total", "Results acknowledged by the broker")
FAILURES = Counter("chart_sensor_pod_publish_failures_total", "Batches that the broker did not take")
LOST = Counter("chart_sensor_pod_lost_measurements_total", "Results removed before they could be published")
BEHIND = Gauge("chart_sensor_pod_unpublished_age_seconds", "Age of the oldest result that waits to be published")

_log = structlog.get_logger("chart.sensor_pod.publisher")


def stream_key(measurement: measurement_pb2.Measurement) -> str:
    """Key in the stream: source, destination, metric."""
    return f"{measurement.source_node},{measurement.destination_node},{measurement.metric}"


class Publisher:
    """Publishes what the repository holds; `wake` after each stored result."""

    def __init__(self, repository: Repository, broker: Broker, clock: Clock, retention: Retention) -> None:
        self._repository = repository
        self._broker = broker
        self._clock = clock
        self._retention = retention
        self._news = asyncio.Event()
        self._news.set()
        self._failing = False

    def wake(self) -> None:
        """There is a new result."""
        self._news.set()

    async def run(self) -> None:
        """Publish until cancelled."""
        sequence = await self._repository.cursor(CURSOR)
        while True:
            batch = functools.partial(self._publish_batch, sequence)
            sequence = await until_done(batch, StreamError, self._told, BACK_OFF_S, sleep=self._clock.sleep)

    def _told(self, error: Exception, again_in_s: float) -> None:
        FAILURES.inc()
        self._failing = True
        _log.warning("results wait in the repository", reason=str(error), again_in_s=again_in_s)

    async def _publish_batch(self, sequence: int) -> int:
        """What comes after this position; waits for news when that is nothing. Returns the position after it."""
        self._news.clear()
        rows = await self._repository.after(sequence, BATCH_ROWS)
        if not rows:
            BEHIND.set(0)
            await self._news.wait()
            return sequence
        BEHIND.set(max(0.0, (self._clock.now_us() - rows[0][1].measured_at_us) / 1e6))
        await self._publish([measurement for _, measurement in rows])
        sequence = rows[-1][0]
        await self._repository.move_cursor(CURSOR, sequence)
        PUBLISHED.inc(len(rows))
        if self._failing:
            self._failing = False
            _log.info("the broker takes results again", published=len(rows))
        return sequence

    async def _publish(self, measurements: list[measurement_pb2.Measurement]) -> None:
        """Keys beside each other, each key in order.

        Raises:
            StreamError: not all got through.
        """
        by_key: dict[str, list[measurement_pb2.Measurement]] = {}
        for measurement in measurements:
            by_key.setdefault(stream_key(measurement), []).append(measurement)

        async def publish_key(key: str, queue: list[measurement_pb2.Measurement]) -> StreamError | None:
            for measurement in queue:
                try:
                    await self._broker.publish(TOPIC, key, measurement)
                except StreamError as error:
                    return error  # later results of the key must not overtake this one
            return None

        outcomes = await asyncio.gather(*(publish_key(key, queue) for key, queue in by_key.items()))
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def keep_bounded(self) -> None:
        """Apply the retention until cancelled."""
        while True:
            pruned = await self._repository.prune(CURSOR, self._clock.now_us(), self._retention)
            if pruned.lost:
                LOST.inc(pruned.lost)
                _log.critical("results were removed that the broker never took, the file is full", lost=pruned.lost)
            # A full batch means that there is more.
            await self._clock.sleep(1.0 if pruned.rows >= 5_000 else PRUNE_EVERY_S)
