"""Background work of a replica: take the statuses of agents, act when a moment is reached, restore rates to those who
lost them, admit anew when the network changes. The outbox carries everything out.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import cast

import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter, Gauge, Histogram

from chart.common import runtime, telemetry
from chart.common.clock import Clock, SystemClock
from chart.common.retries import until_done
from chart.common.rpc_errors import RefusalError
from chart.common.streams import Broker, Record, Subscription
from chart.reservations.decisions import lifecycle, messages, rates, validation
from chart.reservations.decisions.jobs import Drained, EnterForce, Readmit, Relieve, Step
from chart.reservations.decisions.ledger import Drain
from chart.reservations.decisions.network import Network
from chart.reservations.decisions.reservation import Outcome, Reservation, Timing
from chart.reservations.decisions.windows import FOREVER_US
from chart.reservations.edges.batches import Batches
from chart.reservations.edges.network_view import (
    ESTIMATE,
    NODE_STATE,
    PATH_TABLE,
    SETTINGS,
    TENANT,
    TOPOLOGY,
    NetworkView,
)
from chart.reservations.edges.rerouting import Rerouting
from chart.reservations.store import holders, previews
from chart.reservations.store.repository import SERVICE_ACTOR, Repository
from chart.v1 import grant_status_pb2
from chart.v1.flow_grant_pb2 import FlowSelector
from chart.v1.grant_status_pb2 import GrantState
from chart.v1.rate_request_pb2 import Enforcement, Lifecycle

GRANT_STATUS = "chart.grant-status.v1"

DUE_EVERY_S = 0.2
DUE_BATCH = 100
# Statuses of one transaction, and how long a batch waits for one more: the nodes of a path confirm within milliseconds
# of each other, and a transaction for each costs more than this.
STATUS_BATCH = 250
GATHER_S = 0.008
# How often what was taken is committed: a commit is a round trip to the broker that no confirmation has to wait for,
# and taking a status again changes nothing.
COMMIT_EVERY_S = 0.5
HOUSEKEEPING_S = 10.0
RETRY_S = 1.0
# Counters of a grant whose state does not change are stored this often.
COUNTERS_EVERY_US = 5_000_000
REMEMBERED_STATUSES = 200_000
# How often requests that lack their rate are tried again although nothing is known to be freed, and how many at once.
RESTORE_EVERY_S = 2.0
RESTORE_BATCH = 50
# Links that are looked at in one transaction when the network changed.
RELIEVE_LINKS = 16
# Requests that are looked at together when nodes have other addresses.
READDRESS_BATCH = 250
FORGET_PAST_EVERY = 60
# What nodes hold is counted anew that often, and at the start.
RECOUNT_EVERY = 360

STATUSES = Counter("chart_reservations_grant_statuses_total", "Grant statuses taken", ["state"])
LIVE = Gauge("chart_reservations_live_requests", "Requests by lifecycle and enforcement", ["lifecycle", "enforcement"])
DUE = Counter("chart_reservations_due_requests_total", "Requests handled because a moment was reached")
CONFIRMED = Histogram(
    "chart_reservations_confirmation_seconds",
    "From the start of a request to the last confirmation that it needed",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)

# Generation, state, reason, kernel rate, whether flows match, where packets leave.
_Print = tuple[int, int, str, int, bool, tuple[str, ...]]

_log = structlog.get_logger("chart.reservations")


class Worker:
    """What a replica does by itself: take statuses, and act when a moment is reached."""

    def __init__(
        self,
        broker: Broker,
        repository: Repository,
        batches: Batches,
        view: NetworkView,
        timing: Timing,
        group: str,
        clock: Clock | None = None,
        changed: Callable[[Iterable[str]], None] = lambda _: None,
    ) -> None:
        """`changed` is told the requests of which changes were stored."""
        self._changed = changed
        self._broker = broker
        self._repository = repository
        self._batches = batches
        self._rerouting = Rerouting(batches, repository, timing)
        self._freed = asyncio.Event()
        self._view = view
        self._timing = timing
        self._group = group
        self._clock = clock or SystemClock()
        self._seen: dict[tuple[str, str], tuple[_Print, int]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        await runtime.run_together(
            self._view.follow(TOPOLOGY),
            self._view.follow(ESTIMATE),
            self._view.follow(NODE_STATE),
            self._view.follow(TENANT),
            self._view.follow(SETTINGS),
            self._view.follow(PATH_TABLE),
            self.take_statuses(),
            self._act_when_due(),
            self._restore_when_freed(),
            self._follow_network(),
            self._keep_house(),
        )

    def freed(self) -> None:
        """Something was given back: somebody may get it."""
        self._freed.set()

    async def take_statuses(self) -> None:
        """Follow chart.grant-status.v1 in batches; a status is committed after its effect is."""
        async with self._broker.subscribe([GRANT_STATUS], group=self._group, start="earliest") as statuses:
            taken: dict[int, Record] = {}
            committing = asyncio.create_task(self._commit(statuses, taken), name="commit grant statuses")
            try:
                async for first in statuses:
                    batch = [first, *await _more(statuses)]
                    await self._take([cast(grant_status_pb2.GrantStatus, one.value) for one in batch if one.value])
                    taken.update({record.partition: record for record in batch})
            finally:
                committing.cancel()
                await asyncio.gather(committing, return_exceptions=True)

    async def _commit(self, statuses: Subscription, taken: dict[int, Record]) -> None:
        """Commit the newest status that was taken of each partition, again and again."""
        while True:
            await self._clock.sleep(COMMIT_EVERY_S)
            newest = dict(taken)
            taken.clear()
            for last in newest.values():
                await statuses.commit(last)

    async def _take(self, statuses: list[grant_status_pb2.GrantStatus]) -> None:
        """Apply a batch; of several words of one node about one grant the last counts."""
        now_us = self._clock.now_us()
        fresh: dict[tuple[str, str], grant_status_pb2.GrantStatus] = {}
        for status in statuses:
            seen = self._seen.get((status.request_id, status.node))
            # A removal that is told again may answer a release that came in between.
            again = status.state == GrantState.GRANT_STATE_REMOVED
            if again or seen is None or seen[0] != _print_of(status) or now_us - seen[1] >= COUNTERS_EVERY_US:
                fresh[status.request_id, status.node] = status
        if not fresh:
            return
        await self._until_taken(functools.partial(self._apply, fresh, now_us), "grant statuses wait for the database")
        if len(self._seen) >= REMEMBERED_STATUSES:
            self._seen.clear()
        for key, status in fresh.items():
            STATUSES.labels(state=_short(GrantState.Name(status.state), "GRANT_STATE_")).inc()
            self._seen[key] = (_print_of(status), now_us)

    async def _until_taken(self, work: Callable[[], Awaitable[None]], words: str) -> None:
        """Try until the database takes it."""

        def told(error: Exception, _: float) -> None:
            _log.warning(words, reason=str(error))

        await until_done(work, (psycopg.Error, psycopg_pool.PoolTimeout), told, RETRY_S, sleep=self._clock.sleep)

    async def _apply(self, fresh: dict[tuple[str, str], grant_status_pb2.GrantStatus], now_us: int) -> None:
        by_request: dict[str, list[grant_status_pb2.GrantStatus]] = {}
        for (request_id, _), status in fresh.items():
            by_request.setdefault(request_id, []).append(status)
        changes = await self._repository.change_many(
            by_request, lambda one: lifecycle.on_statuses(one, by_request[one.id], now_us, self._timing), now_us
        )
        # Whoever waits for the confirmation is not called for a part of it, but sees that when it looks by itself.
        self._changed(before.id for before, outcome in changes if not lifecycle.is_part(before, outcome.reservation))
        await self._let_go([(before.id, part) for before, outcome in changes for part in outcome.drained])
        await self._follow_packets([(before, outcome.reservation) for before, outcome in changes])
        for before, outcome in changes:
            if outcome.announce:
                self._note(before, outcome.reservation, by_request[before.id], now_us)

    async def _let_go(self, parts: list[tuple[str, Drain]]) -> None:
        """No node applies these rates any more: whoever waits for them may get them. What cannot be stored now ends by
        itself when the grants' validity does.
        """
        if not parts:
            return
        try:
            await self._batches.submit(Drained(tuple(parts)))
        except psycopg.Error as error:
            _log.warning("what drained is free a little later", reason=str(error))
        self.freed()

    async def _follow_packets(self, changes: list[tuple[Reservation, Reservation]]) -> None:
        """Commitments are where packets were seen to go. What cannot be stored now is tried with the next report."""
        try:
            await self._rerouting.observe(changes, self._view.network)
        except psycopg.Error as error:
            _log.warning("packets that leave their path are followed a little later", reason=str(error))

    def _note(
        self, before: Reservation, after: Reservation, statuses: list[grant_status_pb2.GrantStatus], now_us: int
    ) -> None:
        """Trace, log and count a change of what is confirmed."""
        headers = {"traceparent": after.traceparent} if after.traceparent else None
        enforcement = Enforcement.Name(Enforcement.ValueType(after.enforcement))
        said = {status.node: GrantState.Name(status.state) for status in statuses}
        nodes, states = list(said), list(said.values())
        with telemetry.span(
            "grant confirmed", headers, request_id=after.id, nodes=nodes, states=states, enforcement=enforcement
        ):
            _log.info(
                "nodes reported on a grant", request=after.id, said=said, enforcement=enforcement, reason=after.reason
            )
        if after.enforcement == Enforcement.ENFORCEMENT_ENFORCED and not before.enforced_at_us:
            CONFIRMED.observe(max(0, now_us - after.start_us) / 1e6)

    async def _act_when_due(self) -> None:
        while True:
            try:
                more = await self.act(self._clock.now_us()) == DUE_BATCH
            except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
                _log.warning("renewals wait for the database", reason=str(error))
                more = False
                await self._clock.sleep(RETRY_S)
            if not more:
                await self._clock.sleep(DUE_EVERY_S)

    async def act(self, now_us: int) -> int:
        """Handle requests whose moment has come; returns how many, at most a batch."""

        frees = False

        def decide(reservation: Reservation) -> Outcome | None:
            nonlocal frees
            outcome = lifecycle.at_due(reservation, now_us, self._timing)
            frees = frees or (outcome is not None and outcome.frees_capacity)
            if outcome is not None and outcome.reservation.enforcement != reservation.enforcement:
                _log.warning("a request is not enforced", request=reservation.id, reason=outcome.reservation.reason)
            return outcome

        handled, early = await self._repository.take_due(now_us, DUE_BATCH, decide)
        DUE.inc(handled)
        if frees:
            self.freed()
        # Gives a rate back before its time (a hold that was not committed) or starts: links have to be locked for that.
        due = functools.partial(lifecycle.at_due, now_us=now_us, timing=self._timing)
        steps = [Step(request_id, SERVICE_ACTOR, due, self._timing) for request_id in early]
        await asyncio.gather(*(self._batches.submit(step) for step in steps))
        return handled

    async def _restore_when_freed(self) -> None:
        """Try requests that lack their rate whenever something was freed, and from time to time."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._freed.wait(), RESTORE_EVERY_S)
            self._freed.clear()
            try:
                await self.enter_force()
                await self.restore()
            except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
                _log.warning("restoring rates waits for the database", reason=str(error))
                await self._clock.sleep(RETRY_S)

    async def enter_force(self) -> None:
        """Bring rates into force that waited for others to drain."""
        last = ""
        while True:
            found = await self._repository.waiting(RESTORE_BATCH, last)
            submitted = (self._batches.submit(EnterForce(one, self._timing)) for one in found)
            for result in await asyncio.gather(*submitted, return_exceptions=True):
                if isinstance(result, BaseException):
                    if not isinstance(result, RefusalError):
                        raise result
                elif result.request is not None and result.decision.outcomes:
                    _log.info("what a request waited for is free", **messages.logged(result.request))
            if len(found) < RESTORE_BATCH:
                return
            last = found[-1]

    async def restore(self) -> int:
        """Give every request that lacks its rate what there is, the highest rank first; returns how many got more."""
        got = 0
        after: tuple[int, int, str] | None = None
        while True:
            found = await self._repository.lacking(RESTORE_BATCH, after)
            for _, _, request_id in found:
                try:
                    result = await self._batches.submit(Readmit(request_id, self._timing))
                except RefusalError:
                    continue
                if not result.decision.outcomes or result.request is None:
                    continue
                if result.decision.granted is None:
                    _log.info("a request without its rate runs on elsewhere", **messages.logged(result.request))
                    continue
                got += 1
                others = result.decision.losers
                _log.info("a request has its rate again", **messages.logged(result.request), others=others)
            if len(found) < RESTORE_BATCH:
                return got
            after = found[-1]

    async def _follow_network(self) -> None:
        """Admit anew what goes over links that failed or shrank."""
        async for before, after in self._view.changes():
            reroute = functools.partial(self._rerouting.follow, before, after)
            await self._until_taken(reroute, "a change of routes waits for the database")
            relieve = functools.partial(self.relieve, before, after)
            await self._until_taken(relieve, "a change of the network waits for the database")
            readdress = functools.partial(self.readdress, before, after)
            await self._until_taken(readdress, "a change of addresses waits for the database")
            self.freed()

    async def relieve(self, before: Network, after: Network) -> None:
        """Look at the links that may commit less than before; with nothing known before, at all of them.

        Those that have no more committed than they may are left out before anything is locked: after a start these are
        nearly all, and admissions would wait.
        """
        # Transactions that decided by the network before are over once this one is.
        await self._batches.submit(Relieve((), (), self._timing))
        used = await self._repository.committed_links()
        shrunk = []
        for link_id in used:
            old, new = before.links.get(link_id), after.links.get(link_id)
            if new is None or not before.links or old is None or new.admissible_bps < old.admissible_bps:
                shrunk.append(link_id)
        shrunk = await previews.crowded(self._repository.pool, after, shrunk, self._clock.now_us())
        for begin in range(0, len(shrunk), RELIEVE_LINKS):
            some = tuple(shrunk[begin : begin + RELIEVE_LINKS])
            async with self._repository.pool.connection() as connection:
                now_us = self._clock.now_us()
                holding = await holders.holder_ids(connection, some, holders.ANY_RANK, now_us, FOREVER_US)
            if not holding:
                continue
            result = await self._batches.submit(Relieve(some, tuple(sorted(holding)), self._timing))
            for outcome in result.decision.outcomes:
                one = outcome.reservation
                _log.warning(
                    "a link failed or shrank: a request was admitted anew",
                    **messages.logged(one),
                    reason=one.service_reason,
                )

    async def readdress(self, before: Network, after: Network) -> None:
        """Requests between nodes are for all their addresses: give the grants those that the nodes have now. With
        nothing known before all requests are looked at.
        """
        if before.nodes == after.nodes:
            return
        nodes = [
            node
            for node in after.nodes
            if node not in before.nodes or before.prefixes_of(node) != after.prefixes_of(node)
        ]
        last = ""
        while nodes:
            found = await self._repository.between(nodes, READDRESS_BATCH, last)
            wanted: dict[str, FlowSelector] = {}
            for identity, specification, selector in found:
                try:
                    now = validation.selector_of(specification, after)
                except RefusalError as error:
                    reason = error.refusal.detail
                    _log.warning("a request keeps its addresses", request=identity, reason=reason)
                    continue
                if now != selector:
                    wanted[identity] = now
            if wanted:
                await self._store_readdressed(wanted)
            if len(found) < READDRESS_BATCH:
                return
            last = found[-1][0]

    async def _store_readdressed(self, wanted: dict[str, FlowSelector]) -> None:
        """Grants with other selectors take other room at nodes."""

        def step(now: FlowSelector) -> Callable[[Reservation], Outcome | None]:
            return lambda one: rates.readdressed(one, now, self._clock.now_us(), self._timing)

        steps = [Step(identity, SERVICE_ACTOR, step(now), self._timing) for identity, now in wanted.items()]
        for result in await asyncio.gather(*map(self._batches.submit, steps), return_exceptions=True):
            if isinstance(result, BaseException):
                if not isinstance(result, RefusalError):
                    raise result
            elif result.request is not None and result.decision.outcomes:
                words = messages.selector_words(result.request.selector)
                _log.info("a node of a request has other addresses", request=result.request.id, flows=words)

    async def _keep_house(self) -> None:
        for turn in itertools.count():
            try:
                await self._repository.keep_house(self._clock.now_us(), past=turn % FORGET_PAST_EVERY == 0)
                if turn % RECOUNT_EVERY == 0:
                    await self._repository.recount_nodes()
                counts = await self._repository.counts()
            except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
                _log.warning("housekeeping waits for the database", reason=str(error))
            else:
                LIVE.clear()
                for (lifecycle, enforcement), number in counts.items():
                    LIVE.labels(
                        lifecycle=_short(Lifecycle.Name(Lifecycle.ValueType(lifecycle)), "LIFECYCLE_"),
                        enforcement=_short(Enforcement.Name(Enforcement.ValueType(enforcement)), "ENFORCEMENT_"),
                    ).set(number)
            await self._clock.sleep(HOUSEKEEPING_S)


async def _more(statuses: Subscription) -> list[Record]:
    """What else is there already, up to a batch."""
    more: list[Record] = []
    while len(more) < STATUS_BATCH:
        try:
            more.append(await asyncio.wait_for(anext(statuses), GATHER_S))
        except TimeoutError:
            break
    return more


def _print_of(status: grant_status_pb2.GrantStatus) -> _Print:
    """What makes a status more than new counters."""
    egress = (str(status.egress_against_routes), *(one.link_id for one in status.egress))
    flows = status.matching_flows > 0
    return status.generation, int(status.state), status.reason, status.kernel_rate_bps, flows, egress


def _short(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
