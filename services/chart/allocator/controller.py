"""Link rate control: one common rate R per link and no per-flow state. What is called a flow here is a user:
all flows of one user together, whose sender gives each its part of R (docs/link-control.md, sharing).

Two laws behind one interface:

* NEC (Kolarov and Ramamurthy, "An Integrated Approach to ABR Congestion Control", 1999): proportional plus
  derivative control of a queue. The queue is virtual, drained at the explicit-rate capacity C_er and allowed below
  zero within bounds: with the real queue a set point small enough for 5 ms leaves no drive upwards.
* RCP (Dukkipati, "Rate Control Protocol", 2007): R grows with spare capacity and falls with the queue, once per
  round trip.

Around either law, `LinkController` keeps what is known without feedback: C_er = 0.97 C - GR - legacy share; R is
never above C_er and never below C_er / N (the max-min fair rate lies between); arrivals and departures of flows
and large overloads are fed forward, so the law itself only works on what is left. Rates are bits per second with
IP headers, times microseconds.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from chart.allocator.legacy import LegacyDemand, fair_share_bps

# Share of a link that is handed out at all.
TARGET_UTILISATION = 0.97
# NEC gains, normalised: A = a N T, by feedback delay d in periods (grid search for the smallest spectral radius).
NEC_DERIVATIVE = 0.57
NEC_PROPORTIONAL = 0.14
# Bound of the virtual queue, either side, as a share of what C_er carries in d + 2 periods.
NEC_QUEUE_BOUND = 0.03
# RCP gains.
RCP_ALPHA = 0.4
RCP_BETA = 0.4
# Report -> controller -> agent, on top of a flow's round trip.
PIPELINE_US = 50_000
MAXIMUM_DELAY_PERIODS = 32
# A flow that was silent for fewer samples than this still counts: N must not follow every pause.
DEPARTURE_SAMPLES = 3
# A load that falls below this share of what it was is a pause of the flows, until it has lasted as many samples.
PAUSE = 0.25
# For so many samples and the feedback delay after a join R is not raised: what newcomers leave, who still learn their
# rate, is theirs.
JOINING_SAMPLES = 6
# Load above C_er beyond which R is set by proportion at once instead of by the law.
OVERLOAD = 1.1
# Load below this share of C_er does the same upwards, once per feedback delay.
UNDERLOAD = 0.975
# A full queue hides what arrives: one this long that does not shrink counts as that much load.
FULL_QUEUE_US = 20_000
FULL_QUEUE_LOAD = 1.4
# What it counts as doubles with every feedback delay that it stays, up to this: a crowd that wakes at once at a high R.
FULL_QUEUE_LOAD_LIMIT = 1024.0
# A real queue longer than this is drained on purpose (5 ms is the goal for queueing delay) ...
QUEUE_LIMIT_US = 2_000
# ... by giving out less, in this time or three feedback delays, but never less than half of C_er.
DRAIN_US = 300_000
DRAIN_DELAYS = 3
LOWEST_DRAIN_SHARE = 0.5
# A queue that outlives so many periods plus three delays was not caused by the flows that are counted.
UNCOUNTED_AFTER_PERIODS = 15
# Of its fair part a newcomer takes one in so many where others send (decision record 0020).
NEWCOMER_PART = 4
# No link is ever told less: the smallest non-zero rate on the wire is 1 kbit/s.
SMALLEST_RATE_BPS = 1_000.0


@dataclass(frozen=True, slots=True)
class LinkSample:
    """What one interval showed of one link. Rates are means over the interval."""

    interval_us: int
    capacity_bps: float
    explicit_bps: float
    legacy_bps: float = 0.0
    explicit_queue_bytes: int = 0
    legacy_queue_bytes: int = 0
    # Users with traffic in the interval. R is what one user may send: his flows share it, and the loop sees one flow.
    active_flows: int = 0
    legacy_flows: int = 0
    # Guaranteed rate of the grants that hold now, and of those among them that send.
    guaranteed_reserved_bps: float = 0.0
    guaranteed_in_use_bps: float = 0.0
    rtt_us: int = 0


@dataclass(frozen=True, slots=True)
class LinkDecision:
    """What the link's users are told."""

    available_bps: int
    explicit_rate_capacity_bps: int
    legacy_share_bps: int
    active_flows: int


