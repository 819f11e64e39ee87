"""The control loop of one link in fast motion: flows that obey a delayed rate, a queue, and the counters an agent
would report.

For property tests and for choosing gains; production code does not use it. One step is one control period. Flows
come in groups of equal ones, so ten thousand flows cost no more than one.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from chart.allocator.controller import LinkController, LinkDecision, LinkSample, newcomer_rate_bps


@dataclass(slots=True)
class FlowGroup:
    """Equal flows: how many, and the most that each can use (its application, or another link, holds it to that)."""

    count: int
    limit_bps: float = math.inf
    guaranteed_bps: float = 0.0
    # Periods since the flows began: a newcomer is told less until the first rate that counts it arrives.
    age: int = 0
    newcomer_bps: float = math.inf


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
class LinkSimulator:
    """One link of `capacity_bps` whose flows see a rate `delay_periods` after it was decided."""

    controller: LinkController
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
        known = self._known_rate()
        rates = [min(group.limit_bps, group.guaranteed_bps + self._told(group, known)) for group in self.groups]
        offered = sum(rate * group.count for rate, group in zip(rates, self.groups, strict=True))
        period_s = self.interval_us / 1e6
        legacy = self._legacy(offered)
        served = min(offered + self._queue_bits / period_s, self.capacity_bps - legacy)
        # A bounded queue of 100 ms: what does not fit is dropped.
        self._queue_bits = min(self.capacity_bps * 0.1, max(0.0, self._queue_bits + (offered - served) * period_s))
        guaranteed = sum(group.guaranteed_bps * group.count for group in self.groups)
        sample = LinkSample(
            interval_us=self.interval_us,
            capacity_bps=self.capacity_bps,
            explicit_bps=served,
            legacy_bps=legacy,
            explicit_queue_bytes=int(self._queue_bits / 8),
            active_flows=sum(group.count for group, rate in zip(self.groups, rates, strict=True) if rate > 0),
            legacy_flows=self.legacy_flows,
            guaranteed_reserved_bps=guaranteed,
            guaranteed_in_use_bps=guaranteed,
            rtt_us=self.delay_periods * self.interval_us,
        )
        self._last = self.controller.update(sample)
        self._decisions.append(float(self._last.available_bps))
        return Step(
            decision=self._last,
            rates_bps=rates,
            explicit_bps=served,
            legacy_bps=legacy,
            queue_us=self._queue_bits / self.capacity_bps * 1e6,
            utilisation=(served + legacy) / self.capacity_bps,
        )

    def _known_rate(self) -> float:
        """The rate decided `delay_periods` before the newest; before there is any, what a restarted agent has:
        nothing.
        """
        while len(self._decisions) > self.delay_periods + 1:
            self._decisions.popleft()
        return self._decisions[0] if self._decisions else self.controller.rate_bps

    def _told(self, group: FlowGroup, known_bps: float) -> float:
        group.age += 1
        if group.age == 1 and self._last is not None:
            capacity_bps = self._last.explicit_rate_capacity_bps
            group.newcomer_bps = newcomer_rate_bps(known_bps, capacity_bps, self._last.active_flows)
        return min(known_bps, group.newcomer_bps) if group.age <= self.delay_periods + 1 else known_bps

    def _legacy(self, offered_bps: float) -> float:
        """TCP as the loop sees it: takes free capacity, never less than its weight in the scheduler gives it."""
        if self.legacy_demand_bps <= 0:
            self._legacy_bps = 0.0
            return 0.0
        share = self._last.legacy_share_bps if self._last else 0.0
        room = max(share, self.capacity_bps - offered_bps - self._queue_bits, 0.001 * self.capacity_bps)
        grown = max(0.001 * self.capacity_bps, 1.5 * self._legacy_bps)
        self._legacy_bps = min(self.legacy_demand_bps, room, grown)
        return self._legacy_bps


def jain_index(rates_bps: list[float]) -> float:
    """Jain's fairness index: 1 when all are equal, 1/n when one has everything."""
    squares = sum(rate * rate for rate in rates_bps)
    return 1.0 if squares == 0 else sum(rates_bps) ** 2 / (len(rates_bps) * squares)
