"""The streams of reservations: topology, policy, estimates and grant statuses in; the outbox carries everything
out.
"""

from __future__ import annotations

import asyncio
from typing import cast

import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter, Gauge, Histogram

from chart.common import runtime, telemetry
from chart.common.clock import Clock, SystemClock
from chart.common.streams import Broker, CompactedState, Record, StreamUnavailable, Subscription
from chart.reservations import service
from chart.reservations.network import Network, network_of
from chart.reservations.repository import Repository
from chart.reservations.service import Outcome, Reservation, Timing
from chart.v1 import estimate_pb2, grant_status_pb2, policy_pb2, topology_pb2
from chart.v1.grant_status_pb2 import GrantState
from chart.v1.rate_request_pb2 import Enforcement, Lifecycle

TOPOLOGY = "chart.topology.v1"
POLICY = "chart.policy.v1"
ESTIMATE = "chart.estimate.v1"
GRANT_STATUS = "chart.grant-status.v1"
CAPACITY_METRIC = "capacity_bps"

DUE_EVERY_S = 0.2
DUE_BATCH = 100
# Statuses of one transaction, and how long a batch waits for one more.
STATUS_BATCH = 250
GATHER_S = 0.002
# How often what was taken is committed: a commit is a round trip to the broker that no confirmation has to wait for,
# and taking a status again changes nothing.
COMMIT_EVERY_S = 0.5
HOUSEKEEPING_S = 10.0
RETRY_S = 1.0
# Counters of a grant whose state does not change are stored this often.
COUNTERS_EVERY_US = 5_000_000
REMEMBERED_STATUSES = 200_000

STATUSES = Counter("chart_reservations_grant_statuses_total", "Grant statuses taken", ["state"])
LIVE = Gauge("chart_reservations_live_requests", "Requests by lifecycle and enforcement", ["lifecycle", "enforcement"])
DUE = Counter("chart_reservations_due_requests_total", "Requests handled because a moment was reached")
CONFIRMED = Histogram(
    "chart_reservations_confirmation_seconds",
    "From the start of a request to the last confirmation that it needed",
    buckets=(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10),
)

_log = structlog.get_logger("chart.reservations")


class NetworkView:
    """Topology and policy as they are now; the network is rebuilt when a record changed."""

    def __init__(self) -> None:
        self._states: dict[str, CompactedState] = {}
        self._network: Network | None = None

    async def open(self, broker: Broker) -> None:
        """Read the states to their ends.

        Raises:
            StreamUnavailable: one could not be read.
        """
        for topic in (TOPOLOGY, POLICY, ESTIMATE):
            self._states[topic] = await broker.compacted(topic)

    @property
    def ready(self) -> bool:
        """Whether everything is held."""
        return len(self._states) == 3 and all(state.ready for state in self._states.values())

    async def follow(self, topic: str) -> None:
        """Drop the built network whenever the topic changes.

        Raises:
            StreamUnavailable: the state can no longer be followed.
        """
        async for _ in self._states[topic].subscribe_changes():
            self._network = None
        # The state ended under us: without it every decision would be about the past. The supervisor starts us anew.
        msg = f"the state of {topic} is no longer followed"
        raise StreamUnavailable(msg)

    @property
    def network(self) -> Network:
        """The network of this moment."""
        if self._network is None:
            entities = cast("list[tuple[str, topology_pb2.TopologyEntity]]", self._states[TOPOLOGY].items())
            estimates = (cast(estimate_pb2.Estimate, value) for _, value in self._states[ESTIMATE].items())
            measured = {
                (one.source_node, one.destination_node): one.value
                for one in estimates
                if one.metric == CAPACITY_METRIC and one.value > 0
            }
            self._network = network_of(entities, measured)
        return self._network

    def max_guaranteed_bps(self, node: str) -> int:
        """Greatest guaranteed rate of one request from a node, by its own policy or the default one; 0: no bound."""
        for identity in (node, "default"):
            policy = cast("policy_pb2.Policy | None", self._states[POLICY].get(identity))
            if policy is not None and policy.max_guaranteed_bps:
                return policy.max_guaranteed_bps
        return 0


class Worker:
    """What a replica does by itself: take statuses, and act when a moment is reached."""

    def __init__(
        self,
        broker: Broker,
        repository: Repository,
        view: NetworkView,
        timing: Timing,
        group: str,
        clock: Clock | None = None,
    ) -> None:
        self._broker = broker
        self._repository = repository
        self._view = view
        self._timing = timing
        self._group = group
        self._clock = clock or SystemClock()
        self._seen: dict[tuple[str, str], tuple[tuple[int, int, str, int], int]] = {}

    async def run(self) -> None:
        """Work until cancelled."""
        await runtime.run_together(
            self._view.follow(TOPOLOGY),
            self._view.follow(ESTIMATE),
            self.take_statuses(),
            self._act_when_due(),
            self._keep_house(),
        )

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
            if seen is None or seen[0] != _print_of(status) or now_us - seen[1] >= COUNTERS_EVERY_US:
                fresh[status.request_id, status.node] = status
        if not fresh:
            return
        while True:
            try:
                await self._apply(fresh, now_us)
                break
            except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
                _log.warning("grant statuses wait for the database", reason=str(error))
                await self._clock.sleep(RETRY_S)
        if len(self._seen) >= REMEMBERED_STATUSES:
            self._seen.clear()
        for key, status in fresh.items():
            STATUSES.labels(state=_short(GrantState.Name(status.state), "GRANT_STATE_")).inc()
            self._seen[key] = (_print_of(status), now_us)

    async def _apply(self, fresh: dict[tuple[str, str], grant_status_pb2.GrantStatus], now_us: int) -> None:
        by_request: dict[str, list[grant_status_pb2.GrantStatus]] = {}
        for (request_id, _), status in fresh.items():
            by_request.setdefault(request_id, []).append(status)
        changes = await self._repository.change_many(
            by_request, lambda one: service.on_statuses(one, by_request[one.id], now_us, self._timing)
        )
        for before, outcome in changes:
            if outcome.announce:
                self._note(before, outcome.reservation, by_request[before.id], now_us)

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

        def decide(reservation: Reservation) -> Outcome | None:
            outcome = service.at_due(reservation, now_us, self._timing)
            if outcome is not None and outcome.reservation.enforcement != reservation.enforcement:
                _log.warning("a request is not enforced", request=reservation.id, reason=outcome.reservation.reason)
            return outcome

        handled = await self._repository.take_due(now_us, DUE_BATCH, decide)
        DUE.inc(handled)
        return handled

    async def _keep_house(self) -> None:
        while True:
            try:
                await self._repository.forget_keys(self._clock.now_us())
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


def _print_of(status: grant_status_pb2.GrantStatus) -> tuple[int, int, str, int]:
    """What makes a status more than new counters."""
    return status.generation, int(status.state), status.reason, status.kernel_rate_bps


def _short(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
