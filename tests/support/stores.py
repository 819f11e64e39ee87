"""What reservations over any database has to keep: stories for any implementation of `Store`. The database in
memory of the simulation is told them: what it finds is worth as much as it is like PostgreSQL.

Each story begins with three nodes in a line, links of 100 Mb/s of which 80 may be committed, and nothing reserved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import pytest

from chart.common.rpc_errors import RefusalError
from chart.reservations.decisions.rates import Change
from chart.v1 import flow_grant_pb2
from chart.v1 import rate_request_pb2 as rr
from support.reservations import MEGA, ask


class Store(Protocol):
    """Two replicas of reservations over one database."""

    async def create(
        self, specification: rr.RateRequestSpecification, key: str, replica: int = 0
    ) -> rr.RateRequest: ...

    async def release(self, request_id: str, owner: str = "alice", replica: int = 0) -> rr.RateRequest: ...

    async def commit(self, request_id: str) -> rr.RateRequest: ...

    async def change(self, request_id: str, wanted: Change) -> rr.RateRequest | None:
        """None: there is no room, it stays as it was."""
        ...

    async def get(self, request_id: str) -> rr.RateRequest: ...

    async def confirm(self, grant: flow_grant_pb2.FlowGrant, node: str, *, removed: bool = False) -> None:
        """A node reports that it applied a grant, or removed it."""
        ...

    def grant(self, request_id: str) -> flow_grant_pb2.FlowGrant | None:
        """As it now stands on the stream."""
        ...

    async def committed(self) -> dict[str, int]:
        """What all requests together have committed now, by link."""
        ...


async def until(condition: Callable[[], Awaitable[Any]], what: str, limit_s: float = 10.0) -> None:
    """Ask until the answer is true; AssertionError after the limit, by the loop's clock."""
    loop = asyncio.get_running_loop()
    end = loop.time() + limit_s
    while not await condition():
        assert loop.time() < end, f"not within {limit_s:g} s: {what}"
        await asyncio.sleep(0.05)


async def refused(call: Awaitable[Any]) -> str:
    """The code of a refusal; AssertionError when there is none."""
    with pytest.raises(RefusalError) as caught:
        await call
    return caught.value.refusal.code


async def what_fits_is_committed_and_what_does_not_leaves_nothing(store: Store) -> None:
    made = await store.create(ask(50 * MEGA), "a")
    assert (made.granted_bps, made.lifecycle) == (50 * MEGA, rr.LIFECYCLE_ACTIVE)
    assert await refused(store.create(ask(40 * MEGA), "b")) == "insufficient-capacity"
    assert set((await store.committed()).values()) == {50 * MEGA}
    assert (await store.create(ask(30 * MEGA), "c")).granted_bps == 30 * MEGA
    assert set((await store.committed()).values()) == {80 * MEGA}


async def many_at_once_at_two_replicas_never_over_commit(store: Store) -> None:
    answers = await asyncio.gather(
        *(store.create(ask(7 * MEGA), f"k{number}", number % 2) for number in range(20)), return_exceptions=True
    )
    granted = [one for one in answers if isinstance(one, rr.RateRequest)]
    assert len(granted) == 11
    assert {one.refusal.code for one in answers if isinstance(one, RefusalError)} == {"insufficient-capacity"}
    assert set((await store.committed()).values()) == {77 * MEGA}


async def a_key_gives_its_answer_again_and_nothing_else(store: Store) -> None:
    answers = await asyncio.gather(*(store.create(ask(9 * MEGA), "k", number % 2) for number in range(6)))
    assert len({one.id for one in answers}) == 1
    assert await refused(store.create(ask(8 * MEGA), "k")) == "idempotency-key-reused"
    # A refusal is not kept: the same may be granted later.
    assert await refused(store.create(ask(75 * MEGA), "late")) == "insufficient-capacity"
    await store.release(answers[0].id)
    assert (await store.create(ask(75 * MEGA), "late")).granted_bps == 75 * MEGA


async def what_is_released_is_free_and_its_grant_gone(store: Store) -> None:
    made = await store.create(ask(80 * MEGA), "a")

    async def granted() -> bool:
        return store.grant(made.id) is not None

    await until(granted, "the grant is on the stream")
    assert await refused(store.release(made.id, "mallory")) == "not-found"
    assert (await store.release(made.id)).lifecycle == rr.LIFECYCLE_RELEASED
    assert (await store.release(made.id, replica=1)).lifecycle == rr.LIFECYCLE_RELEASED
    assert not any((await store.committed()).values())

    async def gone() -> bool:
        return store.grant(made.id) is None

    await until(gone, "the grant is gone")
    assert (await store.create(ask(80 * MEGA), "b")).granted_bps == 80 * MEGA


