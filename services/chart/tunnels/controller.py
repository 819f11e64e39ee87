"""Controllers of elastic tunnels: naive, P and PI. Pure.

Guirguis et al., Providing Soft Bandwidth Guarantees Using Elastic TCP-based Tunnels (BUCS-TR-2003-028), section 3.
Rates are in any one unit (packets or bits per second) that capacity, target and measurement share; errors are in
that unit, gains in connections per unit.

Where this departs from the paper: the paper designs on the continuous model of equations (2) to (14). The controller
acts once per measurement period T, so stability is judged on the sampled model here: after a change of m the tunnel's
rate follows with time constant tau towards beta m, where beta = alpha (C - B*) (equation 8), and a measurement is the
mean over the period. Equation (14) is reported beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

CONNECTIONS_MAX = 256
# The paper's guard has no figure; below four segments a loss costs TCP a timeout (fast retransmit needs three more).
WINDOW_MIN_SEGMENTS = 4.0
# Designed PI: in how many periods the loop makes up for an error, delay included. Far from the target (FAR_SHARE of it
# and more) nearly at once; near it (NEAR_SHARE and less) slowly, because there most of the error is the noise of TCP.
FAR_PERIODS = 1.25
NEAR_PERIODS = 2.9
# A lag slows the loop by twice its length: what is closed is missing at once, and the windows of the others grow over
# it only within the lag; what is opened needs as long to get its share. A proportional part makes up for the lag only
# as far as the noise of a measurement, which it hands straight to m, allows.
LAG_FACTOR = 2.0
LAG_PERIODS_MAX = 0.1
FAR_SHARE = 0.2
NEAR_SHARE = 0.05
# Room below the capacity that the model must keep: at B* = C no number of connections would do.
HEADROOM_MIN = 0.05
# A change of m is worth its cost when it is expected to move the rate by this share of the target, half of the band in
# which a tunnel counts as settled; where one connection is more than twice that, plain rounding.
WORTH_SHARE = 0.025
# From this share of the capacity on, a tunnel above its target has the bottleneck to itself: closing connections brings
# the rate no nearer, it only makes room for those who come. They are closed slowly, in so many periods.
ALONE_SHARE = 0.95
ALONE_PERIODS = 4.0
# A swing: from this far on one side of the target to as far on the other within so many periods. What was right then is
# wrong now, so for a while less is believed: of the gains so much is taken off, less by SWING_MEMORY each period.
SWING_SHARE = 0.5
SWING_PERIODS = 12
SWING_CAUTION = 0.95
SWING_MEMORY = 0.96
# A designed tunnel lets out this much more than B*, and no more (decision 25): TCP's ups are cut off there, and what it
# lacks below B* still shows, so that the loop knows when connections are missing.
LIMIT_SHARE = 0.015
# A period counts as one at the limit when no more than this was missing.
LIMIT_SLACK = 0.04
# Windows that would carry so many times the limit, and so much of the capacity, at the end of two periods have the
# bottleneck to themselves: right after a loss was made up for they are large for a moment, too.
ALONE_WINDOWS = 1.5
ALONE_WINDOWS_SHARE = 0.67
# Windows that are not used do not grow: after so many periods in a row at the limit each one more counts as so much
# more room, up to a bound.
SURE_PERIODS = 6
SURE_SHARE = 0.01
SURE_SHARE_MAX = 0.06


@dataclass(frozen=True)
class Plant:
    """What the gains are designed from.

    alpha: a connection's fair share of the bottleneck, 1/(m + x); tau_s: time until a change of m shows in the rate.
    """

    capacity: float
    target: float
    alpha: float
    tau_s: float
    period_s: float

    @property
    def beta(self) -> float:
        """Rate that one more connection brings, alpha (C - B*) (equation 8), never nothing."""
        return self.alpha * max(self.capacity - self.target, HEADROOM_MIN * self.capacity)


@dataclass(frozen=True)
class Gains:
    """m = kp e + ki sum(e), the sum over periods."""

    kp: float
    ki: float


@dataclass(frozen=True)
class Characteristic:
    """Equation (14): a s^2 + b s + c with feedback delay tau; stable when all three have one sign."""

    a: float
    b: float
    c: float

    @property
    def stable(self) -> bool:
        """Routh's condition for the second order."""
        return self.a > 0 and self.b > 0 and self.c > 0


