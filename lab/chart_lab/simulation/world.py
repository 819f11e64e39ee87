"""One simulated run: a network, its agents, replicas of reservations and of the allocator, applications, faults.

Reservations (gRPC servicer, worker, admission, state machines), the allocator and what agents decide are the real code;
time, streams, database, network and kernels are simulated. Everything follows from the seed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import structlog

from chart.allocator.settings import AllocatorSettings
from chart.allocator.streams import Allocator
from chart.reservations.decisions.in_band import LeaseRule
from chart.reservations.decisions.ledger import Kind, Ledger
from chart.reservations.decisions.profile import Block
from chart.reservations.decisions.reservation import Reservation, Timing
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import flow_grant_pb2, topology_pb2
from chart_lab.simulation import mutations
from chart_lab.simulation.agent import FLOW_GRANT, LINK_RATE, Agent
from chart_lab.simulation.applications import Application, Server
from chart_lab.simulation.broker import SimulatedBroker, Stored
from chart_lab.simulation.callbacks import Receivers
from chart_lab.simulation.checker import Checker, Violation
from chart_lab.simulation.database import Database
from chart_lab.simulation.faults import CLOCK_ERROR_US, Faults
from chart_lab.simulation.loop import SimulatedLoop, pretend
from chart_lab.simulation.processes import CURRENT, Process, follow_tasks
from chart_lab.simulation.reservations import Replica
from chart_lab.simulation.trace import Trace

MEGA = 1_000_000
TOPOLOGY = "chart.topology.v1"
SHARE = 0.8

# Time is short: limits are a fraction of the services' defaults, their proportions the same.
VALIDITY_US = 12_000_000
TIMING = Timing(
    grant_validity_us=VALIDITY_US,
    confirmation_limit_us=4_000_000,
    hold_limit_us=15_000_000,
    clock_error_us=2 * CLOCK_ERROR_US,
)
RULE = LeaseRule(length_us=10_000_000, clock_error_us=2 * CLOCK_ERROR_US)
LINK_RATE_LEASE_US = 8_000_000
FAULTS_S = 16.0
SETTLE_S = 17.0
# Of an agent after a grant's end: its tick and the time that a record needs, beside validity and clocks' errors.
SLACK_US = 1_000_000


@dataclass
class Result:
    """What a run showed."""

    seed: int
    violations: list[Violation]
    digest: str
    events: int
    counts: dict[str, int] = field(default_factory=dict)
    trace: Trace | None = None


class World:
    """One simulated run: network, agents, replicas, applications and faults, all from `seed`."""

    def __init__(self, seed: int, loop: SimulatedLoop) -> None:
        self.seed = seed
        self.loop = loop
        self.trace = Trace(loop.time)
        self.broker = SimulatedBroker(loop, self._numbers("broker"))
        self.database = Database(loop, self._numbers("database"))
        self._plan = self._numbers("plan")
        self.nodes = [f"n{number}" for number in range(self._plan.randint(3, 5))]
        # Admissible rate of each link over time, newest last: (true time, bit/s).
        self.limits: dict[str, list[tuple[int, int]]] = {}
        self.links: dict[str, topology_pb2.Link] = {}
        self.agents: dict[str, Agent] = {}
        self.checker = Checker(
            lambda: loop.now_us,
            self._admissible_bps,
            VALIDITY_US + 2 * CLOCK_ERROR_US + SLACK_US,
            lambda text: self.trace.note("checker", text),
        )
        self.database.watchers.append(self.checker.on_commit)
        self.database.watchers.append(self._trace_commit)
        self.broker.watchers.append(self._on_record)
        self._make_network()
        self.receivers = Receivers(loop, self._numbers("receivers"), self._on_call)
        self.servers = [self._server(f"reservations-{number}") for number in range(2)]
        self.allocators = [
            self._process(f"allocator-{number}", self._run_allocator) for number in range(self._plan.randint(1, 2))
        ]
        self.hosts = [self._process(f"agent-{node}", agent.run) for node, agent in self.agents.items()]
        self.applications = [
            Application(
                f"app{number}",
                loop,
                self.trace,
                self._numbers(f"app{number}"),
                self.servers,
                self.checker,
                self.nodes,
            )
            for number in range(self._plan.randint(2, 4))
        ]
        self.faults = Faults(
            loop,
            self.trace,
            self._numbers("faults"),
            self.processes,
            self.broker,
            self.database,
            self._change_link,
            [one.name for one in self.applications],
        )

    @property
    def processes(self) -> list[Process]:
        """Everything that can be killed."""
        return [*(one.process for one in self.servers), *self.allocators, *self.hosts]

    def _numbers(self, purpose: str) -> random.Random:
        """Random numbers of one purpose: what one part draws does not change what the others get."""
        return random.Random(f"{self.seed}:{purpose}")  # noqa: S311 - the point is that they can be had again

    def _process(self, name: str, main: Callable[[Process], Any]) -> Process:
        numbers = self._numbers(name)
        return Process(name, self.loop, self.trace, main, lambda: numbers.uniform(0.2, 2.0))

    def _make_network(self) -> None:
        """A ring with a chord, both directions."""
        pairs = [(a, b) for a, b in zip(self.nodes, [*self.nodes[1:], self.nodes[0]], strict=True)]
        if len(self.nodes) > 3:
            pairs.append((self.nodes[0], self.nodes[2]))
        for number, node in enumerate(self.nodes):
            entity = topology_pb2.TopologyEntity(node=topology_pb2.Node(id=node, addresses=[f"10.9.{number}.1/32"]))
            self._state(node, entity)
        for a, b in pairs:
            capacity_bps = self._plan.choice((50, 100, 100, 200)) * MEGA
            for origin, target in ((a, b), (b, a)):
                link = topology_pb2.Link(
                    id=f"{origin}:to-{target}", from_node=origin, to_node=target, capacity_bps=capacity_bps
                )
                self.links[link.id] = link
                self._state_link(link, capacity_bps)
        for node in self.nodes:
            own = {link.id: link.capacity_bps for link in self.links.values() if link.from_node == node}
            self.agents[node] = Agent(node, own, self.broker, self._numbers(f"agent-{node}"))
            self.agents[node].kernel.changed = self._check_applied

    def _state(self, key: str, entity: topology_pb2.TopologyEntity) -> None:
        self.broker.append(TOPOLOGY, Stored(key, entity.SerializeToString(), {}, self.loop.now_us))

    def _state_link(self, link: topology_pb2.Link, capacity_bps: int) -> None:
        stated = topology_pb2.Link()
        stated.CopyFrom(link)
        stated.capacity_bps = capacity_bps
        self._state(link.id, topology_pb2.TopologyEntity(link=stated))
        self.limits.setdefault(link.id, []).append((self.loop.now_us, int(capacity_bps * SHARE)))

    def _change_link(self) -> str:
        """A link shrinks, fails, or is as it was."""
        link = self._plan.choice(list(self.links.values()))
        capacity_bps = round(link.capacity_bps * self._plan.choice((0.0, 0.5, 1.0, 1.0)))
        self._state_link(link, capacity_bps)
        self.agents[link.from_node].links[link.id] = capacity_bps
        return f"{link.id} has now {capacity_bps} of {link.capacity_bps} bit/s"

    def _admissible_bps(self, link_id: str, lasting_us: int = 0) -> int:
        """The most that a replica may take the link for: what it was while a record may still be on its way.
        `lasting_us`: at any time of so long before.
        """
        since_us = self.loop.now_us - 15_000_000 - lasting_us
        history = self.limits[link_id]
        current = [limit for at, limit in history if at >= since_us]
        before = [limit for at, limit in history if at < since_us]
        return max([*current, *before[-1:]])

    def _check_applied(self) -> None:
        """What nodes apply at this instant; a link that shrank is used as before until grants' validity is over."""
        kernels = {node: agent.kernel for node, agent in self.agents.items()}
        self.checker.check_applied(
            kernels, self.loop.time(), lambda link_id: self._admissible_bps(link_id, self.checker.stale_us)
        )

    def _server(self, name: str) -> Server:
        server = Server(self._process(name, lambda process: self._run_reservations(process, server)))
        return server

    async def _run_reservations(self, process: Process, server: Server) -> None:
        server.replica = None
        replica = Replica(process, self.broker, self.database, TIMING, RULE, self.receivers)
        await replica.open()
        server.replica = replica
        await replica.run()

    async def _run_allocator(self, process: Process) -> None:
        settings = AllocatorSettings(
            kafka_bootstrap="local:",
            link_rate_lease_us=LINK_RATE_LEASE_US,
            _env_file=None,  # type: ignore[call-arg]  # of pydantic
        )
        await Allocator(self.broker.client(process), settings, process.clock).run()

    def _on_record(self, topic: str, record: Stored) -> None:
        if record.payload is None:
            self.trace.note("broker", f"{topic} {record.key} is gone")
            return
        if topic in ("chart.rate-request.v1", FLOW_GRANT):
            value = self.broker.value(topic, record.key)
            self.checker.on_record(topic, value)
            number = value.generation if isinstance(value, flow_grant_pb2.FlowGrant) else value.revision  # type: ignore[union-attr]
            self.trace.note("broker", f"{topic} {record.key} number {number}")
        else:
            self.trace.note("broker", f"{topic} {record.key}")

    def _on_call(self, identity: str, body: str) -> None:
        notice = json.loads(body)
        data = notice["data"]
        self.trace.note("receivers", f"{identity} {notice['type']} of {data['id']} revision {data['revision']}")
        self.checker.called(identity, data["id"], data["revision"])

    def _trace_commit(self, process: str, before: dict[Any, Any], after: dict[Any, Any]) -> None:
        for (table, key), row in after.items():
            if table == "rate_request" and row is not None:
                one: Reservation = row["reservation"]
                self.trace.note(
                    "database",
                    f"{process} commits {key} revision {one.revision} lifecycle {one.lifecycle} enforcement"
                    f" {one.enforcement} service {one.service_state} rate {one.granted_bps} generation"
                    f" {one.generation}: {one.reason}",
                )

    async def run(self) -> None:
        """From the start to the verdict."""
        coordinator = self.loop.create_task(self.broker.coordinate())
        for process in self.processes:
            process.start()
        await asyncio.sleep(2.0)
        watching = self.loop.create_task(self._watch())
        callers = [self.loop.create_task(one.run(FAULTS_S)) for one in self.applications]
        await self.faults.run(FAULTS_S)
        self.faults.heal()
        self.receivers.healed = True
        for link in self.links.values():
            self._state_link(link, link.capacity_bps)
            self.agents[link.from_node].links[link.id] = link.capacity_bps
        await asyncio.gather(*callers)
        await asyncio.sleep(SETTLE_S)
        watching.cancel()
        coordinator.cancel()
        self._check_end()

    async def _watch(self) -> None:
        """Look at the nodes all the time."""
        while True:
            await asyncio.sleep(0.5)
            self._check_applied()
            for node, agent in self.agents.items():
                agent.kernel.expire()
                self.checker.check_kernel(node, agent.kernel.grants)
                for link_id in agent.links:
                    drawn_bps = agent.kernel.drawn_bps(link_id)
                    self.checker.check_in_band(link_id, drawn_bps)

    def _check_end(self) -> None:
        rows = self.database.table("rate_request")
        reservations = {key: cast(Reservation, row["reservation"]) for key, row in rows.items()}

        def grant_of(request_id: str) -> flow_grant_pb2.FlowGrant | None:
            return cast("flow_grant_pb2.FlowGrant | None", self.broker.value(FLOW_GRANT, request_id))

        def applied(node: str, request_id: str) -> int | None:
            one = self.agents[node].kernel.grants.get(request_id)
            return one.gr_bps if one else None

        self.checker.check_end(reservations, self._profile_peak_bps, grant_of, applied)
        for node in self.nodes:
            rates: Any = self.broker.value(LINK_RATE, node)
            if rates is None or rates.valid_until_us <= self.loop.now_us:
                self.checker.violated("stuck", f"the link rates of {node} ended", node)

    def _profile_peak_bps(self, link_id: str, now_us: int) -> int:
        ledger = Ledger(complete=True)
        for (kind, *key), packed in self.database.table("profile").get(link_id, {}).items():
            ledger.track(link_id, Kind(kind)).put((key[0], key[1]), Block.unpack(packed))
        return ledger.peak_bps(link_id, now_us, FOREVER_US)