async def a_change_that_does_not_fit_changes_nothing(store: Store) -> None:
    one = await store.create(ask(30 * MEGA), "a")
    await store.create(ask(30 * MEGA), "b")
    assert await store.change(one.id, Change(guaranteed_bps=60 * MEGA)) is None
    assert (await store.get(one.id)).granted_bps == 30 * MEGA
    raised = await store.change(one.id, Change(guaranteed_bps=50 * MEGA))
    assert raised is not None
    assert raised.granted_bps == 50 * MEGA
    assert set((await store.committed()).values()) == {80 * MEGA}
    lowered = await store.change(one.id, Change(guaranteed_bps=10 * MEGA))
    assert lowered is not None
    assert set((await store.committed()).values()) == {40 * MEGA}


async def a_hold_keeps_the_rate_and_gives_no_grant_before_it_is_committed(store: Store) -> None:
    held = await store.create(ask(60 * MEGA, hold=True), "a")
    assert held.lifecycle == rr.LIFECYCLE_HELD
    assert await refused(store.create(ask(30 * MEGA), "b")) == "insufficient-capacity"
    assert store.grant(held.id) is None
    assert (await store.commit(held.id)).lifecycle == rr.LIFECYCLE_ACTIVE
    assert (await store.commit(held.id)).lifecycle == rr.LIFECYCLE_ACTIVE

    async def granted() -> bool:
        grant = store.grant(held.id)
        return grant is not None and grant.guaranteed_bps == 60 * MEGA

    await until(granted, "the grant is on the stream")


async def who_gives_way_is_told_and_gets_it_back(store: Store) -> None:
    low = await store.create(ask(60 * MEGA), "low")
    high = await store.create(ask(50 * MEGA, preemption_priority=5), "high")
    assert high.granted_bps == 50 * MEGA
    lost = await store.get(low.id)
    assert (lost.service_state, lost.granted_bps) == (rr.SERVICE_STATE_PREEMPTED, 0)
    assert set((await store.committed()).values()) == {50 * MEGA}
    await store.release(high.id)

    async def restored() -> bool:
        now = await store.get(low.id)
        return now.granted_bps == 60 * MEGA and now.service_state == rr.SERVICE_STATE_GRANTED

    await until(restored, "the loser has its rate again")
    assert set((await store.committed()).values()) == {60 * MEGA}


async def it_is_enforced_when_every_node_has_said_so(store: Store) -> None:
    made = await store.create(ask(5 * MEGA), "a")

    async def granted() -> bool:
        return store.grant(made.id) is not None

    await until(granted, "the grant is on the stream")
    grant = store.grant(made.id)
    assert grant is not None
    await store.confirm(grant, made.confirming_nodes[0])
    await asyncio.sleep(0.5)
    assert (await store.get(made.id)).enforcement == rr.ENFORCEMENT_PENDING
    await store.confirm(grant, made.confirming_nodes[1])

    async def enforced() -> bool:
        return (await store.get(made.id)).enforcement == rr.ENFORCEMENT_ENFORCED

    await until(enforced, "it is enforced")


async def what_is_let_go_is_waited_for_until_no_node_applies_it(store: Store) -> None:
    low = await store.create(ask(60 * MEGA), "low")
    high = await store.create(ask(50 * MEGA, preemption_priority=5), "high")
    assert (high.granted_bps, high.enforcement) == (50 * MEGA, rr.ENFORCEMENT_PENDING)
    lost = await store.get(low.id)
    assert high.waits_until_us == lost.draining_until_us > 0
    assert list(lost.draining_nodes) == list(low.confirming_nodes)

    async def told(request_id: str, bps: int) -> bool:
        grant = store.grant(request_id)
        return grant is not None and grant.guaranteed_bps == bps

    await until(lambda: told(high.id, 0), "its grant begins without a rate")
    await until(lambda: told(low.id, 0), "the loser's grant is on the stream")
    grant = store.grant(low.id)
    assert grant is not None
    await store.confirm(grant, low.confirming_nodes[0])

    async def one_left() -> bool:
        return list((await store.get(low.id)).draining_nodes) == [low.confirming_nodes[1]]

    await until(one_left, "the first node applies it no more")
    assert await told(high.id, 0)
    await store.confirm(grant, low.confirming_nodes[1], removed=True)
    await until(lambda: told(high.id, 50 * MEGA), "the rate is in force")
    now = await store.get(high.id)
    assert (now.waits_until_us, (await store.get(low.id)).draining_until_us) == (0, 0)


STORIES: tuple[Callable[[Store], Awaitable[None]], ...] = (
    what_fits_is_committed_and_what_does_not_leaves_nothing,
    many_at_once_at_two_replicas_never_over_commit,
    a_key_gives_its_answer_again_and_nothing_else,
    what_is_released_is_free_and_its_grant_gone,
    a_change_that_does_not_fit_changes_nothing,
    a_hold_keeps_the_rate_and_gives_no_grant_before_it_is_committed,
    who_gives_way_is_told_and_gets_it_back,
    it_is_enforced_when_every_node_has_said_so,
    what_is_let_go_is_waited_for_until_no_node_applies_it,
)
