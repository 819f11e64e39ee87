"""What the inference service decides, without streams or a clock: measurements in, estimates and choices out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from chart.inference import contradictions
from chart.inference.composition import Network, Segment, compose
from chart.inference.estimator import Inference
from chart.inference.observations import Flags, Floats, Observations, observe
from chart.inference.routers import RouterBook
from chart.v1 import estimate_pb2, measurement_pb2, topology_pb2

MEASURED = "measured"
UNITS = {"us": "_us", "bps": "_bps", "ratio": "_ratio"}
AID = "rtt_us"
# Metrics to which the round-trip times of routers belong.
ROUND_TRIPS = ("rtt_us", "rtt_min_us")
# Tag of a node that says which nodes are alike (provider, site, network).
GROUP_TAG = "group"


@dataclass(frozen=True)
class MetricKind:
    """How a metric behaves; the floor is the smallest difference that means something, in the metric's unit."""

    symmetric: bool
    floor: float
    # The sensor that measures it when inference asks for a pair.
    sensor: str


_KINDS = {
    "rtt_us": MetricKind(True, 100.0, "ping"),
    "rtt_min_us": MetricKind(True, 100.0, "ping"),
    "rtt_p95_us": MetricKind(True, 100.0, "ping"),
    "jitter_us": MetricKind(True, 10.0, "ping"),
    "loss_ratio": MetricKind(False, 1e-3, "ping"),
    "available_bandwidth_bps": MetricKind(False, 1e4, "pathchirp"),
    "capacity_bps": MetricKind(False, 1e4, "pathrate"),
    "throughput_bps": MetricKind(False, 1e4, "pathchirp"),
}


def kind_of(metric: str) -> MetricKind | None:
    """State of a metric; None: nothing is inferred for it."""
    return _KINDS.get(metric)


def unit_of(metric: str) -> str:
    """Unit as measurements name it."""
    return next((unit for unit, end in UNITS.items() if metric.endswith(end)), "")


def key_of(source: str, destination: str, metric: str) -> str:
    """Key of chart.measurement.v1 and chart.estimate.v1."""
    return f"{source},{destination},{metric}"


@dataclass(frozen=True, slots=True)
class Known:
    """The newest result of a pair."""

    value: float
    at_us: int


