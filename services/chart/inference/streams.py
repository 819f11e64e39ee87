"""Streams of the inference service: measurements and topology in, estimates out; asks for pairs when it may.

Nothing is stored: a service that starts reads the measurements that the stream still keeps, and the estimates that were
told, so that it tells only what is new.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import cast

import structlog
from prometheus_client import Counter, Gauge, Histogram

from chart.common import runtime
from chart.common.clock import Clock, SystemClock
from chart.common.platform_settings import PlatformView
from chart.common.streams import Broker, CompactedState, StreamError
from chart.inference import service
from chart.inference.asking import Asker
from chart.inference.contradictions import Contradiction
from chart.inference.observations import Floats
from chart.inference.settings import InferenceSettings
from chart.inference.wishes import Wishes
from chart.v1 import estimate_pb2, measurement_pb2, topology_pb2
from chart.v1.wanted_pairs_pb2 import WantedPairs

MEASUREMENT = "chart.measurement.v1"
ESTIMATE = "chart.estimate.v1"
TOPOLOGY = "chart.topology.v1"
WANTED_PAIRS = "chart.wanted-pairs.v1"
# Records in flight at once when many estimates change.
BATCH = 200

MEASUREMENTS = Counter("chart_inference_measurements_total", "Measurements that estimates rest on", ["metric"])
REFUSED = Gauge("chart_inference_refused_measurements", "Measurements that no bound or metric has room for")
PUBLISHED = Counter("chart_inference_estimates_total", "Estimates published", ["metric"])
FAILURES = Counter("chart_inference_refresh_failures_total", "Refreshes that failed", ["metric"])
REFRESH = Histogram(
    "chart_inference_refresh_seconds", "One metric's refresh", buckets=(0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60)
)
CONTRADICTION = Gauge(
    "chart_inference_contradiction_ratio",
    "Share of a node's results that contradict those of the others; only where most do",
    ["metric", "node"],
)
ERROR = Gauge("chart_inference_error_ratio", "Median relative error on held-out pairs", ["metric", "method"])

_log = structlog.get_logger("chart.inference.streams")


class InferenceService:
    """The running service."""

    def __init__(self, broker: Broker, settings: InferenceSettings, clock: Clock | None = None) -> None:
        self._broker = broker
        self._settings = settings
        self._clock = clock or SystemClock()
        self._states: dict[str, CompactedState] = {}
        self._changed: set[str] = set()
        # What operators set for the platform goes before what this process was started with.
        self.platform = PlatformView()
        self._asker = Asker(self._now)
        self._read = False
        # Label values of the contradictions that are exported.
        self._contradicting: set[tuple[str, str]] = set()
        self.book = service.Book(settings.inference_nodes, settings.inference_metrics)
        self.metrics: dict[str, service.Metric] = {}
        self.told: dict[str, estimate_pb2.Estimate] = {}
        # What meshes are to measure, by metric, and what of it was told.
        self._wishes: dict[str, Wishes] = {}
        self._wishes_told: dict[str, WantedPairs] = {}

    def _now(self) -> InferenceSettings:
        return self.platform.applied(self._settings)

    @property
    def ready(self) -> bool:
        """Whether topology and earlier estimates are held and the measurements that were there have been read."""
        return len(self._states) == 2 and all(state.ready for state in self._states.values()) and self._read

    async def run(self) -> None:
        """Work until cancelled.

        Raises:
            StreamUnavailable: a state could not be read at the start; the supervisor tries again.
        """
        for topic in (TOPOLOGY, ESTIMATE):
            self._states[topic] = await self._broker.compacted(topic)
        for key, value in self._states[TOPOLOGY].items():
            self.book.note(key, cast(topology_pb2.TopologyEntity, value))
        self.told = {key: cast(estimate_pb2.Estimate, value) for key, value in self._states[ESTIMATE].items()}
        _log.info("state is read", nodes=len(self.book.nodes), estimates=len(self.told))
        await runtime.run_together(
            self._follow_topology(), self._follow_measurements(), self._keep_fresh(), self.platform.run(self._broker)
        )

    async def _follow_topology(self) -> None:
        async for key, value in self._states[TOPOLOGY].subscribe_changes(with_current=True):
            self.book.note(key, cast("topology_pb2.TopologyEntity | None", value))
            self._changed.update(self.book.results)
        raise StreamError("the topology is no longer followed")

    async def _follow_measurements(self) -> None:
        async with self._broker.subscribe([MEASUREMENT], start="earliest") as measurements:
            caught_up = asyncio.create_task(self._note_end(measurements.caught_up))
            try:
                async for record in measurements:
                    if record.value is not None:
                        self.take(cast(measurement_pb2.Measurement, record.value))
            finally:
                caught_up.cancel()
        raise StreamError("the measurements are no longer followed")

    async def _note_end(self, caught_up: asyncio.Event) -> None:
        await caught_up.wait()
        self._read = True

    def take(self, measurement: measurement_pb2.Measurement) -> None:
        """One result of a sensor."""
        metric = self.book.take(measurement, self._clock.now_us())
        REFUSED.set(self.book.refused)
        if metric is not None:
            self._changed.add(metric)
            MEASUREMENTS.labels(metric=metric).inc()

    async def _keep_fresh(self) -> None:
        while not self._read:
            await self._clock.sleep(0.1)
        while True:
            begun = self._clock.monotonic()
            await self.refresh()
            await self.tell_wishes()
            if self._now().inference_active_pairs:
                await self.ask()
            spent = self._clock.monotonic() - begun
            await self._clock.sleep(max(self._settings.inference_period_s - spent, 0.1))

    async def refresh(self) -> None:
        """Bring the estimates of every metric with news up to date and tell what changed."""
        now_us = self._clock.now_us()
        self._changed |= self.book.forget(now_us - round(self._settings.inference_measurement_age_s * 1e6))
        changed, self._changed = self._changed, set()
        # The round-trip times first: others lean on them.
        for name in sorted(changed, key=lambda one: (one != service.AID, one)):
            try:
                await self._refresh_metric(name)
            except StreamError as error:
                self._changed.add(name)
                _log.warning("estimates were not published; the next period tries again", reason=str(error))
            except Exception:
                # One metric that cannot be completed must not end the others.
                FAILURES.labels(metric=name).inc()
                _log.exception("the estimates of a metric could not be refreshed", metric=name)

    async def _refresh_metric(self, name: str) -> None:
        observations = self.book.observations(name, self._aid(name))
        if observations is None:
            self.metrics.pop(name, None)
            self._note_contradictions(name, [])
            await self._tell(name, {})
            return
        metric = self.metrics.setdefault(name, service.Metric(name))
        table = dict(self.book.results[name])
        begun = time.perf_counter()
        before = metric.inference.method
        await asyncio.to_thread(metric.refresh, observations)
        REFRESH.observe(time.perf_counter() - begun)
        for trial in metric.inference.trials:
            ERROR.labels(metric=name, method=trial.method).set(trial.median_error)
        if metric.inference.method != before:
            _log.info(
                "chose the method of a metric by cross-validation",
                metric=name,
                method=metric.inference.method,
                measured=len(table),
                errors={trial.method: round(trial.median_error, 4) for trial in metric.inference.trials},
            )
        self._note_contradictions(name, await asyncio.to_thread(metric.contradictions, table))
        metric.estimates = await asyncio.to_thread(metric.collect, table, self._clock.now_us())
        await self._tell(name, metric.estimates)

    def _note_contradictions(self, name: str, found: list[Contradiction]) -> None:
        """Export the sensors that contradict, and take away what no longer does."""
        now = {(name, one.node): one for one in found}
        before = {labels for labels in self._contradicting if labels[0] == name}
        for labels in before - now.keys():
            CONTRADICTION.remove(*labels)
        for labels, one in now.items():
            CONTRADICTION.labels(*labels).set(one.share)
            if labels not in before:
                _log.warning(
                    "a node's results contradict those of the others",
                    metric=name,
                    node=one.node,
                    judged=one.judged,
                    share=round(one.share, 2),
                )
        self._contradicting = (self._contradicting - before) | now.keys()

    def _aid(self, name: str) -> Floats | None:
        """Round-trip times of all pairs for the other metrics, once they are estimated for the same nodes."""
        basis = self.metrics.get(service.AID)
        if name == service.AID or basis is None or not basis.estimates:
            return None
        said = basis.inference.predict()
        return said.values if list(said.nodes) == sorted(self.book.known_nodes(name)) else None

    async def _tell(self, name: str, now: dict[str, estimate_pb2.Estimate]) -> None:
        news = service.changes(self.told, now, name, self._settings.inference_change)
        keys = list(news)
        for start in range(0, len(keys), BATCH):
            part = keys[start : start + BATCH]
            await asyncio.gather(*(self._broker.publish(ESTIMATE, key, news[key]) for key in part))
            for key in part:
                estimate = news[key]
                if estimate is None:
                    self.told.pop(key, None)
                else:
                    self.told[key] = estimate
            PUBLISHED.labels(metric=name).inc(len(part))

    async def tell_wishes(self) -> None:
        """Tell meshes which pairs of every metric to measure next, where that changed."""
        now_us = self._clock.now_us()
        settings = self._now()
        for name in sorted(self._wishes.keys() | self.metrics.keys()):
            metric, table = self.metrics.get(name), self.book.results.get(name, {})
            kind = service.kind_of(name)
            known = set(table)
            if kind is not None and kind.symmetric:
                known |= {(destination, source) for source, destination in table}
            wishes = self._wishes.setdefault(name, Wishes(name))

            def choose(
                count: int, avoid: Collection[tuple[str, str]], metric: service.Metric | None = metric
            ) -> list[service.Wanted]:
                asked = [*avoid, *self._asker.asked]
                return service.next_pairs(metric, count, settings.inference_fraction, asked) if metric else []

            valid_us = round(settings.inference_active_valid_s * 1e6)
            count = settings.inference_wanted_pairs if metric is not None else 0
            told = await asyncio.to_thread(wishes.renew, known, choose, count, valid_us, now_us)
            if told == self._wishes_told.get(name):
                continue
            try:
                await self._broker.publish(WANTED_PAIRS, name, told)
            except StreamError as error:
                _log.warning("wanted pairs were not told; the next period tries again", reason=str(error))
            else:
                self._wishes_told[name] = told

    def next_pairs(self, name: str, count: int) -> list[service.Wanted]:
        """What to measure next for a metric; empty without measurements."""
        metric = self.metrics.get(name)
        if metric is None:
            return []
        return service.next_pairs(metric, count, self._now().inference_fraction, self._asker.asked)

    async def ask(self) -> None:
        """Have the next pairs of every metric measured."""
        now_us = self._clock.now_us()
        self._asker.forget(now_us)
        count = self._now().inference_active_pairs
        wanted = [one for name in sorted(self.metrics) for one in self.next_pairs(name, count)]
        await self._asker.ask(wanted, self.book.nodes, now_us)
