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
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

CONNECTIONS_MAX = 256
# The paper's guard has no figure; below four segments a loss costs TCP a timeout (fast retransmit needs three more).
WINDOW_MIN_SEGMENTS = 4.0
# Designed PI: the closed loop's time constant in periods, and the delay it has to live with: one period until a change
# acts, half a period because a measurement is a mean.
CLOSED_LOOP_PERIODS = 1.0
LOOP_DELAY_PERIODS = 1.5
# Room below the capacity that the model must keep: at B* = C no number of connections would do.
HEADROOM_MIN = 0.05
# A new number of connections must differ by this much from the one that is open: half would be plain rounding.
ROUNDING_THRESHOLD = 0.75


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


def design(plant: Plant) -> Gains:
    """PI gains that cancel the plant's lag and leave a closed loop of CLOSED_LOOP_PERIODS (internal model control)."""
    periods = CLOSED_LOOP_PERIODS + LOOP_DELAY_PERIODS
    ki = 1 / (plant.beta * periods)
    return Gains(kp=ki * plant.tau_s / plant.period_s, ki=ki)


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


@dataclass(frozen=True)
class Decision:
    """The number of connections for the next period, and what led to it."""

    connections: int
    wanted: float
    guarded: bool = False
    gains: Gains | None = None
    alpha: float | None = None
    spectral_radius: float | None = None
    equation_14_stable: bool | None = None


class Controller(Protocol):
    """Asked once per control period, which equals the measurement period."""

    def decide(self, target: float, measured: Measurement) -> Decision:
        """The number of connections for the next period."""
        ...


def guarded(measured: Measurement, connections: int, window_min_segments: float) -> bool:
    """Whether the guard forbids this: a new connection while a window is below w_min (section 2.1)."""
    return connections > measured.connections and any(w < window_min_segments for w in measured.windows_segments)


def round_averse(wanted: float, connections: int, threshold: float = ROUNDING_THRESHOLD) -> int:
    """The whole number to open; stays with what is open until wanted is at least threshold away."""
    return connections if abs(wanted - connections) < threshold else round(wanted)


def bounded(wanted: float, maximum: int = CONNECTIONS_MAX) -> float:
    """A tunnel has at least one connection."""
    return min(max(wanted, 1.0), float(maximum))


@dataclass
class Naive:
    """m = m' B*/b' (equation 1), to be compared with."""

    maximum: int = CONNECTIONS_MAX
    window_min_segments: float = 0.0

    def decide(self, target: float, measured: Measurement) -> Decision:
        """Straight to the number that would have been right for the last period."""
        rate = max(measured.rate, 1e-9)
        wanted = bounded(target / rate * measured.connections, self.maximum)
        connections = round(wanted)
        held = guarded(measured, connections, self.window_min_segments)
        return Decision(measured.connections if held else connections, wanted, held)


@dataclass
class Proportional:
    """m = Kp e (equation 5), to be compared with: it keeps an error for ever."""

    kp: float
    maximum: int = CONNECTIONS_MAX
    window_min_segments: float = 0.0

    def decide(self, target: float, measured: Measurement) -> Decision:
        """In proportion to the error, with one connection at least."""
        wanted = bounded(self.kp * (target - measured.rate), self.maximum)
        connections = round(wanted)
        held = guarded(measured, connections, self.window_min_segments)
        return Decision(measured.connections if held else connections, wanted, held, Gains(self.kp, 0.0))


@dataclass
class ProportionalIntegral:
    """m = Kp e + Ki sum(e) (equation 6) with anti-windup: the sum does not grow while a bound or the guard holds m.

    With fixed gains it is the paper's; without, the gains are designed anew every period for the alpha that was
    measured, smoothed over about 1/smoothing periods, so that they follow the number of competing connections.
    """

    capacity: float
    period_s: float
    tau_s: float
    gains: Gains | None = None
    maximum: int = CONNECTIONS_MAX
    window_min_segments: float = WINDOW_MIN_SEGMENTS
    averse: float = ROUNDING_THRESHOLD
    smoothing: float = 0.5
    _alpha: float | None = None
    # The integral part of m, in connections: gains may change without a jump.
    _integral: float | None = None
    _wanted: float | None = None

    def plant(self, target: float, measured: Measurement) -> Plant:
        """The plant as measured: alpha = b / (C m), a connection's share of the capacity."""
        seen = min(max(measured.rate / self.capacity, 1e-3), 1.0) / max(measured.connections, 1)
        self._alpha = seen if self._alpha is None else self._alpha + self.smoothing * (seen - self._alpha)
        return Plant(self.capacity, target, self._alpha, self.tau_s, self.period_s)

    def decide(self, target: float, measured: Measurement) -> Decision:
        """The next number of connections."""
        plant = self.plant(target, measured)
        gains = self.gains or design(plant)
        error = target - measured.rate
        if self._integral is None:
            # Starts where the tunnel stands.
            self._integral = measured.connections - gains.kp * error
        integral = self._integral + gains.ki * error
        free = gains.kp * error + integral
        wanted = bounded(free, self.maximum)
        connections = int(bounded(round_averse(wanted, measured.connections, self.averse), self.maximum))
        held = guarded(measured, connections, self.window_min_segments)
        if held:
            connections = measured.connections
        # Anti-windup: held back, the sum only moves towards what is possible.
        pushing = ((free > wanted or held) and error > 0) or (free < wanted and error < 0)
        if not pushing:
            self._integral = integral
        return Decision(
            connections,
            wanted,
            held,
            gains,
            plant.alpha,
            spectral_radius(gains, plant),
            equation_14(gains, plant).stable,
        )
