"""A closer model of the plant: TCP connections in congestion avoidance on a RED bottleneck, in small steps of time.

Where `simulator.py` knows only shares and a lag, here the noise, the slow averages of RED, slow start and timeouts of
real connections are there, so that gains and rounding can be judged before the lab is asked. Reno as RFC 5681 has it
with the initial window of RFC 6928; RED as Floyd and Jacobson (1993). Rates in packets per second, windows in packets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

INITIAL_WINDOW = 10.0
# A loss with fewer packets in flight ends in a timeout, not in a fast retransmit.
TIMEOUT_BELOW = 2.5
TIMEOUT_S = 0.2
# Depth of chart-tunnel's token bucket (shaper.h).
DEPTH_S = 0.2


@dataclass(frozen=True)
class Red:
    """Thresholds in packets; above maximum every packet is dropped."""

    minimum: float = 50
    maximum: float = 120
    probability: float = 0.1
    weight: float = 1e-4
    limit: float = 250


@dataclass
class Flows:
    """Connections of one kind: windows, slow-start thresholds, when each may send and halve again (seconds).

    joining: a new one goes by the mean window of those that have lost a packet, as chart-tunnel's do (joining.h).
    """

    base_rtt_s: float
    windows: Floats
    thresholds: Floats
    silent_until_s: Floats
    recovered_at_s: Floats
    joining: bool = False

    @classmethod
    def none(cls, base_rtt_s: float, *, joining: bool = False) -> Flows:
        """No connection yet."""
        empty = np.empty(0)
        return cls(base_rtt_s, empty, empty.copy(), empty.copy(), empty.copy(), joining)

    def set(self, count: int, now_s: float, random: np.random.Generator) -> None:
        """Opens or closes; a new connection begins after its handshake."""
        more = count - len(self.windows)
        if more <= 0:
            for name in ("windows", "thresholds", "silent_until_s", "recovered_at_s"):
                setattr(self, name, getattr(self, name)[:count])
            return
        starts = now_s + self.base_rtt_s * (1 + random.random(more))
        known = self.windows[np.isfinite(self.thresholds)]
        bound = max(float(known.mean()), 1.0) if self.joining and len(known) else np.inf
        self.windows = np.append(self.windows, np.full(more, min(INITIAL_WINDOW, bound)))
        self.thresholds = np.append(self.thresholds, np.full(more, bound))
        self.silent_until_s = np.append(self.silent_until_s, starts)
        self.recovered_at_s = np.append(self.recovered_at_s, np.zeros(more))


def in_turn(asked: Floats, total: float) -> Floats:
    """What each gets of the total when all take turns until it is spent: what it asks for, or as much as the others."""
    left, got = total, asked
    for number, one in enumerate(np.sort(asked)):
        share = left / (len(asked) - number)
        if one > share:
            return np.minimum(asked, share)
        left -= float(one)
    return got


class TcpModel:
    """The bottleneck with the tunnel's connections and two kinds of cross connections (a nearer, a farther end).

    limit_pps: what the tunnel's origin lets out at most, 0: all. Windows that are not filled for it do not grow.
    """

    def __init__(self, capacity_pps: float, delay_s: float, period_s: float, red: Red | None = None, seed: int = 1):
        self.capacity_pps = capacity_pps
        self.period_s = period_s
        self.red = red or Red()
        self.random = np.random.default_rng(seed)
        # Access links as in the lab's topology: 1 ms each, 3 ms for the farther cross traffic.
        self.kinds = [
            Flows.none(2 * (delay_s + access_s), joining=number == 0)
            for number, access_s in enumerate((0.002, 0.002, 0.004))
        ]
        self.step_s = min(0.01, self.kinds[0].base_rtt_s / 2)
        self.now_s = 0.0
        self.queued = np.zeros(len(self.kinds))
        self.average = 0.0
        self.limit_pps = 0.0
        self._tokens = 0.0

    def windows_rate(self) -> float:
        """What the tunnel's windows would carry now if they were filled."""
        tunnel = self.kinds[0]
        return float(tunnel.windows.sum()) / (tunnel.base_rtt_s + float(self.queued.sum()) / self.capacity_pps)

    def period(self, connections: int, cross: float) -> float:
        """One measurement period: returns the tunnel's mean rate in it."""
        half = int(cross) // 2
        for flows, count in zip(self.kinds, (connections, int(cross) - half, half), strict=True):
            flows.set(count, self.now_s, self.random)
        served = 0.0
        for _ in range(round(self.period_s / self.step_s)):
            served += self._step()
        return served / self.period_s

    def _step(self) -> float:
        dt = self.step_s
        queue = float(self.queued.sum())
        wait_s = queue / self.capacity_pps
        sent = [self._sent(flows, wait_s) for flows in self.kinds]
        asked, sent[0] = sent[0], self._let_out(sent[0])
        offered = np.array([float(one.sum()) for one in sent])
        total = float(offered.sum())
        drop = self._drop_probability(queue, total)
        # What is lost was let out already when it is sent again.
        self._tokens += float(offered[0]) * drop
        before = self.kinds[0].windows
        for flows, packets in zip(self.kinds, sent, strict=True):
            self._react(flows, packets, drop, wait_s)
        tunnel = self.kinds[0]
        tunnel.windows = np.where(sent[0] < asked, np.minimum(tunnel.windows, before), tunnel.windows)
        self.queued += offered * (1 - drop)
        queue = float(self.queued.sum())
        out = min(1.0, self.capacity_pps * dt / queue) if queue > 0 else 0.0
        left = self.queued * out
        self.queued -= left
        self.now_s += dt
        return float(left[0])

    def _sent(self, flows: Flows, wait_s: float) -> Floats:
        rate = flows.windows / (flows.base_rtt_s + wait_s)
        return np.where(self.now_s >= flows.silent_until_s, rate * self.step_s, 0.0)

    def _let_out(self, asked: Floats) -> Floats:
        if not self.limit_pps:
            return asked
        deepest = self.limit_pps * max(DEPTH_S, self.step_s)
        self._tokens = min(self._tokens + self.limit_pps * self.step_s, deepest)
        let_out = in_turn(asked, max(self._tokens, 0.0))
        self._tokens -= float(let_out.sum())
        return let_out

    def _drop_probability(self, queue: float, arriving: float) -> float:
        red = self.red
        self.average += (1 - (1 - red.weight) ** max(arriving, 1.0)) * (queue - self.average)
        room = red.limit - queue + self.capacity_pps * self.step_s
        overflow = max(0.0, 1 - room / arriving) if arriving > 0 else 0.0
        if self.average >= red.maximum:
            early = 1.0
        else:
            early = max(0.0, red.probability * (self.average - red.minimum) / (red.maximum - red.minimum))
        return min(1.0, max(early, overflow))

    def _react(self, flows: Flows, packets: Floats, drop: float, wait_s: float) -> None:
        if not len(packets):
            return
        rtt_s = flows.base_rtt_s + wait_s
        lost = self.random.random(len(packets)) < 1 - (1 - drop) ** packets
        acked = packets * (1 - drop)
        slow = flows.windows < flows.thresholds
        flows.windows = flows.windows + np.where(slow, acked, acked / np.maximum(flows.windows, 1.0))
        hit = lost & (self.now_s >= flows.recovered_at_s)
        if not hit.any():
            return
        timeout = hit & (flows.windows < TIMEOUT_BELOW)
        halved = np.maximum(flows.windows / 2, 1.0)
        flows.thresholds = np.where(hit, np.maximum(flows.windows / 2, 2.0), flows.thresholds)
        flows.windows = np.where(timeout, 1.0, np.where(hit, halved, flows.windows))
        flows.recovered_at_s = np.where(hit, self.now_s + rtt_s, flows.recovered_at_s)
        flows.silent_until_s = np.where(timeout, self.now_s + max(TIMEOUT_S, rtt_s), flows.silent_until_s)