def equation_14(gains: Gains, plant: Plant) -> Characteristic:
    """The paper's test, s^2 (1 - beta tau Kp) + s (Kp beta - beta tau Ki) + beta Ki, with Ki per second."""
    beta, tau_s, ki = plant.beta, plant.tau_s, gains.ki / plant.period_s
    return Characteristic(1 - beta * tau_s * gains.kp, gains.kp * beta - beta * tau_s * ki, beta * ki)


def design(plant: Plant, periods: float = NEAR_PERIODS) -> Gains:
    """PI gains that make up for an error in so many periods, and the lag's (after internal model control)."""
    lag_periods = plant.tau_s / plant.period_s
    ki = 1 / (plant.beta * (periods + LAG_FACTOR * lag_periods))
    return Gains(kp=ki * min(lag_periods, LAG_PERIODS_MAX), ki=ki)


def distance(target: float, rate: float) -> float:
    """How far a rate is from the target: 0 as near as noise, 1 far, for `design_periods` and for forgetting."""
    off = abs(target - rate) / target if target else 1.0
    return min(max((off - NEAR_SHARE) / (FAR_SHARE - NEAR_SHARE), 0.0), 1.0)


def design_periods(distance: float) -> float:
    """Periods to make up for an error at this distance; the gain is linear in it."""
    near, far = 1 / NEAR_PERIODS, 1 / FAR_PERIODS
    return 1 / (near + (far - near) * distance)


def closed_loop(gains: Gains, plant: Plant) -> npt.NDArray[np.float64]:
    """The sampled closed loop as a matrix over (rate at the period's start, last measurement, sum of errors).

    In a period: m = kp e + ki sum with e = -y of the period before; rate' = a rate + (1 - a) beta m; the measurement is
    the mean, y = beta m + (rate - beta m) (1 - a) tau / T.
    """
    a = math.exp(-plant.period_s / plant.tau_s) if plant.tau_s > 0 else 0.0
    share = (1 - a) * plant.tau_s / plant.period_s
    beta = plant.beta
    # The controller's state after seeing y: sum' = sum - y, and m = -kp y + ki sum'.
    m_of = np.array([0.0, -gains.kp - gains.ki, gains.ki])
    rate = np.array([a, 0.0, 0.0]) + (1 - a) * beta * m_of
    measured = np.array([share, 0.0, 0.0]) + (1 - share) * beta * m_of
    total = np.array([0.0, -1.0, 1.0])
    return np.vstack([rate, measured, total])


def spectral_radius(gains: Gains, plant: Plant) -> float:
    """Largest pole of the sampled closed loop; below 1 it is stable, and an error shrinks by it every period."""
    return float(max(abs(np.linalg.eigvals(closed_loop(gains, plant)))))


@dataclass(frozen=True)
class Measurement:
    """What the monitor says of one period: the rate at the destination, with the open connections and their windows."""

    rate: float
    connections: int
    windows_segments: tuple[float, ...] = ()
    # Whether users' packets waited for room: without, the rate says what users want, not what the tunnel could carry.
    backlogged: bool = True
    # What the origin let out at most, 0: all; and what the windows would carry, sizes over round trips.
    limit: float = 0.0
    windows_rate: float = 0.0


@dataclass(frozen=True)
class Decision:
    """The number of connections for the next period, and what led to it."""

    connections: int
    wanted: float
    guarded: bool = False
    starved: bool = False
    gains: Gains | None = None
    alpha: float | None = None
    spectral_radius: float | None = None
    equation_14_stable: bool | None = None
    # What the origin shall let out at most; 0: all.
    limit: float = 0.0