@dataclass(frozen=True, slots=True)
class LoopState:
    """What a law sees: `load_bps` is the load without guaranteed rates, caused by `applied_bps`, the rate d
    periods ago.
    """

    period_s: float
    rtt_s: float
    delay_periods: int
    capacity_bps: float
    load_bps: float
    applied_bps: float
    queue_bits: float
    flows: int


class Controller(Protocol):
    """A control law. It proposes; LinkController bounds the proposal and says so."""

    name: str

    def propose(self, rate_bps: float, loop: LoopState) -> float:
        """Return the next common rate."""

    def bounded(self, pushed_up: bool) -> None:
        """The proposal was cut at the upper (or lower) bound: do not wind up further."""

    def reset(self) -> None:
        """Forget the past: the rate was set by other means."""


class Nec:
    """Proportional and derivative control of a virtual queue that may be negative."""

    name = "nec"

    def __init__(self) -> None:
        self.queue_bits = 0.0

    def propose(self, rate_bps: float, loop: LoopState) -> float:
        """R - a0 q - a1 (q - q'), the set point of the virtual queue being 0.

        The queue is bounded tightly, its change is not: every bit of credit kept below zero would be sent above
        C_er later, and only the slack between C_er and C can take that without a real queue.
        """
        change = (loop.load_bps - loop.capacity_bps) * loop.period_s
        bound = NEC_QUEUE_BOUND * loop.capacity_bps * loop.period_s * (loop.delay_periods + 2)
        self.queue_bits = min(bound, max(-bound, self.queue_bits + change))
        # Only flows held by this link answer to R, and load / R counts them; the rest are limited elsewhere.
        responsive = min(float(loop.flows), max(1.0, loop.load_bps / max(loop.applied_bps, 1.0)))
        scale = 1.0 / (responsive * loop.period_s)
        delay = loop.delay_periods + 2
        derivative = NEC_DERIVATIVE / delay * scale
        proportional = NEC_PROPORTIONAL / delay**2 * scale
        return rate_bps - proportional * self.queue_bits - derivative * change

    def bounded(self, pushed_up: bool) -> None:
        """Conditional integration: at the upper bound no credit is kept, at the lower one no debt."""
        self.queue_bits = max(0.0, self.queue_bits) if pushed_up else min(0.0, self.queue_bits)

    def reset(self) -> None:
        """Start with an empty virtual queue."""
        self.queue_bits = 0.0


class Rcp:
    """R <- R (1 + (T/d0)(alpha (C - y) - beta q/d0) / C)."""

    name = "rcp"

    def propose(self, rate_bps: float, loop: LoopState) -> float:
        """One step; d0 also covers the way of the rate to the sender."""
        d0_s = max(loop.rtt_s + PIPELINE_US / 1e6 + loop.period_s, 2 * loop.period_s)
        drive = RCP_ALPHA * (loop.capacity_bps - loop.load_bps) - RCP_BETA * loop.queue_bits / d0_s
        return rate_bps * (1 + loop.period_s / d0_s * drive / loop.capacity_bps)

    def bounded(self, pushed_up: bool) -> None:
        """No memory, nothing winds up."""

    def reset(self) -> None:
        """No memory."""


LAWS: dict[str, type[Nec] | type[Rcp]] = {"nec": Nec, "rcp": Rcp}


def newcomer_rate_bps(available_bps: float, capacity_bps: float, active_flows: int) -> float:
    """What a flow that is not counted yet may send above its GR at once; the others fall at their next renewal."""
    part = NEWCOMER_PART if active_flows else 1
    return min(available_bps, capacity_bps / (active_flows + 1) / part)


def _delay(sample: LinkSample) -> int:
    """Feedback delay in periods."""
    return min(MAXIMUM_DELAY_PERIODS, math.ceil((sample.rtt_us + PIPELINE_US) / max(1, sample.interval_us)))


class ActiveFlows:
    """The flow count that the loop works with: arrivals count at once, departures after a few silent samples."""

    def __init__(self) -> None:
        self.count = 0
        self._recent: deque[int] = deque(maxlen=DEPARTURE_SAMPLES)

    def update(self, active_flows: int) -> int:
        """Take one sample, return the change of the count."""
        before = self.count
        self._recent.append(max(0, active_flows))
        self.count = max(self._recent)
        return self.count - before


