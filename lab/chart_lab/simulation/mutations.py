"""Rules broken on purpose, to see that the simulation notices: each breaks one rule while it is applied."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from google.protobuf.message import Message

from chart.reservations.decisions import draining, in_band
from chart.reservations.decisions.reservation import Outcome, Reservation
from chart.v1.rate_request_pb2 import ServiceState
from chart_lab.simulation.database import Database, Transaction
from chart_lab.simulation.repository import Repository

Patch = contextlib.AbstractContextManager[Any]


@dataclass(frozen=True)
class Mutation:
    """A way to break a rule, and the checker's rules of which one has to notice."""

    apply: Callable[[], Patch]
    noticed_as: tuple[str, ...]


def _skip_the_link_locks() -> Patch:
    """Admission reads what is committed without locking the links."""

    async def nothing(self: Repository, transaction: Transaction, link_ids: object) -> None:
        await transaction.pause()

    return mock.patch.object(Repository, "_lock_links", nothing)


def _skip_the_request_locks() -> Patch:
    """Requests are read without being locked: of two changes at once one is lost."""

    async def unlocked(
        self: Repository, transaction: Transaction, request_ids: Iterable[str]
    ) -> dict[str, Reservation]:
        found = {one: transaction.read("rate_request", one) for one in sorted(set(request_ids))}
        await transaction.pause()
        return {one: row["reservation"] for one, row in found.items() if row is not None}

    return mock.patch.object(Repository, "_lock_requests", unlocked)


def _drop_the_outbox() -> Patch:
    """Now and then a record that should go out is not queued."""
    queue = Repository._queue

    async def forgetful(
        self: Repository, transaction: Transaction, topic: str, key: str, record: Message | None
    ) -> None:
        if self._database.numbers.random() > 0.15:
            await queue(self, transaction, topic, key, record)

    return mock.patch.object(Repository, "_queue", forgetful)


def _commit_late() -> Patch:
    """The answer goes out before the commit: what is under way when the server dies is lost."""
    apply = Database.apply

    def lazy(self: Database, transaction: Transaction) -> None:
        self.loop.call_later(0.5, lambda: apply(self, transaction) if self.up else None)

    return mock.patch.object(Database, "apply", lazy)


def _leases_for_nothing() -> Patch:
    """What may be drawn in band is not committed."""
    return mock.patch.object(in_band.Lease, "commitments", property(lambda self: ()))


def _let_go_at_once() -> Patch:
    """What is released is anybody's at once, although nodes may apply it still."""
    return mock.patch.object(draining, "settle", lambda network, ledger, outcomes, *_: tuple(outcomes))


def _losers_untold() -> Patch:
    """Who lost its rate is not told, and keeps its grant."""
    tell = Repository._tell

    async def quietly(self: Repository, transaction: Transaction, outcome: Outcome) -> None:
        if outcome.reservation.service_state == ServiceState.SERVICE_STATE_GRANTED:
            await tell(self, transaction, outcome)

    return mock.patch.object(Repository, "_tell", quietly)


def _applications_not_called() -> Patch:
    """Now and then a notice to an application is not stored."""
    notice = Repository._notice

    async def forgetful(self: Repository, transaction: Transaction, one: Reservation, event: str) -> None:
        if self._database.numbers.random() > 0.5:
            await notice(self, transaction, one, event)

    return mock.patch.object(Repository, "_notice", forgetful)


def _keys_forgotten() -> Patch:
    """A repeated call is a new one."""

    async def unknown(self: Repository, transaction: Transaction, key: object) -> None:
        return None

    return mock.patch.object(Repository, "_claim", unknown)


MUTATIONS = {
    "skip-the-link-locks": Mutation(_skip_the_link_locks, ("overcommitted",)),
    "skip-the-request-locks": Mutation(_skip_the_request_locks, ("lost", "stuck", "untold", "overcommitted")),
    "drop-the-outbox": Mutation(_drop_the_outbox, ("lost", "untold")),
    "commit-late": Mutation(_commit_late, ("lost", "overcommitted", "duplicated")),
    "leases-for-nothing": Mutation(_leases_for_nothing, ("overcommitted",)),
    "let-go-at-once": Mutation(_let_go_at_once, ("applied_overcommitted",)),
    "losers-untold": Mutation(_losers_untold, ("untold", "stale", "lost")),
    "applications-not-called": Mutation(_applications_not_called, ("untold",)),
    "keys-forgotten": Mutation(_keys_forgotten, ("duplicated",)),
}


@contextlib.contextmanager
def applied(name: str) -> Iterator[None]:
    """Break a rule; "" breaks none."""
    with MUTATIONS[name].apply() if name else contextlib.nullcontext():
        yield
