"""The pod's controller: carries out what the scheduler decides (The CHART System, section 6, figure 3).

Every result goes to the data repository first; then those who wait or watch get it and the publisher is woken.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import structlog
from ulid import ULID

from chart.common import probe_costs
from chart.common.clock import Clock
from chart.common.shortest_paths import Paths
from chart.sensor_pod import composition, metrics, service
from chart.sensor_pod.applications import Applications, LimitExceededError, Limits
from chart.sensor_pod.budget import ByteBudget
from chart.sensor_pod.drivers import Drivers, SensorError
from chart.sensor_pod.group import Cost, Run
from chart.sensor_pod.model import Configuration, GroupKey, InvalidConfigurationError, Parameters, from_proto
from chart.sensor_pod.plan import Declare, Expire, Preempt, Skip
from chart.sensor_pod.publisher import Publisher
from chart.sensor_pod.repository import Origin, Repository, RunRecord, SkipRecord
from chart.sensor_pod.scheduler import Scheduler
from chart.sensor_pod.watch import Watchers
from chart.v1 import measurement_pb2, sensing_configuration_pb2, topology_pb2
from chart.v1.probe_lease_pb2 import ProbeLeases

# Beyond the time that a sensor declares.
RUN_MARGIN_S = 3.0
ONE_SHOT_LIMIT_S = 30.0
LATENESS_RUNS = 100_000
# What a pod wants of a link over what its configurations take.
ROOM = 1.25
MANY_GROUPS = 500
PLAN_EVERY_US = 20_000_000
# How old what goes into a composition may be when it does not say: so many of its periods, of a one-shot this long.
COMPOSED_PERIODS = 3
COMPOSED_ONCE_US = 60_000_000

_log = structlog.get_logger("chart.sensor_pod")


class RunRefusedError(Exception):
    """A one-shot that was not run: ``reason`` as in `Skip`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Pod:
    """Scheduler, drivers and repository of one node."""

    def __init__(
        self,
        node: str,
        repository: Repository,
        drivers: Drivers,
        publisher: Publisher,
        clock: Clock,
        *,
        probe_share: float = 0.01,
        default_capacity_bps: int = 1_000_000,
        applications: Applications | None = None,
    ) -> None:
        self.node = node
        self.repository = repository
        self.drivers = drivers
        self.watchers = Watchers()
        self._publisher = publisher
        self._clock = clock
        self._paths, self._paths_back = Paths(node), Paths(node, back=True)
        budget = ByteBudget(probe_share, default_capacity_bps)
        self.scheduler = Scheduler(
            budget,
            self._links,
            applications=applications,
            answer_links_of=self._answer_links,
            fitted=self._fitted,
        )
        self._shared: frozenset[str] = frozenset()
        self._leases = ProbeLeases()
        self._planned: dict[str, int] = {}
        self._plan_again_us = 0
        self._fair_bytes: dict[str, int] = {}
        self._origins: dict[str, Origin] = {}
        self._messages: dict[str, sensing_configuration_pb2.SensingConfiguration] = {}
        self._last_starts_us: dict[str, int] = {}
        self._tickets: dict[int, asyncio.Future[tuple[measurement_pb2.Measurement, ...]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        # From due to started, of the last runs that nothing held back on purpose.
        self.lateness_us: deque[int] = deque(maxlen=LATENESS_RUNS)

    # Configurations

    async def load(self) -> None:
        """Take over what the repository holds, with the times of the last runs; `run` plans it."""
        self.scheduler.hold()
        self._last_starts_us = await self.repository.last_starts_us()
        for message, origin in await self.repository.configurations():
            self._adopt(message, origin)
        _log.info("the repository is read", configurations=len(self._messages), groups=self.scheduler.group_count)

    async def put(self, message: sensing_configuration_pb2.SensingConfiguration, origin: Origin) -> None:
        """Store a configuration, then follow it.

        Raises:
            InvalidConfigurationError: it cannot be run.
            LimitExceededError: its application may not have it.
        """
        if self._messages.get(message.id) == message and self._origins.get(message.id) == origin:
            return
        configuration = from_proto(message)
        known = self._messages.get(message.id)
        self.scheduler.applications.check(configuration, from_proto(known) if known is not None else None)
        await self.repository.put_configuration(message, origin)
        self._adopt(message, origin)

    async def remove(self, identities: Iterable[str]) -> None:
        """Forget configurations; unknown ones are no error."""
        gone = [identity for identity in identities if identity in self._messages]
        if not gone:
            return
        await self.repository.remove_configurations(gone)
        for identity in gone:
            del self._messages[identity], self._origins[identity]
            self.scheduler.remove(identity, self._now_us())
        self._wake()

    def configurations(self, origin: Origin | None = None) -> list[sensing_configuration_pb2.SensingConfiguration]:
        """What is configured, by id; with an origin only what came from there."""
        return [
            message
            for identity, message in sorted(self._messages.items())
            if origin is None or self._origins[identity] == origin
        ]

    def origin(self, identity: str) -> Origin | None:
        """Where a configuration came from; None when there is none of that name."""
        return self._origins.get(identity)

    def _adopt(self, message: sensing_configuration_pb2.SensingConfiguration, origin: Origin) -> None:
        try:
            configuration = from_proto(message)
            known = self._messages.get(message.id)
            self.scheduler.applications.check(configuration, from_proto(known) if known is not None else None)
        except (InvalidConfigurationError, LimitExceededError) as error:
            _log.error("a stored configuration cannot be run", configuration=message.id, reason=str(error))
            return
        self._messages[message.id], self._origins[message.id] = message, origin
        now_us, wall_us = self._now_us(), self._clock.now_us()
        until_us = None
        if configuration.valid_until_us:
            until_us = now_us + configuration.valid_until_us - wall_us
        started_us = self._last_starts_us.get(configuration.key.text())
        last_us = now_us - max(0, wall_us - started_us) if started_us is not None else None
        self.scheduler.put(configuration, now_us, until_us=until_us, last_started_us=last_us)
        self._wake()

    def set_limits(self, probe_share: float, limits: Mapping[str, Limits]) -> None:
        """Other limits from now on: part of each link that probes may take, and what applications may have. What runs
        or is configured already stays.
        """
        self.scheduler.budget.share = probe_share
        self.scheduler.applications.replace(dict(limits))
        self._wake()

    def set_topology(self, links: Iterable[topology_pb2.Link], nodes: int = 1) -> None:
        """Take over paths and capacities; ``nodes`` may have a sensor pod each."""
        known = list(links)
        self._paths.set_links(known)
        self._paths_back.set_links(known)
        for link in known:
            self.scheduler.budget.set_capacity(link.id, link.capacity_bps)
        self._shared = frozenset(link.id for link in known) if nodes > 1 else frozenset()
        self.scheduler.budget.share_links(self._shared, nodes)

    # Leases of links that other pods probe too

    def take_leases(self, leases: ProbeLeases) -> None:
        """Take over what this pod may send over each link."""
        self._leases = leases
        self.renew_leases()
        self._wake()

    def renew_leases(self) -> None:
        """Let go of leases that have run out."""
        valid = self._clock.now_us() < self._leases.valid_until_us
        known = self._leases.leases if valid else ()
        self.scheduler.budget.set_leases({one.link_id: one.minute_bytes for one in known})
        self._fair_bytes = {one.link_id: one.fair_bytes for one in known}

    def wanted(self) -> dict[str, int]:
        """Bytes a minute of each shared link that this pod could use: of its configurations with some room, of runs
        that wait, and what it sent lately."""
        if not self._shared:
            return {}
        budget, now_us = self.scheduler.budget, self._now_us()
        if now_us >= self._plan_again_us:
            # Thousands of groups are not looked through with each report.
            self._planned = self.scheduler.minute_bytes()
            self._plan_again_us = now_us + (PLAN_EVERY_US if self.scheduler.group_count > MANY_GROUPS else 0)
        planned = self._planned
        found = {}
        for link in self._shared & (planned.keys() | set(budget.links())):
            used_bytes = budget.used_bytes(link, now_us) + budget.claimed_bytes(link)
            found[link] = min(budget.whole_bytes(link), max(round(planned.get(link, 0) * ROOM), used_bytes))
        return {link: size_bytes for link, size_bytes in found.items() if size_bytes}

    # One-shots

    async def run_once(self, configuration: Configuration) -> tuple[measurement_pb2.Measurement, ...]:
        """Results of one run, or of a stored one within the tolerance, or of one that is under way.

        Raises:
            RunRefusedError: the budget has no room, or the run did not start or end in time.
            LimitExceededError: its application asks for too much.
        """
        self.scheduler.applications.check_one_shot(configuration, self._now_us())
        if configuration.tolerance_us:
            since_us = self._clock.now_us() - configuration.tolerance_us
            stored = await self.repository.results_since(configuration.key.text(), since_us)
            if stored:
                self.scheduler.statistics.answered_from_store += 1
                return tuple(stored)
        now_us = self._now_us()
        ticket = self.scheduler.once(configuration, now_us, now_us + int(ONE_SHOT_LIMIT_S * 1e6))
        future: asyncio.Future[tuple[measurement_pb2.Measurement, ...]] = asyncio.get_running_loop().create_future()
        self._tickets[ticket] = future
        self._wake()
        try:
            return await future
        finally:
            self._tickets.pop(ticket, None)

    def _refuse(self, tickets: Iterable[int], reason: str, detail: str) -> None:
        for ticket in tickets:
            future = self._tickets.get(ticket)
            if future is not None and not future.done():
                future.set_exception(RunRefusedError(reason, detail))

    # The loop

    async def run(self) -> None:
        """Carry out decisions until cancelled."""
        self.scheduler.release(self._now_us())
        metrics.PLANNED.set(self._clock.now_us() / 1e6)
        try:
            while True:
                self._news.clear()
                for decision in self.scheduler.poll(self._now_us()):
                    if isinstance(decision, Run):
                        self._spawn(self._carry_out(decision))
                    elif isinstance(decision, Declare):
                        self._spawn(self._declare(decision.key))
                    elif isinstance(decision, Skip):
                        self._refuse(decision.tickets, decision.reason, decision.detail)
                        self._spawn(self._note_skip(decision))
                    elif isinstance(decision, Preempt):
                        _log.info("a run is ended for another", group=decision.key.text(), reason=decision.detail)
                        self.drivers.cancel(decision.key)
                    elif isinstance(decision, Expire):
                        self._refuse([decision.ticket], decision.reason, decision.detail)
                await self._wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _wait(self) -> None:
        wakeup_us = self.scheduler.wakeup_us()
        if wakeup_us is None:
            await self._news.wait()
            return
        wait_s = (wakeup_us - self._now_us()) / 1e6
        if wait_s <= 0 or self._news.is_set():
            await asyncio.sleep(0)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._news.wait()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a task of the pod failed", error=repr(error), exc_info=error)

    def _links(self, key: GroupKey) -> tuple[str, ...]:
        return () if key.sensor == composition.SENSOR else self._paths.links(key.destination_node)

    def _answer_links(self, key: GroupKey) -> tuple[str, ...]:
        return self._paths_back.links(key.destination_node) if key.sensor in probe_costs.BETWEEN_NODES else ()

    def _fitted(self, key: GroupKey) -> Parameters:
        """The parameters that suit the path; spruce is told its capacity."""
        if key.sensor not in probe_costs.TRAINS:
            return key.parameters
        budget = self.scheduler.budget
        links = self._links(key)
        parameters = dict(key.parameters)
        capacity_bps = min(budget.capacity_bps(link) for link in links)
        known = not any(link.startswith("to:") for link in links)
        if key.sensor == "spruce" and known:
            parameters.setdefault("capacity_bps", str(capacity_bps))
        minute_bytes = min(self._fair_bytes.get(link, budget.whole_bytes(link)) for link in links)
        made = probe_costs.fitted(key.sensor, parameters, capacity_bps if known else None, minute_bytes)
        return tuple(sorted(made.items()))

    def _run_key(self, key: GroupKey) -> GroupKey:
        """What the sensor is asked to run."""
        return dataclasses.replace(key, parameters=self._fitted(key))

    async def _declare(self, key: GroupKey) -> None:
        if key.sensor == composition.SENSOR:
            self.scheduler.declared(key, Cost(0, 0), self._now_us())
            self._wake()
            return
        try:
            fitted = self._run_key(key)
            answer = await self.drivers.declare(fitted)
            failure = service.failure_of(answer)
            if not failure:
                self.scheduler.declared(key, service.cost_of(answer, fitted), self._now_us())
                self._wake()
                return
        except (SensorError, service.SensorAnswerError) as error:
            answer = error.record() if isinstance(error, SensorError) else SensorError("other", str(error)).record()
        finished = self.scheduler.refused(key, self._now_us())
        await self._store(key, answer, finished.configuration_ids, finished.tickets, self._clock.now_us())

    async def _carry_out(self, run: Run) -> None:
        late_us = max(0, self._now_us() - run.due_us)
        metrics.START_LATENESS.observe(late_us / 1e6)
        if not run.held_back:
            self.lateness_us.append(late_us)
        started_us = self._clock.now_us()
        sent_bytes = run.cost.probe_bytes
        spoilt = ""
        try:
            if run.key.sensor == composition.SENSOR:
                answer = await self._compose(run.key)
            else:
                answer = await self.drivers.run(self._run_key(run.key), run.cost.duration_us / 1e6 + RUN_MARGIN_S)
            with contextlib.suppress(TypeError, ValueError):
                # A run that failed without counts may have sent everything that it declared.
                sent_bytes = min(sent_bytes, int(answer.get("probe_bytes", sent_bytes)))
            spoilt = service.spoilt(answer)
        except SensorError as error:
            answer = error.record()
        finally:
            finished = self.scheduler.finished(run.id, self._now_us(), sent_bytes, spoilt)
            self._wake()
        metrics.PROBE_BYTES.labels(sensor=run.key.sensor).inc(sent_bytes)
        if finished.preempted:
            return
        if finished.again is not None:
            await self._note_skip(finished.again)
            return
        await self._store(run.key, answer, finished.configuration_ids, finished.tickets, started_us)

    async def _compose(self, key: GroupKey) -> dict[str, Any]:
        """The answer of a composition: fixed functions of stored results."""
        wanted = composition.parse(dict(key.parameters))
        values = []
        for one in wanted.inputs:
            node = one.node or key.destination_node or key.destination_address
            newest = await self.repository.newest(node, one.metric)
            values.append(
                composition.Value(newest.value, newest.unit, newest.measured_at_us, newest.error) if newest else None
            )
        period_us = self.scheduler.period_us(key) or COMPOSED_ONCE_US
        max_age_us = wanted.max_age_us or COMPOSED_PERIODS * period_us
        return composition.compose(wanted, values, self._clock.now_us(), max_age_us)

    async def _store(
        self,
        key: GroupKey,
        answer: dict[str, Any],
        configuration_ids: tuple[str, ...],
        tickets: tuple[int, ...],
        started_us: int,
    ) -> None:
        """First to the repository, then to everybody else."""
        measurements = service.measurements_of(
            self.node, key, answer, configuration_ids, self._clock.now_us(), lambda: str(ULID())
        )
        try:
            await self.repository.write(RunRecord(key.text(), started_us, measurements))
        except Exception as error:
            self._refuse(tickets, "repository", f"the result could not be stored: {error}")
            raise
        self._last_starts_us[key.text()] = started_us
        for measurement in measurements:
            outcome = "error" if measurement.error else "ok"
            metrics.MEASUREMENTS.labels(sensor=key.sensor, metric=measurement.metric, outcome=outcome).inc()
            if measurement.error:
                _log.warning("a run failed", group=key.text(), reason=measurement.error)
        for ticket in tickets:
            future = self._tickets.get(ticket)
            if future is not None and not future.done():
                future.set_result(measurements)
        self.watchers.give(measurements)
        self._publisher.wake()

    async def _note_skip(self, skip: Skip) -> None:
        metrics.SKIPS.labels(sensor=skip.key.sensor, reason=skip.reason).inc(skip.count)
        _log.info("a run was skipped", group=skip.key.text(), reason=skip.reason, detail=skip.detail)
        record = SkipRecord(self._clock.now_us(), skip.key.text(), skip.reason, skip.detail, skip.count)
        await self.repository.write(record)

    async def note_refusal(self, identity: str, detail: str) -> None:
        """A configuration of the control plane that its application may not have."""
        await self.repository.write(SkipRecord(self._clock.now_us(), f"configuration {identity}", "limit", detail, 1))

    def now_us(self) -> int:
        """The scheduler's clock, which never steps back."""
        return self._now_us()

    def _now_us(self) -> int:
        return int(self._clock.monotonic() * 1e6)

    def _wake(self) -> None:
        self._news.set()
