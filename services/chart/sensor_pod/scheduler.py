"""What to run when: an earliest-deadline queue over groups of configurations (The CHART System, section 6).

Configurations with the same sensor, destination and parameters form a group; one run at the fastest asked period serves
them all (6 s and 10 s: 6 s), one-shots that overlap share a run, and a result younger than the tolerance answers. A run
starts when its bytes fit the budget of every link of its path and no sensor that it would disturb probes one of them;
one of lower priority that stands in the way is ended and runs again later.

Pure: the caller passes the time (integer microseconds of a clock that never steps back) and carries out the decisions.
Work per event is logarithmic in the number of configurations.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from chart.sensor_pod.applications import Applications
from chart.sensor_pod.budget import WINDOW_US, ByteBudget
from chart.sensor_pod.group import (
    Cost,
    Group,
    Pending,
    Run,
    Takes,
    first_due_us,
    first_spread_us,
    next_due_us,
)
from chart.sensor_pod.model import Configuration, GroupKey, Parameters
from chart.sensor_pod.plan import Decision, Declare, Expire, Finished, Limits, Preempt, Skip, Statistics

# Reasons to wait that are the scheduler's will.
_HELD_BACK = frozenset({"budget", "limit", "exclusion", "spoilt"})
_DUE, _RETRY, _EXPIRE, _END = range(4)


class Scheduler:
    """Decides; `poll` says what is to be done now, `wakeup_us` when to ask again at the latest."""

    def __init__(
        self,
        budget: ByteBudget,
        links_of: Callable[[GroupKey], Sequence[str]],
        limits: Limits | None = None,
        applications: Applications | None = None,
        answer_links_of: Callable[[GroupKey], Sequence[str]] = lambda _: (),
        fitted: Callable[[GroupKey], Parameters] = lambda key: key.parameters,
    ) -> None:
        self.budget = budget
        self.statistics = Statistics()
        self._links_of = links_of
        self._answer_links_of = answer_links_of
        # The parameters of a run, fitted to the path: what it costs depends on them.
        self._fitted = fitted
        self._limits = limits or Limits()
        self.applications = applications or Applications()
        self._groups: dict[GroupKey, Group] = {}
        self._configurations: dict[str, Configuration] = {}
        self._costs: dict[tuple[str, Parameters], Cost] = {}
        self._timers: list[tuple[int, int, int, Any]] = []
        self._ready: dict[str, list[tuple[int, int, int, GroupKey]]] = {}
        self._runs: dict[int, Run] = {}
        self._running: dict[str, int] = {}
        # Link -> the exclusive run on it, and who waits for the link.
        self._locks: dict[str, int] = {}
        self._waiters: dict[str, list[GroupKey]] = {}
        self._tickets: dict[int, GroupKey] = {}
        self._order = itertools.count(1)
        # Groups whose plan waits for `release`; None: plans are made at once.
        self._unplanned: dict[GroupKey, Group] | None = None

    # What shall be measured

    def hold(self) -> None:
        """Make no plans until `release`: taking over thousands of configurations takes a while, in which none of them
        shall fall due."""
        if self._unplanned is None:
            self._unplanned = {}

    def release(self, now_us: int) -> None:
        """Plan what was put since `hold`, as if all of it had come now."""
        groups, self._unplanned = self._unplanned or {}, None
        for group in groups.values():
            self._plan(group, now_us)

    def put(
        self,
        configuration: Configuration,
        now_us: int,
        *,
        until_us: int | None = None,
        last_started_us: int | None = None,
    ) -> None:
        """Take over a configuration, new or changed; ``last_started_us`` is known from before a restart."""
        known = self._configurations.get(configuration.id)
        if known == configuration:
            return
        if known is not None:
            if known.key == configuration.key:
                last_started_us = self._groups[known.key].last_started_us
            self.remove(configuration.id, now_us)
        self._configurations[configuration.id] = configuration
        self.applications.note(configuration.owner, 1)
        group = self._group(configuration.key)
        if group.last_started_us is None:
            group.last_started_us = last_started_us
        before = group.period_us
        group.add(configuration)
        if group.period_us != before:
            self._plan(group, now_us)
        if until_us is not None:
            self._timer(until_us, _END, configuration)

    def remove(self, identity: str, now_us: int) -> bool:
        """Forget a configuration; False when it was not known."""
        configuration = self._configurations.pop(identity, None)
        if configuration is None:
            return False
        self.applications.note(configuration.owner, -1)
        group = self._groups[configuration.key]
        before = group.period_us
        group.discard(identity)
        if group.period_us != before:
            self._plan(group, now_us)
        if group.period_us is None and not group.tickets:
            self._withdraw(group)
        self._collect(group)
        return True

    def once(self, configuration: Configuration, now_us: int, deadline_us: int) -> int:
        """Ask for one run; joins one that is under way. The ticket comes back in `Finished`, `Skip` or `Expire`."""
        ticket = next(self._order)
        group = self._group(configuration.key)
        self._tickets[ticket] = group.key
        self._timer(deadline_us, _EXPIRE, ticket)
        if group.run is not None:
            group.run.tickets.append(ticket)
            self.statistics.merged += 1
            return ticket
        group.tickets.append(ticket)
        group.one_shot_owners.add(configuration.owner)
        group.one_shot_priority = max(group.one_shot_priority, configuration.priority)
        if group.pending is not None:
            self.statistics.merged += 1
            return ticket
        self._make_pending(group, now_us, deadline_us)
        return ticket

    def configurations(self) -> list[Configuration]:
        """All periodic configurations."""
        return list(self._configurations.values())

    def period_us(self, key: GroupKey) -> int | None:
        """The fastest asked period of a group; None without periodic configurations."""
        group = self._groups.get(key)
        return group.period_us if group is not None else None

    def minute_bytes(self) -> dict[str, int]:
        """Bytes a minute that the periodic configurations take of each link, as far as it is known what they cost."""
        taken: dict[str, float] = {}
        for key, group in self._groups.items():
            cost = self._costs.get((key.sensor, self._fitted(key)))
            if cost is None or not group.period_us:
                continue
            runs = max(1.0, WINDOW_US / group.period_us)
            for links, size_bytes in (
                (self._links_of(key), cost.probe_bytes),
                (self._answer_links_of(key), cost.answer_bytes),
            ):
                for link in links:
                    taken[link] = taken.get(link, 0.0) + size_bytes * runs
        return {link: round(size_bytes) for link, size_bytes in taken.items()}

    @property
    def group_count(self) -> int:
        """Groups: what is really measured."""
        return len(self._groups)

    @property
    def running(self) -> int:
        """Runs under way."""
        return len(self._runs)

    # What the caller reports

    def declared(self, key: GroupKey, cost: Cost, now_us: int) -> None:
        """What a run of the group costs at most; answers `Declare`."""
        if len(self._costs) > self._limits.remembered_costs:
            self._costs.clear()
        self._costs[key.sensor, self._fitted(key)] = cost
        group = self._groups.get(key)
        if group is None:
            return
        group.asked = False
        if group.pending is not None:
            self._enqueue(group)

    def refused(self, key: GroupKey, now_us: int) -> Finished:
        """The sensor cannot be run so; asked again when the group is due next."""
        group = self._groups.get(key)
        if group is None:
            return Finished((), ())
        group.asked = False
        return self._give_up(group)

    def finished(self, run_id: int, now_us: int, sent_bytes: int, spoilt: str = "") -> Finished:
        """A run has ended; returns whom its result answers.

        ``spoilt`` says why the sensor could not believe what it measured: the run is then made again soon, a few times.
        """
        run = self._runs.pop(run_id)
        self._running[run.key.sensor] -= 1
        for (budgets, reserved_bytes), (_, size_bytes) in zip(run.takes, run.took(sent_bytes), strict=True):
            self.budget.settle(budgets, reserved_bytes, size_bytes, now_us)
        if run.exclusive:
            for link in run.links:
                if self._locks.get(link) == run_id:
                    del self._locks[link]
                for key in self._waiters.pop(link, ()):
                    waiting = self._groups.get(key)
                    if waiting is not None and waiting.pending is not None:
                        self._enqueue(waiting)
        group = self._groups[run.key]
        group.run = None
        if run.preempted:
            self._again(group, run, now_us)
            return Finished((), tuple(group.configurations), preempted=True)
        if spoilt and group.spoilt < self._limits.spoilt_runs and (group.configurations or run.tickets):
            return self._spoilt(group, run, now_us, spoilt)
        group.spoilt = 0
        for ticket in run.tickets:
            self._tickets.pop(ticket, None)
        answered = Finished(tuple(run.tickets), tuple(group.configurations))
        self.statistics.merged += max(0, len(group.configurations) - 1)
        self._collect(group)
        return answered

    # What is to be done

    def wakeup_us(self) -> int | None:
        """When `poll` has something to decide next; None: not before the next event."""
        return self._timers[0][0] if self._timers else None

    def poll(self, now_us: int) -> list[Decision]:
        """Decisions that are due, in the order in which to carry them out."""
        decisions: list[Decision] = []
        while self._timers and self._timers[0][0] <= now_us:
            at_us, _, kind, subject = heapq.heappop(self._timers)
            if kind == _DUE:
                self._fire_due(subject[0], subject[1], at_us, now_us, decisions)
            elif kind == _RETRY:
                self._fire_retry(*subject)
            elif kind == _EXPIRE:
                self._fire_expire(subject, decisions)
            elif self._configurations.get(subject.id) == subject:
                self.remove(subject.id, now_us)
        # The sensor whose first run is the most important goes first, whatever another one may take from it.
        for sensor in sorted(self._ready, key=lambda name: self._ready[name][0]):
            self._drain(sensor, now_us, decisions)
        return decisions

    # Inside

    def _group(self, key: GroupKey) -> Group:
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(key)
        return group

    def _collect(self, group: Group) -> None:
        if group.idle and self._groups.get(group.key) is group:
            del self._groups[group.key]

    def _timer(self, at_us: int, kind: int, subject: Any) -> None:
        heapq.heappush(self._timers, (at_us, next(self._order), kind, subject))

    def _plan(self, group: Group, now_us: int) -> None:
        """The fastest period changed: the old timer becomes void."""
        group.epoch += 1
        if self._unplanned is not None:
            self._unplanned[group.key] = group
        elif group.period_us is not None:
            spread_us = first_spread_us(len(self._groups))
            due_us = first_due_us(group.phase, group.period_us, group.last_started_us, now_us, spread_us)
            self._timer(due_us, _DUE, (group, group.epoch))

    def _fire_due(self, group: Group, epoch: int, at_us: int, now_us: int, decisions: list[Decision]) -> None:
        period_us = group.period_us
        if epoch != group.epoch or period_us is None or self._groups.get(group.key) is not group:
            return
        following_us = next_due_us(group.phase, at_us, period_us, now_us)
        self._timer(following_us, _DUE, (group, epoch))
        if (missed := (now_us - at_us) // period_us) > 0:
            decisions.append(self._skip(group, "late", f"the pod was busy or stopped for {missed} periods", missed))
        if group.run is not None:
            decisions.append(self._skip(group, "overrun", "the run before has not ended"))
        elif group.pending is not None:
            decisions.append(self._skip(group, group.pending.reason, group.pending.detail))
            group.pending.due_us, group.pending.deadline_us = at_us, following_us
        elif group.answered(now_us):
            self.statistics.answered_from_store += 1
        else:
            self._make_pending(group, at_us, following_us)

    def _make_pending(self, group: Group, due_us: int, deadline_us: int) -> None:
        group.pending = Pending(next(self._order), due_us, deadline_us)
        self._enqueue(group)

    def _fire_retry(self, group: Group, sequence: int) -> None:
        if group.pending is not None and group.pending.sequence == sequence:
            self._enqueue(group)

    def _fire_expire(self, ticket: int, decisions: list[Decision]) -> None:
        key = self._tickets.pop(ticket, None)
        if key is None:
            return
        group = self._groups[key]
        if group.run is not None and ticket in group.run.tickets:
            group.run.tickets.remove(ticket)
            decisions.append(Expire(ticket, "running", "the run did not end in time"))
        else:
            group.tickets.remove(ticket)
            pending = group.pending
            decisions.append(Expire(ticket, *((pending.reason, pending.detail) if pending else ("late", "no run"))))
        if group.period_us is None and not group.tickets:
            self._withdraw(group)
        self._collect(group)

    def _enqueue(self, group: Group) -> None:
        pending = group.pending
        assert pending is not None
        self._unclaim(pending)
        entry = (-group.priority, pending.deadline_us, pending.sequence, group.key)
        heapq.heappush(self._ready.setdefault(group.key.sensor, []), entry)

    def _unclaim(self, pending: Pending) -> None:
        if pending.claim is not None:
            takes, priority = pending.claim
            for budgets, size_bytes in takes:
                self.budget.claim(budgets, -size_bytes, priority)
            pending.claim = None

    def _withdraw(self, group: Group) -> None:
        """Nobody wants the run any more."""
        if group.pending is not None:
            self._unclaim(group.pending)
            group.pending = None

    def _give_up(self, group: Group) -> Finished:
        self._withdraw(group)
        tickets = tuple(group.forget_one_shots())
        for ticket in tickets:
            self._tickets.pop(ticket, None)
        answered = Finished(tickets, tuple(group.configurations))
        self._collect(group)
        return answered

    def _skip(self, group: Group, reason: str, detail: str, count: int = 1) -> Skip:
        self.statistics.skipped[reason] = self.statistics.skipped.get(reason, 0) + count
        return Skip(group.key, tuple(group.configurations), (), reason, detail, count)

    def _drain(self, sensor: str, now_us: int, decisions: list[Decision]) -> None:
        """Start what may start of one sensor, the highest priority and then the earliest deadline first."""
        ready = self._ready[sensor]
        limit = self._limits.runs_of(sensor)
        while ready and self._running.get(sensor, 0) < limit and len(self._runs) < self._limits.runs:
            _, _, sequence, key = heapq.heappop(ready)
            group = self._groups.get(key)
            if group is None or group.pending is None or group.pending.sequence != sequence or group.run is not None:
                continue
            cost = self._costs.get((key.sensor, self._fitted(key)))
            if cost is None:
                if not group.asked:
                    group.asked = True
                    group.pending.wait("declaration", "the sensor has not said what the run costs")
                    decisions.append(Declare(key))
                continue
            self._try_start(group, group.pending, cost, now_us, decisions)
        if not ready:
            del self._ready[sensor]
        elif limit == 1 and sensor in self._limits.exclusive_sensors:
            self._preempt_for_worker(sensor, ready[0], decisions)

    def _try_start(self, group: Group, pending: Pending, cost: Cost, now_us: int, decisions: list[Decision]) -> None:
        key = group.key
        links = tuple(self._links_of(key))
        exclusive = key.sensor in self._limits.exclusive_sensors
        if pending.claim is not None:
            return  # a second entry of a run that waits for its turn already
        if exclusive and (taken := next((link for link in links if link in self._locks), None)):
            pending.wait("exclusion", f"another train or chirp is on {taken}")
            self.statistics.delayed["exclusion"] = self.statistics.delayed.get("exclusion", 0) + 1
            self._waiters.setdefault(taken, []).append(key)
            self._preempt(self._runs[self._locks[taken]], group, decisions)
            return
        size_bytes, priority = cost.probe_bytes, group.priority
        back = (tuple(self._answer_links_of(key)), cost.answer_bytes)
        account, at_us = self._account(group, links, back, size_bytes, now_us)
        takes = (((*links, *account), size_bytes), back)
        if at_us is None:
            own = self._earliest_us(((links, size_bytes), back), priority, now_us) is not None
            reason, whose = ("limit", "the application's part of it") if own else ("budget", "the path's budget")
            room = min((self.budget.limit_bytes(name) for names, _ in takes for name in names), default=0)
            detail = f"the run may send {size_bytes} bytes, {whose} is {room} bytes a minute"
            answered = self._give_up(group)
            self.statistics.skipped[reason] = self.statistics.skipped.get(reason, 0) + 1
            decisions.append(Skip(key, answered.configuration_ids, answered.tickets, reason, detail, 1))
        elif at_us > now_us:
            own = self._earliest_us(((links, size_bytes), back), priority, now_us) == now_us
            reason, whose = ("limit", "the application's part of it") if own else ("budget", "the path's budget")
            pending.wait(reason, f"{size_bytes} bytes do not fit {whose} yet")
            pending.claim = (takes, priority)
            for budgets, claimed_bytes in takes:
                self.budget.claim(budgets, claimed_bytes, priority)
            self.statistics.delayed[reason] = self.statistics.delayed.get(reason, 0) + 1
            self._timer(at_us, _RETRY, (group, pending.sequence))
        else:
            number = next(self._order)
            run = Run(number, key, cost, links, back[0], exclusive, pending.due_us, now_us, priority, account)
            decisions.append(self._start(group, pending, run))

    def _earliest_us(self, takes: Takes, priority: int, now_us: int) -> int | None:
        """When there is room for all: now, a later time, or None for never."""
        latest_us = now_us
        for budgets, size_bytes in takes:
            at_us = self.budget.earliest_us(budgets, size_bytes, priority, now_us)
            if at_us is None:
                return None
            latest_us = max(latest_us, at_us)
        return latest_us

    def _account(
        self, group: Group, links: tuple[str, ...], back: tuple[tuple[str, ...], int], size_bytes: int, now_us: int
    ) -> tuple[tuple[str, ...], int | None]:
        """The application's budgets that are open first, and when all budgets have room; None: never."""
        best: tuple[tuple[str, ...], int | None] = ((), None)
        for account in self.applications.accounts(group.owners, links, self.budget):
            at_us = self._earliest_us((((*links, *account), size_bytes), back), group.priority, now_us)
            if best[1] is None or (at_us is not None and at_us < best[1]):
                best = (account, at_us)
        return best

    def _start(self, group: Group, pending: Pending, run: Run) -> Run:
        run.held_back = pending.reason in _HELD_BACK
        run.deadline_us, run.before_us = pending.deadline_us, group.last_started_us
        run.one_shot_owners = frozenset(group.one_shot_owners)
        run.tickets = group.forget_one_shots()
        group.pending, group.run = None, run
        group.last_started_us = run.started_us
        for budgets, size_bytes in run.takes:
            self.budget.reserve(budgets, size_bytes)
        self._runs[run.id] = run
        self._running[run.key.sensor] = self._running.get(run.key.sensor, 0) + 1
        if run.exclusive:
            for link in run.links:
                self._locks[link] = run.id
        self.statistics.started += 1
        return run

    # Pre-emption: only of exclusive runs, which are long and alone

    def _preempt_for_worker(self, sensor: str, head: tuple[int, int, int, GroupKey], decisions: list[Decision]) -> None:
        """The only worker of a sensor is busy with something less important than the first that waits for it."""
        group = self._groups.get(head[3])
        busy = next((run for run in self._runs.values() if run.key.sensor == sensor), None)
        if busy is not None and group is not None and group.pending is not None and group.pending.sequence == head[2]:
            self._preempt(busy, group, decisions)

    def _preempt(self, run: Run, group: Group, decisions: list[Decision]) -> None:
        if run.preempted or run.priority >= group.priority:
            return
        run.preempted = True
        detail = f"a run of priority {group.priority} needs its place: {group.key.text()}"
        decisions.append(Preempt(run.id, run.key, detail))
        decisions.append(self._skip(self._groups[run.key], "preempted", detail))

    def _spoilt(self, group: Group, run: Run, now_us: int, reason: str) -> Finished:
        """What the run measured means nothing: it is made again after a pause that grows from try to try."""
        pause_us = self._limits.spoilt_pause_us << group.spoilt
        group.spoilt += 1
        skip = self._skip(group, "spoilt", reason)
        self._again(group, run, now_us, now_us + pause_us)
        return Finished((), tuple(group.configurations), again=skip)

    def _again(self, group: Group, run: Run, now_us: int, not_before_us: int | None = None) -> None:
        """A run gave nothing: whoever waited for it waits on, and it is due as it was, or a while later."""
        group.last_started_us = run.before_us
        group.tickets = run.tickets + group.tickets
        if group.tickets:
            group.one_shot_owners |= run.one_shot_owners
            group.one_shot_priority = max(group.one_shot_priority, run.priority)
        if group.period_us is None and not group.tickets:
            self._collect(group)
        elif group.pending is None:
            deadline_us = max(run.deadline_us, now_us)
            if not_before_us is None:
                self._make_pending(group, run.due_us, deadline_us)
                return
            pending = group.pending = Pending(next(self._order), run.due_us, max(deadline_us, not_before_us))
            pending.wait("spoilt", "the run before was spoilt, it is made again after a pause")
            self._timer(not_before_us, _RETRY, (group, pending.sequence))