class Controller(Protocol):
    """Asked once per control period, which equals the measurement period."""

    def decide(self, target: float, measured: Measurement) -> Decision:
        """The number of connections for the next period."""
        ...


def guarded(measured: Measurement, connections: int, window_min_segments: float) -> bool:
    """Whether the guard forbids this: a new connection while a window is below w_min (section 2.1)."""
    return connections > measured.connections and any(w < window_min_segments for w in measured.windows_segments)


def starved(measured: Measurement, connections: int) -> bool:
    """Whether more connections would be of no use because users do not fill those that are there."""
    return connections > measured.connections and not measured.backlogged


def round_averse(wanted: float, connections: int, threshold: float = 0.5) -> int:
    """The whole number to open; stays with what is open until wanted is at least threshold (0.5 or more) away."""
    return connections if abs(wanted - connections) < threshold else math.floor(wanted + 0.5)


def worth(plant: Plant) -> float:
    """How many connections away wanted must be to be worth a change: those that move the rate by WORTH_SHARE of B*."""
    return max(0.5, WORTH_SHARE * plant.target / plant.beta)


def bounded(wanted: float, maximum: int = CONNECTIONS_MAX) -> float:
    """A tunnel has at least one connection."""
    return min(max(wanted, 1.0), float(maximum))


def settled_on(
    measured: Measurement, wanted: float, connections: int, window_min_segments: float, **more: Any
) -> Decision:
    """The decision for connections, unless the guard or a lack of demand forbids to open any."""
    held = guarded(measured, connections, window_min_segments)
    idle = starved(measured, connections)
    return Decision(measured.connections if held or idle else connections, wanted, held, idle, **more)


@dataclass
class Naive:
    """m = m' B*/b' (equation 1), to be compared with."""

    maximum: int = CONNECTIONS_MAX
    window_min_segments: float = 0.0

    def decide(self, target: float, measured: Measurement) -> Decision:
        """Straight to the number that would have been right for the last period."""
        rate = max(measured.rate, 1e-9)
        wanted = bounded(target / rate * measured.connections, self.maximum)
        return settled_on(measured, wanted, round(wanted), self.window_min_segments)


@dataclass
class Proportional:
    """m = Kp e (equation 5), to be compared with: it keeps an error for ever."""

    kp: float
    maximum: int = CONNECTIONS_MAX
    window_min_segments: float = 0.0

    def decide(self, target: float, measured: Measurement) -> Decision:
        """In proportion to the error, with one connection at least."""
        wanted = bounded(self.kp * (target - measured.rate), self.maximum)
        return settled_on(measured, wanted, round(wanted), self.window_min_segments, gains=Gains(self.kp, 0.0))


@dataclass
class Caution:
    """How fast the designed loop may be: slower near the target, after swings, and to close what takes from nobody."""

    doubt: float = 0.0
    _side: int = 0
    _age: int = SWING_PERIODS

    def periods(self, target: float, rate: float, capacity: float) -> float:
        """In how many periods to make up for this period's error."""
        error = target - rate
        self.doubt *= SWING_MEMORY
        self._age += 1
        if abs(error) > SWING_SHARE * target:
            side = 1 if error > 0 else -1
            if side == -self._side and self._age <= SWING_PERIODS:
                self.doubt = 1.0
            self._side, self._age = side, 0
        if error < 0 and rate >= ALONE_SHARE * capacity:
            return ALONE_PERIODS
        return design_periods(distance(target, rate)) / (1 - SWING_CAUTION * self.doubt)


