"""The scheduler in simulated time, and a day of many configurations on which budget and merging are proved.

What is proved is counted here, apart from the scheduler's own books: on each link the bytes of all runs that may have
sent within one and the same minute, and the runs that would have been made had nobody shared.
"""

from __future__ import annotations

import heapq
import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chart.sensor_pod.applications import Applications
from chart.sensor_pod.budget import WINDOW_US, ByteBudget
from chart.sensor_pod.group import FIRST_RUN_SPREAD_US, Cost, Run, first_due_us, next_due_us, phase
from chart.sensor_pod.model import Configuration, GroupKey
from chart.sensor_pod.plan import Declare, Expire, Limits, Preempt, Skip
from chart.sensor_pod.scheduler import Scheduler

SECOND_US = 1_000_000


def configuration(identity: str, period_s: float = 6, **changes: Any) -> Configuration:
    """A configuration of pings to one node; ``changes`` are fields of `Configuration`."""
    values: dict[str, Any] = {
        "id": identity,
        "destination_node": "bravo",
        "destination_address": "10.0.0.2",
        "sensor": "ping",
        "parameters": (),
        "period_us": int(period_s * SECOND_US),
        "tolerance_us": int(period_s * SECOND_US / 2),
        **changes,
    }
    return Configuration(**values)


@dataclass
class World:
    """Carries out decisions as the pod would, in simulated time."""

    scheduler: Scheduler
    cost: Cost = field(default_factory=lambda: Cost(1000, SECOND_US))
    costs: dict[str, Cost] = field(default_factory=dict)
    durations_us: dict[str, int] = field(default_factory=dict)
    now_us: int = 0
    started: list[Run] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)
    preempted: list[Preempt] = field(default_factory=list)
    expired: list[Expire] = field(default_factory=list)
    answered: dict[int, int] = field(default_factory=dict)
    answers: list[tuple[str, ...]] = field(default_factory=list)
    ends: list[tuple[int, int, int]] = field(default_factory=list)
    # Called with each run and its end, as soon as that is known.
    on_run: Callable[[Run, int], None] | None = None
    remember: bool = True
    # Why a run was spoilt, empty when it was not.
    spoilt: Callable[[int], str] = field(default=lambda run: "")

    @classmethod
    def with_one_link(
        cls,
        capacity_bps: int = 10_000_000_000,
        limits: Limits | None = None,
        applications: Applications | None = None,
        **changes: Any,
    ) -> World:
        """A pod with a link to each destination."""
        budget = ByteBudget(0.01, capacity_bps)
        scheduler = Scheduler(budget, lambda key: (f"alpha:to-{key.destination_node}",), limits, applications)
        return cls(scheduler, **changes)

    def cost_of(self, key: GroupKey) -> Cost:
        """What a run of a group costs."""
        return self.costs.get(key.sensor, self.cost)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        until_us = self.now_us + int(seconds * SECOND_US)
        while True:
            self._decide()
            wakeup_us = self.scheduler.wakeup_us()
            end_us = self.ends[0][0] if self.ends else None
            if wakeup_us is None or (end_us is not None and end_us < wakeup_us):
                wakeup_us = end_us
            if wakeup_us is None or wakeup_us > until_us:
                break
            self.now_us = max(self.now_us, wakeup_us)
            while self.ends and self.ends[0][0] <= self.now_us:
                _, run, sent_bytes = heapq.heappop(self.ends)
                self._end(run, sent_bytes)
        self.now_us = until_us

    def _end(self, run: int, sent_bytes: int) -> None:
        finished = self.scheduler.finished(run, self.now_us, sent_bytes, self.spoilt(run))
        if finished.again is not None:
            self.skips.append(finished.again)
        elif self.remember and not finished.preempted:
            self.answers.append(finished.configuration_ids)
            self.answered.update(dict.fromkeys(finished.tickets, run))

    def _decide(self) -> None:
        while decisions := self.scheduler.poll(self.now_us):
            for decision in decisions:
                if isinstance(decision, Declare):
                    self.scheduler.declared(decision.key, self.cost_of(decision.key), self.now_us)
                elif isinstance(decision, Run):
                    self._start(decision)
                elif isinstance(decision, Skip):
                    self.skips.append(decision)
                elif isinstance(decision, Preempt):
                    self.preempted.append(decision)
                    sent = next(sent for _, run, sent in self.ends if run == decision.run_id)
                    self.ends = [entry for entry in self.ends if entry[1] != decision.run_id]
                    heapq.heapify(self.ends)
                    self._end(decision.run_id, sent)
                else:
                    self.expired.append(decision)

    def _start(self, run: Run) -> None:
        duration_us = self.durations_us.get(run.key.sensor, run.cost.duration_us)
        end_us = self.now_us + duration_us
        heapq.heappush(self.ends, (end_us, run.id, run.cost.probe_bytes))
        if self.remember:
            self.started.append(run)
        if self.on_run is not None:
            self.on_run(run, end_us)


