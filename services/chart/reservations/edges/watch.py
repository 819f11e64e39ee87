"""Callers that wait for a request to change: told at once of what this replica stores, and looking again from time to
time, since another replica may have stored it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from chart.common.clock import Clock
from chart.reservations.decisions.reservation import Reservation

# How often a waiting caller looks by itself, and how many may wait at once; more are answered at once.
LOOK_EVERY_S = 0.5
MOST_WAITING = 2_000


class Watch:
    """Who waits for which request."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._count = 0

    def changed(self, request_ids: Iterable[str]) -> None:
        """Changes of these requests are stored."""
        for identity in request_ids:
            for event in self._waiting.get(identity, ()):
                event.set()

    async def newer(
        self, read: Callable[[], Awaitable[Reservation]], request_id: str, revision: int, wait_s: float
    ) -> Reservation:
        """The request, as soon as it has another revision; as it is when the time is over."""
        if self._count >= MOST_WAITING:
            return await read()
        event = asyncio.Event()
        self._waiting.setdefault(request_id, set()).add(event)
        self._count += 1
        end = self._clock.monotonic() + wait_s
        try:
            while True:
                # Before reading: what is stored after that sets it again.
                event.clear()
                found = await read()
                left_s = end - self._clock.monotonic()
                if found.revision != revision or left_s <= 0:
                    return found
                try:
                    async with asyncio.timeout(min(LOOK_EVERY_S, left_s)):
                        await event.wait()
                except TimeoutError:
                    continue
        finally:
            self._count -= 1
            self._waiting[request_id].discard(event)
            if not self._waiting[request_id]:
                del self._waiting[request_id]
