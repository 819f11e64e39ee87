"""A replica of reservations in the simulation: its calls and its worker, around the real engine.

What chart.reservations does in rpc.py, streams.py, edges and store is here over simulated I/O; what is decided
(chart.reservations.decisions) is the real code.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import psycopg
import structlog
from ulid import ULID

from chart.common import runtime
from chart.common.compacted import CompactedState
from chart.common.records import Record
from chart.reservations.decisions import admission, engine, in_band, lifecycle, messages, rates, validation
from chart.reservations.decisions.engine import Book, Decision
from chart.reservations.decisions.network import Network, network_of
from chart.reservations.decisions.rates import Change
from chart.reservations.decisions.reservation import Outcome, Reservation, Timing
from chart.v1 import grant_status_pb2, link_load_pb2, rate_request_pb2, topology_pb2
from chart.v1.rate_request_pb2 import RateRequestSpecification
from chart_lab.simulation.broker import SimulatedBroker
from chart_lab.simulation.callbacks import Receivers, SimulatedCallbacks
from chart_lab.simulation.database import Database
from chart_lab.simulation.processes import Process
from chart_lab.simulation.relay import SimulatedRelay
from chart_lab.simulation.repository import Key, Repository

TOPOLOGY = "chart.topology.v1"
GRANT_STATUS = "chart.grant-status.v1"
LINK_LOAD = "chart.link-load.v1"
GROUP = "reservations"
DUE_EVERY_S = 0.3
READMIT_EVERY_S = 1.0
ENTER_EVERY_S = 0.4
LEASE_EVERY_S = 1.0
COMMIT_EVERY_S = 0.5
COUNTERS_EVERY_S = 5.0
RETRY_S = 1.0

_log = structlog.get_logger("chart.reservations")


class Replica:
    """One life of a replica. Calls raise RefusalError, or psycopg.Error when the database cannot do it."""

    def __init__(
        self,
        process: Process,
        broker: SimulatedBroker,
        database: Database,
        timing: Timing,
        rule: in_band.LeaseRule,
        receivers: Receivers,
    ) -> None:
        self._process = process
        self._client = broker.client(process)
        self._repository = Repository(database, process, timing)
        self._relay = SimulatedRelay(database, self._client, process)
        self._callbacks = SimulatedCallbacks(self._repository, process, receivers)
        self._timing = timing
        self._rule = rule
        self._topology: CompactedState
        self._network: Network | None = None
        self._drawn_bps: dict[str, int] = {}
        self._news = asyncio.Event()
        # What each node said last of each request, and when: counters alone are stored now and then only.
        self._seen: dict[tuple[str, str], tuple[tuple[int, int, str, int], float]] = {}

    async def open(self) -> None:
        """Learn the topology; before that every request would be refused as unknown."""
        self._topology = await self._client.compacted(TOPOLOGY)

    async def run(self) -> None:
        """What it does by itself."""
        await runtime.run_together(
            self._follow_topology(),
            self._take_statuses(),
            self._take_loads(),
            self._again_and_again(DUE_EVERY_S, self._act_when_due),
            self._again_and_again(READMIT_EVERY_S, self._readmit),
            self._again_and_again(ENTER_EVERY_S, self._enter_force),
            self._again_and_again(LEASE_EVERY_S, self._lease),
            self._relieve_on_news(),
            self._relay.run(),
            self._callbacks.run(),
        )

    @property
    def network(self) -> Network:
        """As this replica knows it now."""
        if self._network is None:
            self._network = network_of(cast("list[tuple[str, topology_pb2.TopologyEntity]]", self._topology.items()))
        return self._network

    async def create(
        self, owner: str, specification: RateRequestSpecification, key: str
    ) -> rate_request_pb2.RateRequest:
        """Ask for a rate."""
        now_us = self._process.clock.now_us()
        network = self.network
        checked = validation.check(specification, network, now_us)
        identity = str(ULID())

        def decide(book: Book) -> Decision:
            return engine.create(book, identity, owner, checked, now_us, "", self._timing)

        links = admission.candidate_link_ids(network, checked.ask)
        fingerprint = Key(owner, key, validation.body_hash(specification))
        return await self._repository.create(network, links, decide, fingerprint)

    async def preview(self, specification: RateRequestSpecification) -> bool:
        """Whether the request would be granted now without anybody giving way."""
        now_us = self._process.clock.now_us()
        network = self.network
        ask = validation.check(specification, network, now_us).ask
        ledger = await self._repository.ledger(admission.candidate_link_ids(network, ask))
        return isinstance(admission.admit(network, ledger, ask), admission.Granted)

    async def release(self, owner: str, request_id: str) -> rate_request_pb2.RateRequest:
        """Release a request."""
        return await self._change(owner, request_id, lambda one, now_us: lifecycle.release(one, now_us, self._timing))

    async def commit(self, owner: str, request_id: str) -> rate_request_pb2.RateRequest:
        """Commit a held request."""
        return await self._change(owner, request_id, lambda one, now_us: lifecycle.commit(one, now_us, self._timing))

    async def _change(
        self, owner: str, request_id: str, change: Callable[[Reservation, int], Outcome | None]
    ) -> rate_request_pb2.RateRequest:
        now_us = self._process.clock.now_us()
        changed = await self._repository.change(self.network, request_id, owner, lambda one: change(one, now_us))
        return messages.rate_request(changed)

    async def change(self, owner: str, request_id: str, wanted: Change) -> rate_request_pb2.RateRequest | None:
        """Change in service; None: no room, it stays as it was. What makes no sense raises RefusalError."""
        now_us = self._process.clock.now_us()
        network = self.network
        before = await self._repository.get(request_id, owner)
        validation.check_changed(rates.asked_anew(before, wanted), wanted.of_rate, 0, now_us)
        links = {held.link_id for held in before.commitments} | set(before.link_ids)

        def decide(book: Book) -> Decision:
            if not book.reservations[request_id].live:
                return Decision()
            return engine.change(book, request_id, wanted, now_us, self._timing)

        decision = await self._repository.decide(network, links, decide, request_ids=[request_id])
        if not decision.outcomes:
            return None
        return messages.rate_request(decision.outcomes[-1].reservation)

    async def _follow_topology(self) -> None:
        async for _ in self._topology.subscribe_changes():
            self._network = None
            self._news.set()

    async def _relieve_on_news(self) -> None:
        """Links that shrank are relieved, at once and again after a while: other replicas may know later."""

        async def relieve() -> None:
            now_us = self._process.clock.now_us()
            network = self.network
            every = await self._repository.every()
            links = {held.link_id for one in every for held in one.commitments} | set(network.links)
            ledger = await self._repository.ledger(links)
            if not engine.overcommitted(Book(network, ledger), sorted(links), now_us):
                return

            def decide(book: Book) -> Decision:
                over = engine.overcommitted(book, sorted(links), now_us)
                return engine.relieve(book, over, now_us, self._timing) if over else Decision()

            decision = await self._repository.decide(network, links, decide, holders=True)
            for outcome in decision.outcomes:
                _log.info("a link shrank", request=outcome.reservation.id, action=outcome.action)

        while True:
            try:
                await relieve()
            except psycopg.Error as error:
                _log.warning("relief waits for the database", reason=str(error))
            self._news.clear()
            try:
                async with asyncio.timeout(RETRY_S):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _again_and_again(self, every_s: float, step: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await step()
            except psycopg.Error as error:
                _log.warning("work waits for the database", reason=str(error))
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(every_s)

    async def _act_when_due(self) -> None:
        now_us = self._process.clock.now_us()
        due = [one for one in await self._repository.every() if one.due_at_us <= now_us]
        for one in sorted(due, key=lambda one: one.due_at_us):
            await self._repository.change(
                self.network, one.id, "", lambda found: lifecycle.at_due(found, now_us, self._timing)
            )

    async def _readmit(self) -> None:
        """Those that lack their rate get what is free, the highest rank first."""
        lacking = [one for one in await self._repository.every() if one.lacking]
        for one in sorted(lacking, key=lambda one: (-one.rank, one.created_at_us)):
            now_us = self._process.clock.now_us()
            network = self.network
            choices = admission.shortest_path_links(network, one.source_node, one.destination_node)
            links = {link.id for chosen in choices.values() for link in chosen} | set(one.link_ids)

            def decide(book: Book, request_id: str = one.id, now_us: int = now_us) -> Decision:
                if not book.reservations[request_id].lacking:
                    return Decision()
                return engine.readmit(book, request_id, now_us, self._timing)

            decision = await self._repository.decide(network, links, decide, request_ids=[one.id])
            for outcome in decision.outcomes:
                _log.info("admitted anew", request=outcome.reservation.id, action=outcome.action)

    async def _enter_force(self) -> None:
        """Those whose rates wait for what drains."""
        for one in [one for one in await self._repository.every() if one.waits_until_us]:
            now_us = self._process.clock.now_us()

            def decide(book: Book, request_id: str = one.id, now_us: int = now_us) -> Decision:
                outcome = engine.enter_force(book, request_id, now_us, self._timing)
                return Decision(() if outcome is None else (outcome,))

            links = [held.link_id for held in one.commitments]
            await self._repository.decide(self.network, links, decide, request_ids=[one.id])

    async def _lease(self) -> None:
        """What may be drawn in band on each link."""
        known = await self._repository.leases()
        for link_id in sorted(self.network.links):
            now_us = self._process.clock.now_us()
            drawn_bps = self._drawn_bps.get(link_id, 0)
            if link_id in self.network.links and in_band.due(known.get(link_id), drawn_bps, now_us):
                await self._repository.renew_lease(self.network, link_id, drawn_bps, now_us, self._rule)

    async def _take_loads(self) -> None:
        async with self._client.subscribe([LINK_LOAD], start="latest") as loads:
            async for record in loads:
                report = cast(link_load_pb2.LinkLoadReport, record.value)
                self._drawn_bps.update({load.link_id: load.in_band_committed_bps for load in report.links})

    async def _take_statuses(self) -> None:
        """A status is committed after its effect is."""
        async with self._client.subscribe([GRANT_STATUS], group=GROUP, start="earliest") as statuses:
            taken: dict[int, Record] = {}

            async def commit() -> None:
                while True:
                    await asyncio.sleep(COMMIT_EVERY_S)
                    newest = list(taken.values())
                    taken.clear()
                    for record in newest:
                        await statuses.commit(record)

            async with asyncio.TaskGroup() as group:
                group.create_task(commit())
                async for record in statuses:
                    await self._take(cast(grant_status_pb2.GrantStatus, record.value))
                    taken[record.partition] = record

    async def _take(self, status: grant_status_pb2.GrantStatus) -> None:
        now_us, now_s = self._process.clock.now_us(), self._process.clock.monotonic()
        place = (status.request_id, status.node)
        outcomes: list[Outcome] = []
        word = (status.generation, int(status.state), status.reason, status.kernel_rate_bps)
        if place in self._seen and self._seen[place][0] == word and now_s - self._seen[place][1] < COUNTERS_EVERY_S:
            return
        while True:
            try:
                outcomes = await self._repository.observe(
                    [status.request_id], lambda one: lifecycle.on_statuses(one, [status], now_us, self._timing)
                )
            except psycopg.Error as error:
                _log.warning("grant statuses wait for the database", reason=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                self._seen[place] = (word, now_s)
                break
        over = [(outcome.reservation.id, part) for outcome in outcomes for part in outcome.drained]
        if over:
            try:
                await self._repository.drained(self.network, over)
            except psycopg.Error as error:
                _log.warning("what drained is free a little later", reason=str(error))
