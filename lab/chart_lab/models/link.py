"""The control loop of one link in fast motion: flows that obey a delayed rate, a queue, and the counters an agent
would report.

For property tests and for choosing gains; production code does not use it. One step is one control period. Flows
come in groups of equal ones, so ten thousand flows cost no more than one, and links may share a controller, so a
hundred of them cost little more than one.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from chart.allocator import laws
from chart.allocator.controller import LinkController

# Of its fair part a new flow takes one in so many where others send (decision record 0020).
NEW_FLOW_PART = 4


@dataclass(slots=True)
class LinkSample:
    """What one interval showed of one link. Rates are means over the interval."""

    interval_us: int
    capacity_bps: float
    explicit_bps: float
    legacy_bps: float = 0.0
    explicit_queue_bytes: int = 0
    legacy_queue_bytes: int = 0
    # Users with traffic in the interval.
    active_users: int = 0
    legacy_flows: int = 0
    # Guaranteed rate of the grants that hold now, and of those among them that send.
    guaranteed_reserved_bps: float = 0.0
    guaranteed_in_use_bps: float = 0.0
    rtt_us: int = 0

    def load(self) -> tuple[float, ...]:
        """The load that an agent would report, in the order of LOAD_FIELDS."""
        interval_s = self.interval_us / 1e6
        return (
            self.explicit_bps * interval_s / 8,
            self.legacy_bps * interval_s / 8,
            self.explicit_queue_bytes + self.legacy_queue_bytes,
            self.explicit_queue_bytes,
            self.active_users,
            self.legacy_flows,
            self.guaranteed_in_use_bps,
            0.0,
            self.rtt_us,
        )


@dataclass(slots=True)
class LinkDecision:
    """What the link's users are told."""

    available_bps: int
    explicit_rate_capacity_bps: int
    legacy_share_bps: int
    active_users: int


class ControlledLink:
    """One link of a `LinkController`, by default of one of its own."""

    def __init__(
        self, law: str = laws.NEC, available_bps: float = 0.0, controller: LinkController | None = None
    ) -> None:
        """`available_bps` is the rate that a predecessor published last; 0: none."""
        self.controller = controller or LinkController()
        self.slot = self.controller.add(law, available_bps, 0.0, 0.0)

    @property
    def rate_bps(self) -> float:
        """R as it is now."""
        return float(self.controller.rate_bps[self.slot])

    def update(self, sample: LinkSample) -> LinkDecision:
        """Take one interval's load and return what holds from now on."""
        return update_together([self], [sample])[0]


def update_together(links: Sequence[ControlledLink], samples: Sequence[LinkSample]) -> list[LinkDecision]:
    """One control period of links that have a controller in common."""
    controller = links[0].controller
    slots = np.array([link.slot for link in links])
    controller.link_bps[slots] = [sample.capacity_bps for sample in samples]
    controller.reserved_bps[slots] = [sample.guaranteed_reserved_bps for sample in samples]
    loads = np.array([sample.load() for sample in samples], float)
    controller.step(slots, loads, np.array([sample.interval_us for sample in samples], float))
    return [
        LinkDecision(*figures) for figures in zip(*(one.tolist() for one in controller.figures(slots)), strict=True)
    ]


def new_flow_rate_bps(available_bps: float, capacity_bps: float, active_users: int) -> float:
    """What a flow that is not counted yet may send above its GR at once; the others fall at their next renewal."""
    part = NEW_FLOW_PART if active_users else 1
    return min(available_bps, capacity_bps / (active_users + 1) / part)


@dataclass(slots=True)
class FlowGroup:
    """Equal flows: how many, and the most that each can use (its application, or another link, holds it to that)."""

    count: int
    limit_bps: float = math.inf
    guaranteed_bps: float = 0.0
    # Periods since the flows began: a new flow is told less until the first rate that counts it arrives.
    age: int = 0
    new_flow_bps: float = math.inf


@dataclass(slots=True)
class Step:
    """What one period looked like."""

    decision: LinkDecision
    # Sent by each flow of each group, in the order of `groups`.
    rates_bps: list[float]
    explicit_bps: float
    legacy_bps: float
    queue_us: float
    utilisation: float


@dataclass(slots=True)
class _Period:
    """What flows sent in a period, before the controller has decided on it."""

    sample: LinkSample
    rates_bps: list[float]
    queue_us: float


