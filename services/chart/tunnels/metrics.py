"""How well a tunnel kept its target: settling, overshoot, steady error and changes. Pure.

Guirguis et al., section 3.1, with the design's definition of settled: the mean of three periods stays within B*/20 of
the target for three periods. Rates are in any one unit; times are counted in measurement periods.
"""

from __future__ import annotations

import itertools
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

MEAN_PERIODS = 3
SETTLED_PERIODS = 3
SETTLED_SHARE = 1 / 20
STEADY_PERIODS = 30


@dataclass(frozen=True)
class StepResponse:
    """What happened after one step, until the next.

    settling_periods: periods until the first of the three that count as settled, None when they never came.
    overshoot: how far the mean of three periods went beyond the target, on the far side of the step, as a share of it.
    steady_error: |mean - B*|/B* of the last periods, 30 at most, of those after settling when it settled.
    connections_peak, connections_final, changes: largest number, mean of the last three, sum of all |changes|.
    """

    settling_periods: int | None
    overshoot: float
    steady_error: float
    connections_peak: int
    connections_final: float
    changes: int


def running_means(rates: Sequence[float]) -> list[float]:
    """Means of three consecutive periods; entry i covers periods i to i + 2."""
    return [statistics.fmean(rates[i : i + MEAN_PERIODS]) for i in range(len(rates) - MEAN_PERIODS + 1)]


def settling_periods(rates: Sequence[float], target: float) -> int | None:
    """Periods from the start until the mean of three has come within B*/20 for three periods; None: never.

    A response that is within from the start has settled after three periods, the fewest that make a mean.
    """
    within = [abs(mean - target) <= SETTLED_SHARE * target for mean in running_means(rates)]
    for start in range(len(within) - SETTLED_PERIODS + 1):
        if all(within[start : start + SETTLED_PERIODS]):
            return start + MEAN_PERIODS
    return None


def overshoot(rates: Sequence[float], target: float) -> float:
    """How far the mean of three went beyond the target, on the side away from the first rate, as a share of the target.

    The first rate after a step is where the step put the tunnel: the controller has not acted yet.
    """
    means = running_means(rates) or [statistics.fmean(rates)]
    beyond = max(means) - target if rates[0] <= target else target - min(means)
    return max(0.0, beyond / target)


def steady_error(rates: Sequence[float], target: float, settled: int | None) -> float:
    """|mean - B*|/B* over the last 30 periods, or all since settling when they are fewer."""
    tail = list(rates[settled - MEAN_PERIODS :] if settled is not None else rates)[-STEADY_PERIODS:]
    return abs(statistics.fmean(tail) - target) / target


def changes(connections: Sequence[int]) -> int:
    """Connections opened and closed over a run."""
    return sum(abs(after - before) for before, after in itertools.pairwise(connections))


def step_response(rates: Sequence[float], connections: Sequence[int], target: float) -> StepResponse:
    """The figures of one step from the rates and connections of its periods.

    Raises ValueError without periods.
    """
    if not rates or len(rates) != len(connections):
        raise ValueError("a step needs as many rates as numbers of connections, and at least one")
    settled = settling_periods(rates, target)
    return StepResponse(
        settled,
        overshoot(rates, target),
        steady_error(rates, target, settled),
        max(connections),
        statistics.fmean(connections[-MEAN_PERIODS:]),
        changes(connections),
    )


@dataclass
class StepMeter:
    """`step_response` one period at a time and in bounded memory, for steps of any length."""

    target: float
    periods: int = 0
    settled: int | None = None
    _first_rate: float = 0.0
    _beyond: float = 0.0
    _within: int = 0
    _peak: int = 0
    _changes: int = 0
    _rates: deque[float] = field(default_factory=lambda: deque(maxlen=STEADY_PERIODS))
    _connections: deque[int] = field(default_factory=lambda: deque(maxlen=MEAN_PERIODS))

    def add(self, rate: float, connections: int) -> None:
        """One period: its mean rate, and the connections that were open."""
        if not self.periods:
            self._first_rate = rate
        else:
            self._changes += abs(connections - self._connections[-1])
        self.periods += 1
        self._peak = max(self._peak, connections)
        self._rates.append(rate)
        self._connections.append(connections)
        if self.periods < MEAN_PERIODS:
            return
        mean = statistics.fmean(list(self._rates)[-MEAN_PERIODS:])
        beyond = mean - self.target if self._first_rate <= self.target else self.target - mean
        self._beyond = max(self._beyond, beyond)
        self._within = self._within + 1 if abs(mean - self.target) <= SETTLED_SHARE * self.target else 0
        if self.settled is None and self._within == SETTLED_PERIODS:
            self.settled = self.periods - SETTLED_PERIODS + 1

    def response(self) -> StepResponse:
        """What happened so far.

        Raises ValueError without periods.
        """
        if not self.periods:
            raise ValueError("a step has figures from its first period on")
        rates = list(self._rates)
        beyond = self._beyond
        if self.periods < MEAN_PERIODS:
            mean = statistics.fmean(rates)
            beyond = max(0.0, mean - self.target if self._first_rate <= self.target else self.target - mean)
        since = self.periods if self.settled is None else self.periods - self.settled + MEAN_PERIODS
        return StepResponse(
            self.settled,
            beyond / self.target,
            abs(statistics.fmean(rates[-since:]) - self.target) / self.target,
            self._peak,
            statistics.fmean(self._connections),
            self._changes,
        )