class LinkController:
    """Rate control of one link: capacity split, flow arrivals and departures, overloads, and a law for the rest."""

    def __init__(self, law: str = "nec", available_bps: float = 0.0) -> None:
        """`available_bps` is the rate that a predecessor published last; 0: none."""
        self.law: Controller = LAWS[law]()
        self.rate_bps = float(available_bps)
        self.capacity_bps = 0.0
        self.legacy_share_bps = 0.0
        self.flows = ActiveFlows()
        self.legacy = LegacyDemand()
        self._history: deque[float] = deque(maxlen=MAXIMUM_DELAY_PERIODS)
        self._load_bps = 0.0
        # The load before it fell far, and for how many samples it has.
        self._going_load_bps = 0.0
        self._paused_samples = 0
        self._queue_bytes = 0
        self._full_periods = 0
        # Trust in the count of flows: falls while a queue stands although R is at C_er / N.
        self._trust = 1.0
        self._queue_periods = 0
        self._short_periods = 0
        self._settling = 0
        # For how many samples more R stays below the part of C_er that it was when somebody joined.
        self._joining_samples = 0
        self._joined_share = 0.0

    def update(self, sample: LinkSample) -> LinkDecision:
        """Take one interval's load and return what holds from now on."""
        joined = self.flows.update(sample.active_flows)
        self._split(sample)
        capacity = self.capacity_bps
        load = self._available_load_bps(sample)
        if self.flows.count == 0:
            self.rate_bps = capacity
            self.law.reset()
            self._history.clear()
            self._going_load_bps, self._paused_samples = 0.0, 0
            self._joining_samples = 0
        else:
            self._step(sample, load, joined)
        self._load_bps = load
        self._queue_bytes = sample.explicit_queue_bytes
        self._history.append(self.rate_bps)
        return LinkDecision(int(self.rate_bps), int(capacity), int(self.legacy_share_bps), self.flows.count)

    def _split(self, sample: LinkSample) -> None:
        """C_er = 0.97 C - GR - legacy share; a change of C_er scales R with it."""
        target = TARGET_UTILISATION * sample.capacity_bps
        guaranteed = min(target, max(sample.guaranteed_reserved_bps, sample.guaranteed_in_use_bps))
        usable = target - guaranteed
        demand = self.legacy.update(sample.legacy_bps, sample.legacy_queue_bytes, self.legacy_share_bps, usable)
        self.legacy_share_bps = fair_share_bps(demand, usable, sample.legacy_flows, self.flows.count)
        capacity = max(SMALLEST_RATE_BPS, usable - self.legacy_share_bps)
        if self.capacity_bps > 0:
            self.rate_bps *= capacity / self.capacity_bps
        self.capacity_bps = capacity
        if self.rate_bps <= 0:
            self.rate_bps = capacity

    def _available_load_bps(self, sample: LinkSample) -> float:
        """What arrived above the guaranteed rates: what was sent and what queued up meanwhile."""
        queued = max(0, sample.explicit_queue_bytes - self._queue_bytes) * 8e6 / sample.interval_us
        load = max(0.0, sample.explicit_bps + queued - sample.guaranteed_in_use_bps)
        queue_us = sample.explicit_queue_bytes * 8e6 / sample.capacity_bps
        if queue_us <= FULL_QUEUE_US or sample.explicit_queue_bytes < 0.98 * self._queue_bytes:
            self._full_periods = 0
            return load
        hidden = FULL_QUEUE_LOAD * min(FULL_QUEUE_LOAD_LIMIT, 2.0 ** (self._full_periods // (_delay(sample) + 2)))
        self._full_periods += 1
        return max(load, hidden * self.capacity_bps)

    def _step(self, sample: LinkSample, load: float, joined: int) -> None:
        """One period with at least one flow."""
        period_us = max(1, sample.interval_us)
        delay = _delay(sample)
        capacity = self.capacity_bps * self._drained_share(sample, delay)
        applied = self._history[-min(delay, len(self._history))] if self._history else self.rate_bps
        self._settling = max(0, self._settling - 1)
        pauses = self._pauses(load)
        if joined > 0:
            self._jump(self._after_join(joined), delay)
        elif pauses and joined == 0:
            pass
        elif self._falls_short(joined, load, capacity, delay):
            # The flows took `load` at the rate `applied`; those limited elsewhere take no more than they did.
            lowest = min([self.rate_bps, *list(self._history)[-delay - 1 :]])
            self._jump(max(self.rate_bps, lowest * capacity / load), delay)
        elif load > OVERLOAD * self.capacity_bps:
            self._jump(min(self.rate_bps, applied * capacity / load), delay)
        elif self._settling == 0:
            queue_bits = sample.explicit_queue_bytes * 8.0
            rtt_s = sample.rtt_us / 1e6
            loop = LoopState(period_us / 1e6, rtt_s, delay, capacity, load, applied, queue_bits, self.flows.count)
            self.rate_bps = self.law.propose(self.rate_bps, loop)
        self._bound(capacity)
        self._leave_newcomers_theirs(joined, delay)

    def _leave_newcomers_theirs(self, joined: int, delay: int) -> None:
        """Keep R at most at what it was after a join, or C_er / N, until the newcomers had time to take it. Others
        would take what they leave, and all of them together would be too much as soon as they have learned their rate.
        """
        if joined > 0:
            self._joining_samples = JOINING_SAMPLES + delay
            self._joined_share = max(self.rate_bps / self.capacity_bps, 1 / self.flows.count)
        elif joined < 0:
            self._joining_samples = 0
        elif self._joining_samples > 0:
            self._joining_samples -= 1
            limit = max(SMALLEST_RATE_BPS, self._joined_share * self.capacity_bps)
            if self.rate_bps > limit:
                self.rate_bps = limit
                self.law.bounded(pushed_up=True)

    def _jump(self, rate_bps: float, delay: int) -> None:
        """Set R by feed-forward; the law waits until the load shows it, or it would correct the same error twice."""
        self.rate_bps = rate_bps
        self._settling = delay + 1
        self._short_periods = 0
        self.law.reset()

    def _pauses(self, load: float) -> bool:
        """Whether the flows only pause: N still counts them, and they come back at R. What they leave is not free."""
        if load >= PAUSE * self._going_load_bps:
            self._going_load_bps, self._paused_samples = load, 0
            return False
        self._paused_samples += 1
        if self._paused_samples <= DEPARTURE_SAMPLES:
            return True
        self._going_load_bps = load
        return False

    def _falls_short(self, joined: int, load: float, capacity: float, delay: int) -> bool:
        """Whether to raise R by proportion: a flow left, or the load has been far below C_er for a whole delay."""
        if load >= UNDERLOAD * capacity or load <= 0 or self._queue_periods > 0:
            self._short_periods = 0
            return joined < 0 and 0 < load < capacity
        self._short_periods += 1
        return joined < 0 or self._short_periods > delay + 1

    def _bound(self, capacity: float) -> None:
        """C_er / N <= R <= C_er: N flows at the lower bound fit, so the max-min fair rate is not below it."""
        floor = max(SMALLEST_RATE_BPS, self._trust * capacity / self.flows.count)
        if self.rate_bps >= capacity:
            self.rate_bps = max(SMALLEST_RATE_BPS, capacity)
            self.law.bounded(pushed_up=True)
        elif self.rate_bps <= floor:
            self.rate_bps = floor
            self.law.bounded(pushed_up=False)

    def _after_join(self, joined: int) -> float:
        """Scale so that the old load and the newcomers at R fit: the load before them is known, theirs is at most
        R each.
        """
        wanted = self._load_bps + joined * self.rate_bps
        return self.rate_bps * min(1.0, self.capacity_bps / wanted)

    def _drained_share(self, sample: LinkSample, delay: int) -> float:
        """Share of C_er to give out while a queue stands; a queue that stays costs the count of flows its trust."""
        queue_us = sample.explicit_queue_bytes * 8e6 / sample.capacity_bps
        if queue_us <= QUEUE_LIMIT_US:
            self._queue_periods = 0
            self._trust = min(1.0, self._trust + 0.01)
            return 1.0
        self._queue_periods += 1
        if self._queue_periods > UNCOUNTED_AFTER_PERIODS + DRAIN_DELAYS * delay:
            self._trust = max(0.01, self._trust * 0.9)
        drain_us = max(DRAIN_US, DRAIN_DELAYS * (delay + 1) * sample.interval_us)
        return max(LOWEST_DRAIN_SHARE, 1.0 - queue_us / drain_us)