def simulate(seed: int, mutation: str = "") -> Result:
    """One run. The same seed (and PYTHONHASHSEED) gives the same trace."""
    loop = SimulatedLoop()
    follow_tasks(loop)
    loop.set_exception_handler(lambda _loop, context: None)
    asyncio.set_event_loop(loop)
    try:
        with pretend(loop, seed), mutations.applied(mutation):
            world = World(seed, loop)
            _log_into(world.trace)
            loop.run_until_complete(world.run())
            counts = {"commits": world.checker.commits, "promises": len(world.checker.promises)}
            counts["applied_sums"] = world.checker.applied_sums
            for application in world.applications:
                for name, count in application.counts.items():
                    counts[name] = counts.get(name, 0) + count
            for process in world.processes:
                process.kill()
            loop.run_until_complete(asyncio.sleep(0))
        trace = world.trace
        return Result(seed, world.checker.violations, trace.digest, len(trace), counts, trace)
    finally:
        asyncio.set_event_loop(None)
        loop.close()
        # Tasks hash by their numbers: those of the run before would lie in the way of the next one's.
        gc.collect()


def _log_into(trace: Trace) -> None:
    """What the services log goes into the trace."""

    def note(_logger: Any, _method: str, event: structlog.typing.EventDict) -> str:
        process = CURRENT.get()
        fields = {key: value for key, value in event.items() if key not in ("event", "exc_info")}
        error = sys.exc_info()[1] if event.get("exc_info") else None
        trace.log(process.name if process else "-", f"{event['event']}{f' {error!r}' if error else ''}", fields)
        raise structlog.DropEvent

    structlog.configure(
        processors=[note],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        cache_logger_on_first_use=False,
    )