@dataclass
class LinkLedger:
    """On one link the most bytes that runs may have sent within any minute, whenever in their time they sent them."""

    capacity_bps: int
    worst_bytes: int = 0
    _bytes: int = 0
    _recent: list[tuple[int, int]] = field(default_factory=list)

    def note(self, start_us: int, end_us: int, size_bytes: int) -> None:
        """A run from start to end; starts come in order."""
        while self._recent and self._recent[0][0] <= start_us - WINDOW_US:
            self._bytes -= heapq.heappop(self._recent)[1]
        heapq.heappush(self._recent, (end_us, size_bytes))
        self._bytes += size_bytes
        self.worst_bytes = max(self.worst_bytes, self._bytes)

    @property
    def worst_share(self) -> float:
        """Of the link's capacity, in the worst minute."""
        return self.worst_bytes / (self.capacity_bps / 8 * WINDOW_US / 1e6)


@dataclass(frozen=True)
class Day:
    """What a simulated day came to."""

    configurations: int
    groups: int
    one_shots: int
    started: int
    # Runs that were asked for by configurations and one-shots of groups of which nothing was skipped, those made for
    # them, and the share of the first that equal requests overlap in.
    asked: int
    made: int
    overlap: float
    worst_share: float
    worst_link: str
    skipped: dict[str, int]
    skips_without_reason: int
    took_s: float

    @property
    def merged_share(self) -> float:
        """Runs saved of those asked for."""
        return 1 - self.made / self.asked


# (sensor, bytes and time of a run, groups per node, periods of the configurations of a group)
_MIX: Sequence[tuple[str, Cost, int, tuple[int, ...]]] = (
    ("ping", Cost(840, 2_000_000), 16, (600, 900, 1800, 3600)),
    ("traceroute", Cost(2_400, 4_000_000), 4, (1800, 3600, 7200, 14_400)),
    ("pathchirp", Cost(240_000, 10_000_000), 5, (14_400, 14_400, 28_800, 43_200)),
)
_CAPACITIES_BPS = (10_000_000, 45_000_000, 100_000_000, 240_000_000)
_NARROW_BPS = 256_000
_ACCESS_BPS = 1_000_000_000
_ACCESS = "source:access"


