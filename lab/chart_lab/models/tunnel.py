"""A fast model of the plant for tests and for looking at gains: m tunnel connections beside x others on one bottleneck.

Guirguis et al., section 1: each connection gets C/(m + x) in the end; section 3.3: a change shows after a delay, here a
first-order lag with time constant tau. Measurements are means over the period, with relative noise if wanted.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from chart.tunnels.controller import Controller, Measurement


@dataclass
class Simulator:
    """State of the model; rates in the unit of the capacity."""

    capacity: float
    tau_s: float
    period_s: float
    noise: float = 0.0
    seed: int = 1
    rate: float = 0.0
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Seeds the noise."""
        self._random = random.Random(self.seed)  # noqa: S311 - noise of a model, not a secret

    def share(self, connections: int, cross: float) -> float:
        """Rate of the tunnel once all has settled."""
        return self.capacity * connections / (connections + cross)

    def period(self, connections: int, cross: float) -> float:
        """One measurement period: returns the mean rate in it."""
        final = self.share(connections, cross)
        decay = math.exp(-self.period_s / self.tau_s) if self.tau_s > 0 else 0.0
        mean = final + (self.rate - final) * (1 - decay) * self.tau_s / self.period_s
        self.rate = final + (self.rate - final) * decay
        return min(self.capacity, max(0.0, mean * (1 + self._random.gauss(0, self.noise))))


@dataclass(frozen=True)
class Trace:
    """One entry per period: what was measured, with how many connections open."""

    rates: list[float]
    connections: list[int]


def run(
    controller: Controller,
    simulator: Simulator,
    periods: int,
    target: Callable[[int], float],
    cross: Callable[[int], float],
    connections: int = 1,
) -> Trace:
    """Lets a controller act for some periods; target and cross are functions of the period's number."""
    trace = Trace([], [])
    simulator.rate = simulator.share(connections, cross(0))
    for number in range(periods):
        rate = simulator.period(connections, cross(number))
        trace.rates.append(rate)
        trace.connections.append(connections)
        connections = controller.decide(target(number), Measurement(rate, connections)).connections
    return trace