@dataclass
class Book:
    """The newest measurement of each pair and metric, and the topology; bounded."""

    most_nodes: int
    most_metrics: int
    results: dict[str, dict[tuple[str, str], Known]] = field(default_factory=dict)
    nodes: dict[str, topology_pb2.Node] = field(default_factory=dict)
    segments: dict[str, Segment] = field(default_factory=dict)
    refused: int = 0
    routers: RouterBook = field(default_factory=RouterBook)
    _nodes_of: dict[str, set[str]] = field(default_factory=dict)

    def take(self, measurement: measurement_pb2.Measurement, now_us: int) -> str | None:
        """Note a result; returns the metric when it is news that estimates may rest on."""
        metric = measurement.metric
        kind = kind_of(metric)
        pair = (measurement.source_node, measurement.destination_node)
        value = measurement.value
        if measurement.hops:
            self.routers.note(measurement, now_us, self._addresses(pair[1]))
        if measurement.error or kind is None or not all(pair) or pair[0] == pair[1]:
            return None
        if not math.isfinite(value) or value < 0:
            self.refused += 1
            return None
        table = self.results.get(metric)
        if table is None:
            if len(self.results) >= self.most_metrics:
                self.refused += 1
                return None
            table = self.results[metric] = {}
        before = table.get(pair)
        # A wrong clock must not make a result the newest for ever.
        at_us = min(measurement.measured_at_us or now_us, now_us)
        if before is not None and before.at_us > at_us:
            return None
        if before is None and not self._room_for(metric, pair):
            self.refused += 1
            return None
        table[pair] = Known(value, at_us)
        return metric

    def _addresses(self, node: str) -> set[str]:
        """Addresses of a node of the topology, without their prefix lengths."""
        known = self.nodes.get(node)
        return {address.partition("/")[0] for address in known.addresses} if known is not None else set()

    def _room_for(self, metric: str, pair: tuple[str, str]) -> bool:
        """Whether the ends of a new pair are known or may yet be; notes them."""
        known = self._nodes_of.setdefault(metric, set())
        if len(known.union(pair)) > self.most_nodes:
            return False
        known.update(pair)
        return True

    def known_nodes(self, metric: str) -> set[str]:
        """Nodes of the topology and of a metric's results."""
        return self.nodes.keys() | self._nodes_of.get(metric, set())

    def note(self, key: str, entity: topology_pb2.TopologyEntity | None) -> None:
        """Note an entity of the topology as it now is; None: removed. A removed node's results go with it."""
        self.segments.pop(key, None)
        gone = self.nodes.pop(key, None)
        if entity is None:
            if gone is not None:
                self.routers.remove_node(key)
                for metric, table in self.results.items():
                    for pair in [pair for pair in table if key in pair]:
                        del table[pair]
                    self._nodes_of.get(metric, set()).discard(key)
        elif entity.WhichOneof("entity") == "node":
            self.nodes[key] = entity.node
        elif entity.WhichOneof("entity") == "link":
            link = entity.link
            self.segments[key] = Segment(link.from_node, link.to_node, float(link.capacity_bps), float(link.delay_us))

    def forget(self, before_us: int) -> set[str]:
        """Drop results older than this; returns the metrics that lost some."""
        changed: set[str] = set()
        if self.routers.forget(before_us):
            changed.update(metric for metric in self.results if metric in ROUND_TRIPS)
        for metric, table in self.results.items():
            old = [pair for pair, known in table.items() if known.at_us < before_us]
            for pair in old:
                del table[pair]
            if old:
                changed.add(metric)
                self._nodes_of[metric] = {node for pair in table for node in pair}
        return changed

    def observations(self, metric: str, aid: Floats | None = None) -> Observations | None:
        """The metric as a matrix over all nodes known; None without results."""
        kind = kind_of(metric)
        table = self.results.get(metric)
        if kind is None or not table:
            return None
        nodes = sorted(self.known_nodes(metric))[: self.most_nodes]
        number = {node: index for index, node in enumerate(nodes)}
        values = np.full((len(nodes), len(nodes)), np.nan)
        for (source, destination), known in table.items():
            if source in number and destination in number:
                values[number[source], number[destination]] = known.value
        groups = [self.nodes[node].tags.get(GROUP_TAG, "") if node in self.nodes else "" for node in nodes]
        both = np.where(np.isnan(values), values.T, values) if kind.symmetric else values
        composed = compose(metric, nodes, both, Network.of(self.segments.values()))
        if composed is not None and kind.symmetric:
            composed = (composed + composed.T) / 2
        if aid is not None and aid.shape != values.shape:
            aid = None
        return observe(
            nodes,
            values,
            symmetric=kind.symmetric,
            floor=kind.floor,
            groups=groups,
            aid=aid,
            composed=composed,
            routers=self.routers.table(nodes) if metric in ROUND_TRIPS else None,
        )