def a_day(configurations: int = 10_000, *, seed: int = 1, hours: float = 24, one_shots: int = 5_000) -> Day:
    """Simulate; every twentieth link is too narrow for chirps, so that there is something to skip."""
    chance = random.Random(seed)  # noqa: S311 - a simulation
    per_node = sum(groups * len(periods) for _, _, groups, periods in _MIX)
    nodes = max(1, configurations // per_node)
    budget = ByteBudget(0.01)
    budget.set_capacity(_ACCESS, _ACCESS_BPS)
    ledgers = {_ACCESS: LinkLedger(_ACCESS_BPS)}
    for number in range(nodes):
        capacity_bps = _NARROW_BPS if number % 20 == 19 else _CAPACITIES_BPS[number % len(_CAPACITIES_BPS)]
        budget.set_capacity(f"access:n{number}", capacity_bps)
        ledgers[f"access:n{number}"] = LinkLedger(capacity_bps)
    started: Counter[GroupKey] = Counter()

    def note(run: Run, end_us: int) -> None:
        started[run.key] += 1
        for link in run.links:
            ledgers[link].note(run.started_us, end_us, run.cost.probe_bytes)

    world = World(
        Scheduler(budget, lambda key: (_ACCESS, f"access:{key.destination_node}"), Limits(runs_of_exclusive_sensor=4)),
        costs={sensor: cost for sensor, cost, _, _ in _MIX},
        on_run=note,
        remember=False,
    )
    keys, periods_of = _fill(world.scheduler, nodes, configurations)
    asked_once: Counter[GroupKey] = Counter()
    asked_again: Counter[GroupKey] = Counter()
    begun = time.process_time()
    end_s = hours * 3600
    moments = deque(sorted(chance.uniform(0, end_s - 120) for _ in range(one_shots)))
    again: deque[tuple[float, GroupKey]] = deque()
    while moments or again:
        if again and (not moments or again[0][0] <= moments[0]):
            at_s, key = again.popleft()
            asked_again[key] += 1
        else:
            at_s, key = moments.popleft(), chance.choice(keys)
            if chance.random() < 0.5:
                # Somebody else wants the same a moment later.
                again.append((at_s + 0.5, key))
        world.advance(max(0.0, at_s - world.now_us / SECOND_US))
        wanted = configuration(
            "", 0, destination_node=key.destination_node, sensor=key.sensor, parameters=key.parameters
        )
        asked_once[key] += 1
        world.scheduler.once(wanted, world.now_us, world.now_us + 60 * SECOND_US)
    world.advance(max(0.0, end_s - world.now_us / SECOND_US))
    took_s = time.process_time() - begun
    with_skips = {skip.key for skip in world.skips}
    clean = [key for key in keys if key not in with_skips]
    asked = sum(sum(runs_alone(key, period, end_s) for period in periods_of[key]) + asked_once[key] for key in clean)
    needed = sum(runs_alone(key, min(periods_of[key]), end_s) + asked_once[key] - asked_again[key] for key in clean)
    worst = max(ledgers, key=lambda link: ledgers[link].worst_share)
    return Day(
        configurations=len(world.scheduler.configurations()),
        groups=len(keys),
        one_shots=sum(asked_once.values()),
        started=sum(started.values()),
        asked=asked,
        made=sum(started[key] for key in clean),
        overlap=1 - needed / asked,
        worst_share=ledgers[worst].worst_share,
        worst_link=worst,
        skipped=dict(world.scheduler.statistics.skipped),
        skips_without_reason=sum(not (skip.reason and skip.detail) for skip in world.skips),
        took_s=took_s,
    )


def runs_alone(
    key: GroupKey, period_s: int, duration_s: float, start_us: int = 0, spread_us: int = FIRST_RUN_SPREAD_US
) -> int:
    """Runs within the time of a configuration that shares with nobody, new at the start; first runs are spread."""
    period_us, end_us = period_s * SECOND_US, start_us + int(duration_s * SECOND_US)
    first_us = first_due_us(phase(key), period_us, None, start_us, spread_us)
    second_us = next_due_us(phase(key), first_us, period_us, first_us)
    return int(first_us <= end_us) + max(0, (end_us - second_us) // period_us + 1)


def _fill(
    scheduler: Scheduler, nodes: int, configurations: int
) -> tuple[list[GroupKey], dict[GroupKey, tuple[int, ...]]]:
    """Configurations of several applications for each node; returns the groups and the periods asked for in each."""
    periods_of: dict[GroupKey, tuple[int, ...]] = {}
    count = 0
    for number in range(nodes + 1):
        for sensor, _, groups, periods in _MIX:
            for variant in range(groups):
                taken = periods[: max(0, configurations - count)]
                for application, period_s in enumerate(taken):
                    one = configuration(
                        f"c{count}",
                        period_s,
                        destination_node=f"n{number % nodes}",
                        sensor=sensor,
                        parameters=(("round", str(number // nodes)), ("variant", str(variant))),
                        owner=f"application-{application}",
                    )
                    scheduler.put(one, 0)
                    count += 1
                    periods_of[one.key] = (*periods_of.get(one.key, ()), period_s)
    return list(periods_of), periods_of