@dataclass
class Headroom:
    """What a limited tunnel could carry, which its rate alone does not say."""

    _periods: int = 0
    _last: float | None = None
    _windows_rate: float = 0.0

    def rate(self, measured: Measurement, capacity: float) -> float:
        """The rate to go by; as measured without a limit.

        What a loss held up in one period arrives in the next, above the limit: below it the mean of two counts where
        it is higher, unless half of it is missing, and never more than the limit. At the limit there is more room when
        the windows would carry far more, which they do when nobody else is there, or after a row of such periods.
        """
        limit, rate = measured.limit, measured.rate
        last, self._last = self._last, rate
        windows_rate, self._windows_rate = min(measured.windows_rate, self._windows_rate), measured.windows_rate
        if not limit:
            return rate
        seen = min(rate, limit)
        if last is not None and rate > SWING_SHARE * limit:
            seen = min(max(rate, (rate + last) / 2), limit)
        if rate < (1 - LIMIT_SLACK) * limit:
            self._periods = 0
            return seen
        self._periods += 1
        if windows_rate >= max(ALONE_WINDOWS * limit, ALONE_WINDOWS_SHARE * capacity):
            return max(rate, capacity)
        return seen + min(SURE_SHARE * max(self._periods - SURE_PERIODS, 0), SURE_SHARE_MAX) * limit


@dataclass
class ProportionalIntegral:
    """m = Kp e + Ki sum(e) (equation 6) with anti-windup: the sum does not grow while a bound or the guard holds m.

    With fixed gains it is the paper's, with plain rounding. Without, the gains are designed anew every period for the
    alpha that was measured (far from the target that of the last period, near it a geometric mean that forgets by half
    each period), so that they follow the number of competing connections, with `Caution`, and the tunnel is limited to
    a little more than its target (`Headroom`). Capacity, tau and period may be set anew at any time.
    """

    capacity: float
    period_s: float
    tau_s: float
    gains: Gains | None = None
    maximum: int = CONNECTIONS_MAX
    window_min_segments: float = WINDOW_MIN_SEGMENTS
    _alpha: float | None = None
    # The integral part of m, in connections: gains may change without a jump.
    _integral: float | None = None
    _caution: Caution = field(default_factory=Caution)
    _headroom: Headroom = field(default_factory=Headroom)

    def plant(self, target: float, measured: Measurement) -> Plant:
        """The plant as measured: alpha = b / (C m), a connection's share of the capacity."""
        seen = min(max(measured.rate / self.capacity, 1e-3), 1.0) / max(measured.connections, 1)
        fresh = (1 + distance(target, measured.rate)) / 2
        self._alpha = seen if self._alpha is None else self._alpha * (seen / self._alpha) ** fresh
        return Plant(self.capacity, target, self._alpha, self.tau_s, self.period_s)

    def decide(self, target: float, measured: Measurement) -> Decision:
        """The next number of connections."""
        measured = replace(measured, rate=self._headroom.rate(measured, self.capacity))
        plant = self.plant(target, measured)
        gains = self.gains or design(plant, self._caution.periods(target, measured.rate, self.capacity))
        error = target - measured.rate
        # It starts where the tunnel stands. By design nothing is done on the first measurement: it may be of a tunnel,
        # or of traffic, that just begins.
        if self._integral is None and self.gains is None:
            self._integral = integral = free = float(measured.connections)
        else:
            start = measured.connections - gains.kp * error
            integral = (start if self._integral is None else self._integral) + gains.ki * error
            free = gains.kp * error + integral
        wanted = bounded(free, self.maximum)
        threshold = 0.5 if self.gains else worth(plant)
        connections = int(bounded(round_averse(wanted, measured.connections, threshold), self.maximum))
        decision = settled_on(
            measured,
            wanted,
            connections,
            self.window_min_segments,
            gains=gains,
            alpha=plant.alpha,
            spectral_radius=spectral_radius(gains, plant),
            equation_14_stable=equation_14(gains, plant).stable,
            limit=0.0 if self.gains else (1 + LIMIT_SHARE) * target,
        )
        # Anti-windup: held back, the sum only moves towards what is possible.
        held = decision.guarded or decision.starved
        pushing = ((free > wanted or held) and error > 0) or (free < wanted and error < 0)
        if not pushing:
            self._integral = integral
        return decision