@dataclass(slots=True)
class LinkSimulator:
    """One link of `capacity_bps` whose flows see a rate `delay_periods` after it was decided."""

    link: ControlledLink
    capacity_bps: float
    delay_periods: int = 0
    interval_us: int = 100_000
    groups: list[FlowGroup] = field(default_factory=list)
    # Ordinary flows: at most this much, growing by half per period into what is left free.
    legacy_demand_bps: float = 0.0
    legacy_flows: int = 0
    _decisions: deque[float] = field(default_factory=deque)
    _legacy_bps: float = 0.0
    _queue_bits: float = 0.0
    _last: LinkDecision | None = None

    def run(self, periods: int) -> list[Step]:
        """Advance and return every period."""
        return [self.step() for _ in range(periods)]

    def step(self) -> Step:
        """One period: flows send at the rate they know, the link serves, the controller decides."""
        period = self._serve()
        return self._decided(period, self.link.update(period.sample))

    def _serve(self) -> _Period:
        known = self._known_rate()
        rates = [min(group.limit_bps, group.guaranteed_bps + self._told(group, known)) for group in self.groups]
        sent = sum(rate * group.count for rate, group in zip(rates, self.groups, strict=True))
        period_s = self.interval_us / 1e6
        legacy = self._legacy(sent)
        served = min(sent + self._queue_bits / period_s, self.capacity_bps - legacy)
        # A bounded queue of 100 ms: what does not fit is dropped.
        self._queue_bits = min(self.capacity_bps * 0.1, max(0.0, self._queue_bits + (sent - served) * period_s))
        guaranteed = sum(group.guaranteed_bps * group.count for group in self.groups)
        sample = LinkSample(
            interval_us=self.interval_us,
            capacity_bps=self.capacity_bps,
            explicit_bps=served,
            legacy_bps=legacy,
            explicit_queue_bytes=int(self._queue_bits / 8),
            active_users=sum(group.count for group, rate in zip(self.groups, rates, strict=True) if rate > 0),
            legacy_flows=self.legacy_flows,
            guaranteed_reserved_bps=guaranteed,
            guaranteed_in_use_bps=guaranteed,
            rtt_us=self.delay_periods * self.interval_us,
        )
        return _Period(sample, rates, self._queue_bits / self.capacity_bps * 1e6)

    def _decided(self, period: _Period, decision: LinkDecision) -> Step:
        self._last = decision
        self._decisions.append(float(decision.available_bps))
        sample = period.sample
        return Step(
            decision=decision,
            rates_bps=period.rates_bps,
            explicit_bps=sample.explicit_bps,
            legacy_bps=sample.legacy_bps,
            queue_us=period.queue_us,
            utilisation=(sample.explicit_bps + sample.legacy_bps) / self.capacity_bps,
        )

    def _known_rate(self) -> float:
        """The rate decided `delay_periods` before the newest; before there is any, what a restarted agent has:
        nothing.
        """
        while len(self._decisions) > self.delay_periods + 1:
            self._decisions.popleft()
        return self._decisions[0] if self._decisions else self.link.rate_bps

    def _told(self, group: FlowGroup, known_bps: float) -> float:
        group.age += 1
        if group.age == 1 and self._last is not None:
            capacity_bps = self._last.explicit_rate_capacity_bps
            group.new_flow_bps = new_flow_rate_bps(known_bps, capacity_bps, self._last.active_users)
        return min(known_bps, group.new_flow_bps) if group.age <= self.delay_periods + 1 else known_bps

    def _legacy(self, sent_bps: float) -> float:
        """TCP as the loop sees it: takes free capacity, never less than its weight in the scheduler gives it."""
        if self.legacy_demand_bps <= 0:
            self._legacy_bps = 0.0
            return 0.0
        share = self._last.legacy_share_bps if self._last else 0.0
        room = max(share, self.capacity_bps - sent_bps - self._queue_bits, 0.001 * self.capacity_bps)
        grown = max(0.001 * self.capacity_bps, 1.5 * self._legacy_bps)
        self._legacy_bps = min(self.legacy_demand_bps, room, grown)
        return self._legacy_bps


def run_together(simulators: Sequence[LinkSimulator], periods: Sequence[int]) -> list[list[Step]]:
    """Advance each link by its number of periods and return every period of each. Their links have a controller in
    common.
    """
    found: list[list[Step]] = [[] for _ in simulators]
    for number in range(max(periods)):
        going = [place for place, count in enumerate(periods) if number < count]
        served = [simulators[place]._serve() for place in going]
        decisions = update_together([simulators[place].link for place in going], [one.sample for one in served])
        for place, period, decision in zip(going, served, decisions, strict=True):
            found[place].append(simulators[place]._decided(period, decision))
    return found


def jain_index(rates_bps: list[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has everything."""
    squares = sum(rate * rate for rate in rates_bps)
    return 1.0 if squares == 0 else sum(rates_bps) ** 2 / (len(rates_bps) * squares)
