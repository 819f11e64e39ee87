"""Routers that traces found, as milestones (Sharma et al., Estimating Network Proximity and Latency, CCR 36(3) 2006).

A router that two nodes saw on their ways, each with its round-trip time, bounds the pair of them like a landmark does.
Only such routers count, and what a trace between the two ends of a pair says of the pair itself does not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from chart.inference.observations import Flags, Floats, Indices, Observations, Routers
from chart.v1 import measurement_pb2

# Routers that are held, and so many of them, those that most nodes saw, are used.
MOST_HELD = 4000
MOST_USED = 200
# Ways to a router that are held of each node: two are enough to tell that it does not rest on one destination.
MOST_WAYS = 4
# An address that stands for different machines (a private one) contradicts what was measured: a pair that is longer
# than the way over the router. So many of its pairs may, for real ways are not always the shortest.
LONGER = 1.25
CONTRADICTING = 0.25


@dataclass(frozen=True, slots=True)
class _Way:
    """A router's round-trip time as a node saw it on its way to a destination."""

    rtt_us: float
    at_us: int


@dataclass
class RouterBook:
    """What traces found: by address, node and destination. Bounded; a router that was not seen for longest goes."""

    _ways: OrderedDict[str, dict[str, dict[str, _Way]]] = field(default_factory=OrderedDict)

    def note(self, measurement: measurement_pb2.Measurement, now_us: int, ends: Collection[str]) -> bool:
        """Take the routers of a result; `ends` are addresses of its destination, which is no router.

        Returns whether there were any.
        """
        source, destination = measurement.source_node, measurement.destination_node
        if measurement.error or not source or not destination or source == destination:
            return False
        at_us = min(measurement.measured_at_us or now_us, now_us)
        taken = False
        for hop in measurement.hops:
            if not hop.address or hop.address in ends or not 0 < hop.rtt_us < np.inf:
                continue
            nodes = self._ways.setdefault(hop.address, {})
            self._ways.move_to_end(hop.address)
            ways = nodes.setdefault(source, {})
            before = ways.pop(destination, None)
            if before is not None and before.at_us > at_us:
                ways[destination] = before
                continue
            ways[destination] = _Way(hop.rtt_us, at_us)
            if len(ways) > MOST_WAYS:
                del ways[next(iter(ways))]
            taken = True
        while len(self._ways) > MOST_HELD:
            self._ways.popitem(last=False)
        return taken

    def forget(self, before_us: int) -> bool:
        """Drop what is older; returns whether anything was."""
        dropped = False
        for address, nodes in list(self._ways.items()):
            for node, ways in list(nodes.items()):
                for destination in [one for one, way in ways.items() if way.at_us < before_us]:
                    del ways[destination]
                    dropped = True
                if not ways:
                    del nodes[node]
            if not nodes:
                del self._ways[address]
        return dropped

    def remove_node(self, node: str) -> None:
        """A node is gone."""
        for nodes in self._ways.values():
            nodes.pop(node, None)
            for ways in nodes.values():
                ways.pop(node, None)

    def table(self, nodes: Sequence[str]) -> Routers | None:
        """Routers that at least two of the nodes saw, those that most saw first; None without any."""
        number = {node: index for index, node in enumerate(nodes)}
        columns: list[dict[int, dict[str, _Way]]] = []
        for seen in self._ways.values():
            column = {number[node]: ways for node, ways in seen.items() if node in number and ways}
            if len(column) >= 2:
                columns.append(column)
        if not columns:
            return None
        columns = sorted(columns, key=len, reverse=True)[:MOST_USED]
        values = np.full((len(nodes), len(columns)), np.nan)
        only = np.full(values.shape, -1, dtype=np.intp)
        for index, column in enumerate(columns):
            for row, ways in column.items():
                values[row, index] = min(way.rtt_us for way in ways.values())
                if len(ways) == 1:
                    only[row, index] = number.get(next(iter(ways)), -1)
        return Routers(values, only)


def usable(observations: Observations) -> Iterator[tuple[Indices, Floats, Flags]]:
    """(nodes that saw a router, their values, which pairs of them it may speak for) of every router to be believed."""
    routers = observations.routers
    if routers is None or not observations.symmetric:
        return
    for column, only in zip(routers.values.T, routers.only.T, strict=True):
        ends = np.flatnonzero(np.isfinite(column))
        if len(ends) < 2:
            continue
        value = column[ends]
        # The one destination on whose way it was seen is the other end: the trace is a measurement of the pair.
        between = only[ends][:, None] == ends[None, :]
        speaks = ~(between | between.T | np.eye(len(ends), dtype=bool))
        known = observations.values[np.ix_(ends, ends)]
        judged = speaks & np.isfinite(known)
        total = value[:, None] + value[None, :]
        if judged.any() and np.mean(known[judged] > LONGER * total[judged] + observations.floor) > CONTRADICTING:
            continue
        if speaks.any():
            yield ends, value, speaks
