"""Commitments follow packets: when nodes report other routes, requests are admitted anew where their packets go."""

from __future__ import annotations

from collections.abc import Iterable

import structlog
from prometheus_client import Counter

from chart.common.counters import from_zero
from chart.reservations.decisions import engine, messages, preemption
from chart.reservations.decisions.jobs import Relieve, Reroute
from chart.reservations.decisions.network import Network
from chart.reservations.decisions.observed import off_path
from chart.reservations.decisions.reservation import Reservation, Timing
from chart.reservations.edges.batches import Batches
from chart.reservations.store.repository import Repository

# Requests that are looked at together, and of those that move how many in one transaction.
LOOK_TOGETHER = 500
MOVE_TOGETHER = 64

MOVED = Counter(
    "chart_reservations_rerouted_requests_total", "Requests admitted anew because their packets took another path"
)

OFF_PATH = Counter(
    "chart_reservations_off_path_requests_total",
    "Requests whose packets nodes saw leave by a link that is not committed",
    ["cause"],
)
AGAINST_ROUTES, ROUTE_CHANGE = "against-routes", "route-change"
from_zero(OFF_PATH, (AGAINST_ROUTES, ROUTE_CHANGE))

_log = structlog.get_logger("chart.reservations")


class Rerouting:
    """Looks at all live requests after a change."""

    def __init__(self, batches: Batches, repository: Repository, timing: Timing) -> None:
        self._batches = batches
        self._repository = repository
        self._timing = timing

    async def follow(self, before: Network, after: Network) -> None:
        """Admit anew the requests whose packets take another path since nodes report other routes, or other links came
        or went.
        """
        same = before.routes == after.routes and before.steering == after.steering
        if not after.routes or (same and _carrying(before) == _carrying(after)):
            return
        # Transactions that decided by the network before are over once this one is.
        await self._batches.submit(Relieve((), (), self._timing))
        # The highest rank chooses first.
        strays = preemption.order(await self._strays(after))[::-1]
        for begin in range(0, len(strays), MOVE_TOGETHER):
            await self._move(strays[begin : begin + MOVE_TOGETHER])

    async def observe(self, changes: Iterable[tuple[Reservation, Reservation]], network: Network) -> None:
        """Admit anew the requests whose packets nodes saw leave elsewhere than their routes say, or do so no more:
        before and after what was reported.
        """
        astray = []
        for before, after in changes:
            seen = off_path(after)
            if seen and not off_path(before):
                OFF_PATH.labels(cause=AGAINST_ROUTES if after.observed else ROUTE_CHANGE).inc()
                _log.warning("packets of a request leave the path of its commitment", request=after.id, seen=seen)
            if (before.observed or after.observed) and engine.strays(network, after):
                astray.append(after)
        if astray:
            await self._move(preemption.order(astray)[::-1])

    async def _move(self, strays: list[Reservation]) -> None:
        result = await self._batches.submit(Reroute(tuple(one.id for one in strays), self._timing))
        MOVED.inc(len(result.decision.outcomes))
        for outcome in result.decision.outcomes:
            one = outcome.reservation
            _log.warning(
                "packets take another path: a request was admitted anew",
                **messages.logged(one),
                reason=one.service_reason,
            )

    async def _strays(self, network: Network) -> list[Reservation]:
        strays: list[Reservation] = []
        last = ""
        while True:
            found = await self._repository.live(LOOK_TOGETHER, last)
            strays += [one for one in found if engine.strays(network, one)]
            if len(found) < LOOK_TOGETHER:
                return strays
            last = found[-1].id


def _carrying(network: Network) -> set[str]:
    return {identity for identity, link in network.links.items() if link.capacity_bps > 0}
