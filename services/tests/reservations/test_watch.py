"""Waiting for a request to change."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from chart.common.clock import SystemClock
from chart.reservations.decisions.reservation import Reservation
from chart.reservations.edges import watch
from chart.reservations.edges.watch import Watch
from support.waiting import eventually


class Stored:
    """A request that somebody else may change."""

    def __init__(self) -> None:
        self.revision = 1
        self.reads = 0

    async def read(self) -> Reservation:
        self.reads += 1
        return cast(Reservation, SimpleNamespace(revision=self.revision))


async def test_a_change_is_told_at_once(monkeypatch: Any) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 1000.0)
    stored, one = Stored(), Watch(SystemClock())
    waiting = [asyncio.create_task(one.newer(stored.read, "a", 1, 1000.0)) for _ in range(2)]
    other = asyncio.create_task(one.newer(stored.read, "b", 1, 1000.0))
    await eventually(lambda: stored.reads >= 3)
    # A change that leaves the revision as it is wakes nobody for good.
    one.changed(["a"])
    await eventually(lambda: stored.reads >= 5)
    stored.revision = 2
    one.changed(["a"])
    assert [found.revision for found in await asyncio.gather(*waiting)] == [2, 2]
    assert not other.done()
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    assert one._waiting == {}
    assert one._count == 0


async def test_a_change_by_another_replica_is_found(monkeypatch: Any) -> None:
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.001)
    stored, one = Stored(), Watch(SystemClock())
    waiting = asyncio.create_task(one.newer(stored.read, "a", 1, 1000.0))
    await eventually(lambda: stored.reads >= 3)
    stored.revision = 7
    assert (await waiting).revision == 7


async def test_the_time_ends_and_the_room_is_bounded(monkeypatch: Any) -> None:
    stored, one = Stored(), Watch(SystemClock())
    assert (await one.newer(stored.read, "a", 1, 0.01)).revision == 1
    assert (await one.newer(stored.read, "a", 0, 1000.0)).revision == 1
    monkeypatch.setattr(watch, "MOST_WAITING", 0)
    assert (await one.newer(stored.read, "a", 1, 1000.0)).revision == 1