@dataclass
class Metric:
    """One metric's model and its last estimates."""

    name: str
    inference: Inference = field(default_factory=Inference)
    estimates: dict[str, estimate_pb2.Estimate] = field(default_factory=dict)

    def refresh(self, observations: Observations) -> None:
        """Learn from newer observations. Takes seconds with hundreds of nodes: run it in a thread."""
        self.inference.update(observations)

    def contradictions(self, table: Mapping[tuple[str, str], Known]) -> list[contradictions.Contradiction]:
        """Nodes whose results contradict those of the others; none for a directed metric."""
        kind = kind_of(self.name)
        if kind is None or not kind.symmetric:
            return []
        results = {pair: (known.value, known.at_us) for pair, known in table.items()}
        return contradictions.against_others(results, kind.floor)

    def collect(self, table: Mapping[tuple[str, str], Known], now_us: int) -> dict[str, estimate_pb2.Estimate]:
        """Estimates of all pairs as records; measured ones as they are, at the time of their measurement."""
        said = self.inference.predict()
        unit = unit_of(self.name)
        records: dict[str, estimate_pb2.Estimate] = {}
        for row, source in enumerate(said.nodes):
            for column, destination in enumerate(said.nodes):
                value = said.values[row, column]
                if row == column or not math.isfinite(value):
                    continue
                known = table.get((source, destination)) or table.get((destination, source))
                measured = bool(said.measured[row, column]) and known is not None
                records[key_of(source, destination, self.name)] = estimate_pb2.Estimate(
                    source_node=source,
                    destination_node=destination,
                    metric=self.name,
                    value=float(value),
                    unit=unit,
                    method=MEASURED if measured else said.methods[said.by[row, column]],
                    interval_low=float(said.low[row, column]),
                    interval_high=float(said.high[row, column]),
                    estimated_at_us=known.at_us if measured and known is not None else now_us,
                )
        return records


def differs(told: estimate_pb2.Estimate, now: estimate_pb2.Estimate, change: float) -> bool:
    """Whether an estimate moved enough to be told again; its time alone is no news."""

    def moved(before: float, after: float, share: float) -> bool:
        return abs(after - before) > share * max(abs(before), 1e-12)

    return (
        told.method != now.method
        or moved(told.value, now.value, change)
        or moved(told.interval_low, now.interval_low, 5 * change)
        or moved(told.interval_high, now.interval_high, 5 * change)
    )


def changes(
    told: Mapping[str, estimate_pb2.Estimate], now: Mapping[str, estimate_pb2.Estimate], metric: str, change: float
) -> dict[str, estimate_pb2.Estimate | None]:
    """Records to publish for a metric: news by key, None for pairs of which nothing is said any more."""
    news: dict[str, estimate_pb2.Estimate | None] = {
        key: estimate for key, estimate in now.items() if key not in told or differs(told[key], estimate, change)
    }
    news.update({key: None for key, one in told.items() if one.metric == metric and key not in now})
    return news


@dataclass(frozen=True)
class Wanted:
    """A pair to measure next."""

    source: str
    destination: str
    metric: str
    reason: str
    relative_width: float


def next_pairs(metric: Metric, count: int, fraction: float, asked: Iterable[tuple[str, str]]) -> list[Wanted]:
    """What to measure next for a metric, best first; pairs that were asked for a moment ago are left out."""
    try:
        said = metric.inference.predict()
    except RuntimeError:
        return []
    nodes = said.nodes
    number = {node: index for index, node in enumerate(nodes)}
    avoid: Flags = np.zeros((len(nodes), len(nodes)), dtype=bool)
    for source, destination in asked:
        if source in number and destination in number:
            avoid[number[source], number[destination]] = True
    pairs = len(nodes) * (len(nodes) - 1) / 2
    wanted: list[Wanted] = []
    for one in metric.inference.next_pairs(count, max(3 * len(nodes), int(fraction * pairs)), avoid):
        value, low, high = (float(m[one.source, one.destination]) for m in (said.values, said.low, said.high))
        width = (high - low) / value if math.isfinite(value) and value > 0 else 0.0
        wanted.append(Wanted(nodes[one.source], nodes[one.destination], metric.name, one.reason, width))
    return wanted


def page(
    records: Mapping[str, estimate_pb2.Estimate],
    *,
    source: str,
    destination: str,
    metric: str,
    limit: int,
    cursor: str,
) -> tuple[Sequence[estimate_pb2.Estimate], str]:
    """Estimates in order of their keys after the cursor, and the cursor of the next page (empty at the end)."""
    keys = [
        key
        for key, one in sorted(records.items())
        if key > cursor
        and source in ("", one.source_node)
        and destination in ("", one.destination_node)
        and metric in ("", one.metric)
    ]
    return [records[key] for key in keys[:limit]], keys[limit - 1] if len(keys) > limit else ""
