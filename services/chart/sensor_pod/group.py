"""Configurations that one run serves, and when such a group is due. Pure; times in microseconds."""

from __future__ import annotations

import functools
import hashlib
import heapq
from collections import Counter
from dataclasses import dataclass, field

from chart.sensor_pod.model import Configuration, GroupKey

# A new configuration shall give a first result soon, yet a thousand of them not at the same moment.
FIRST_RUN_SPREAD_US = 5_000_000
# With many groups the spread grows by this for each.
FIRST_RUN_GAP_US = 20_000


@dataclass(frozen=True)
class Cost:
    """The most that one run takes."""

    probe_bytes: int
    duration_us: int
    # What comes back over the path from the destination.
    answer_bytes: int = 0


# Budgets and the bytes that each of them has to have room for: of the probes, of the answers.
Takes = tuple[tuple[tuple[str, ...], int], ...]


@dataclass
class Run:
    """Run the sensor now; `Scheduler.finished` must follow."""

    id: int
    key: GroupKey
    cost: Cost
    links: tuple[str, ...]
    # Of the path back.
    answer_links: tuple[str, ...]
    exclusive: bool
    due_us: int
    started_us: int
    priority: int = 0
    # The application's parts of the links' budgets that it is on.
    accounts: tuple[str, ...] = ()
    deadline_us: int = 0
    # When the group ran before this run.
    before_us: int | None = None
    tickets: list[int] = field(default_factory=list)
    one_shot_owners: frozenset[str] = frozenset()
    # Ended for a run of a higher priority.
    preempted: bool = False
    # A budget or another run held it back: it started later than due on purpose.
    held_back: bool = False

    @property
    def takes(self) -> Takes:
        """All budgets that its bytes count for."""
        return (((*self.links, *self.accounts), self.cost.probe_bytes), (self.answer_links, self.cost.answer_bytes))

    def took(self, sent_bytes: int) -> Takes:
        """The same of what it sent at last; answers are no more than their part of it."""
        answer_bytes = -(-self.cost.answer_bytes * sent_bytes // max(1, self.cost.probe_bytes))
        return ((self.takes[0][0], sent_bytes), (self.answer_links, answer_bytes))


class Smallest:
    """The smallest of values that come and go, each under a name; logarithmic."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    def put(self, name: str, value: int) -> None:
        """Set a value."""
        self._values[name] = value
        heapq.heappush(self._heap, (value, name))

    def discard(self, name: str) -> None:
        """Forget a value."""
        self._values.pop(name, None)

    def value(self) -> int | None:
        """The smallest, None without any."""
        while self._heap and self._values.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None


@dataclass
class Pending:
    """A run that is due and has not started, and what it waits for."""

    sequence: int
    due_us: int
    deadline_us: int
    reason: str = "workers"
    detail: str = "all workers are busy"
    # What is claimed in the budgets while waiting for them, and at which priority.
    claim: tuple[Takes, int] | None = None

    def wait(self, reason: str, detail: str) -> None:
        """Note what it waits for."""
        self.reason, self.detail = reason, detail


@dataclass
class Group:
    """Configurations of one key, the one-shots that wait with them, and the state of their run."""

    key: GroupKey
    configurations: dict[str, Configuration] = field(default_factory=dict)
    tickets: list[int] = field(default_factory=list)
    one_shot_priority: int = 0
    one_shot_owners: set[str] = field(default_factory=set)
    pending: Pending | None = None
    run: Run | None = None
    last_started_us: int | None = None
    # Counts plans; timers of an older plan are void.
    epoch: int = 0
    # Whether the sensor was asked what a run costs.
    asked: bool = False
    # Runs in a row whose sensor could not believe what it measured.
    spoilt: int = 0
    _owners: Counter[str] = field(default_factory=Counter)
    _periods: Smallest = field(default_factory=Smallest)
    _tolerances: Smallest = field(default_factory=Smallest)
    _negative_priorities: Smallest = field(default_factory=Smallest)

    def add(self, configuration: Configuration) -> None:
        """Take in a periodic configuration."""
        self.configurations[configuration.id] = configuration
        self._owners[configuration.owner] += 1
        self._periods.put(configuration.id, configuration.period_us)
        self._tolerances.put(configuration.id, configuration.tolerance_us)
        self._negative_priorities.put(configuration.id, -configuration.priority)

    def discard(self, identity: str) -> None:
        """Drop a configuration."""
        configuration = self.configurations.pop(identity, None)
        if configuration is not None:
            self._owners[configuration.owner] -= 1
            if not self._owners[configuration.owner]:
                del self._owners[configuration.owner]
        for values in (self._periods, self._tolerances, self._negative_priorities):
            values.discard(identity)

    @functools.cached_property
    def phase(self) -> float:
        """Where in its period it runs, see `phase`."""
        return phase(self.key)

    @property
    def period_us(self) -> int | None:
        """The fastest asked; None without periodic configurations."""
        return self._periods.value()

    @property
    def priority(self) -> int:
        """The highest of all who want the run."""
        return max(-(self._negative_priorities.value() or 0), self.one_shot_priority)

    @property
    def owners(self) -> set[str]:
        """The applications that want the run."""
        return self.one_shot_owners | self._owners.keys()

    def forget_one_shots(self) -> list[int]:
        """Drop the waiting single runs; returns their tickets."""
        tickets, self.tickets = self.tickets, []
        self.one_shot_priority = 0
        self.one_shot_owners.clear()
        return tickets

    def answered(self, now_us: int) -> bool:
        """Whether the last result is young enough for all.

        A periodic configuration tolerates at most half of its period: more would halve the rate that was asked for.
        """
        period_us, tolerance_us = self.period_us, self._tolerances.value()
        if self.last_started_us is None or period_us is None or tolerance_us is None:
            return False
        return now_us - self.last_started_us < min(tolerance_us, period_us // 2)

    @property
    def idle(self) -> bool:
        """Whether nobody needs the group any more."""
        return not (self.configurations or self.tickets or self.pending or self.run)


def phase(key: GroupKey) -> float:
    """Where in its period a group runs, 0..1: the same after every restart, different for each path and sensor."""
    digest = hashlib.blake2b(key.text().encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def first_spread_us(groups: int) -> int:
    """Over what time the first runs of so many groups are spread."""
    return max(FIRST_RUN_SPREAD_US, FIRST_RUN_GAP_US * groups)


def first_due_us(
    phase: float, period_us: int, last_started_us: int | None, now_us: int, spread_us: int = FIRST_RUN_SPREAD_US
) -> int:
    """When a new plan runs first: on the group's grid when a result is there, soon when there is none."""
    soon_us = now_us + int(phase * min(period_us, spread_us))
    if last_started_us is None:
        return soon_us
    offset_us = int(phase * period_us)
    earliest_us = last_started_us + period_us // 2
    due_us = -(-(earliest_us - offset_us) // period_us) * period_us + offset_us
    return due_us if due_us >= now_us else soon_us


def next_due_us(phase: float, due_us: int, period_us: int, now_us: int) -> int:
    """The first time on the group's grid that is half a period after ``due_us`` or later and not over yet."""
    offset_us = int(phase * period_us)
    earliest_us = max(due_us + (period_us + 1) // 2, now_us + 1)
    return -(-(earliest_us - offset_us) // period_us) * period_us + offset_us
