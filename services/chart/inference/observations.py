"""What inference works on: the measured pairs of one metric as a matrix, and the estimates that come out of it.

Brassil et al., The CHART System, section 6 (sensing: all-pairs figures from few measurements).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Routers:
    """Round-trip times between nodes (rows) and routers that traces found (columns), in the metric's unit.

    ``values`` is NaN where a node did not see a router; ``only`` is the number of the one destination on whose way the
    node saw it, -1 when there were several or it is no node.
    """

    values: Floats
    only: Indices


@dataclass(frozen=True)
class Observations:
    """Measured pairs of one metric.

    ``values[i, j]`` is the newest result from node i to node j in the metric's unit, NaN where nothing was measured;
    the diagonal is NaN. A symmetric metric has the same value in both directions. Values are not negative; ``floor``
    is the smallest difference that means something (0.1 ms for a round-trip time), errors are relative above it.
    """

    nodes: tuple[str, ...]
    values: Floats
    symmetric: bool
    floor: float
    # Number of the group of each node (provider, site), from its name or tags; all 0 when nothing is known.
    groups: Indices
    # Another metric for all pairs that this one goes with (round-trip time for throughput), NaN where unknown.
    aid: Floats | None = None
    # The value that the topology's links make up for each pair, NaN where they do not lead there.
    composed: Floats | None = None
    # What traces say of the ways, for round-trip times.
    routers: Routers | None = None

    @property
    def count(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def measured(self) -> Flags:
        """Which pairs are known."""
        return np.isfinite(self.values)

    def connected(self) -> Flags:
        """Which pairs lie in one group: measurements connect them, through whatever other nodes or routers, or another
        metric does. How groups that nothing connects lie to each other cannot be known.
        """
        links = self.measured.copy()
        for known in (self.aid, self.composed):
            if known is not None:
                links |= np.isfinite(known)
        rows, columns = np.nonzero(links)
        size = self.count
        if self.routers is not None:
            seeing, seen = np.nonzero(np.isfinite(self.routers.values))
            rows, columns = np.concatenate([rows, seeing]), np.concatenate([columns, self.count + seen])
            size += self.routers.values.shape[1]
        graph = coo_array((np.ones(len(rows), dtype=np.int8), (rows, columns)), shape=(size, size))
        group = connected_components(graph, directed=False)[1][: self.count]
        return np.asarray(group[:, None] == group[None, :])

    def pairs(self) -> tuple[Indices, Indices]:
        """Rows and columns of every pair once: the upper triangle, or all but the diagonal for a directed metric."""
        if self.symmetric:
            rows, columns = np.triu_indices(self.count, 1)
        else:
            rows, columns = np.nonzero(~np.eye(self.count, dtype=bool))
        return rows, columns

    def logs(self) -> Floats:
        """Natural logarithms of the values, those below the floor taken as the floor; NaN where not measured."""
        return np.log(np.maximum(self.values, self.floor))

    def without(self, rows: Indices, columns: Indices) -> Observations:
        """The same with some pairs unknown, as if they had never been measured."""
        values = self.values.copy()
        values[rows, columns] = np.nan
        if self.symmetric:
            values[columns, rows] = np.nan
        return replace(self, values=values)


@dataclass(frozen=True)
class Completion:
    """What a method makes of observations: for all pairs the logarithm of the value and how unsure it is of it."""

    logs: Floats
    # Spread of the logarithm, comparable among the pairs of one completion; the intervals are calibrated from it.
    spread: Floats


@dataclass(frozen=True)
class Estimates:
    """Value and 90 % prediction interval of every pair, which of them were measured, and which of the methods said what
    was not: the first is the chosen one.
    """

    nodes: tuple[str, ...]
    values: Floats
    low: Floats
    high: Floats
    measured: Flags
    methods: tuple[str, ...]
    by: Indices

    @property
    def method(self) -> str:
        """The chosen one."""
        return self.methods[0]


def observe(
    nodes: Sequence[str],
    values: Floats,
    *,
    symmetric: bool,
    floor: float,
    groups: Sequence[str] | None = None,
    aid: Floats | None = None,
    composed: Floats | None = None,
    routers: Routers | None = None,
) -> Observations:
    """Observations from a matrix. Of a symmetric metric the two directions of a pair are averaged.

    Raises:
        ValueError: shapes that do not fit, or a negative value.
    """
    matrix = np.array(values, dtype=np.float64)
    count = len(nodes)
    if matrix.shape != (count, count):
        msg = f"{count} nodes need a {count} x {count} matrix, not {matrix.shape}"
        raise ValueError(msg)
    matrix[~np.isfinite(matrix)] = np.nan
    np.fill_diagonal(matrix, np.nan)
    if bool((matrix < 0).any()):
        msg = "values must not be negative"
        raise ValueError(msg)
    if symmetric:
        other = matrix.T
        matrix = np.where(np.isnan(matrix), other, np.where(np.isnan(other), matrix, (matrix + other) / 2))
    labels = groups if groups is not None else [""] * count
    numbers = np.unique(np.array(labels, dtype=str), return_inverse=True)[1].astype(np.intp)
    return Observations(tuple(nodes), matrix, symmetric, floor, numbers, aid, composed, routers)
