"""Time behind an interface, so that what depends on it is tested without waiting."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    """What services ask the time of."""

    def now_us(self) -> int:
        """Wall clock, microseconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds since some moment; never steps back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        """Wall clock, microseconds since the epoch."""
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        """Seconds since the machine's start."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""
        await asyncio.sleep(seconds)


class FakeClock:
    """A clock that stands still until a test moves it with `advance`."""

    def __init__(self, start_us: int = 1_750_000_000_000_000) -> None:
        self._now_us = start_us
        self._elapsed_us = 0
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_us(self) -> int:
        """Wall clock, microseconds since the epoch."""
        return self._now_us

    def monotonic(self) -> float:
        """Seconds that the test has let pass."""
        return self._elapsed_us / 1e6

    async def sleep(self, seconds: float) -> None:
        """Return once the test has let this much time pass; at once for 0 or less."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        due_us = self._elapsed_us + round(seconds * 1e6)
        heapq.heappush(self._sleepers, (due_us, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let time pass; sleepers wake in order, each at its own moment, and run before the next one wakes."""
        await self._settle()
        end_us = self._elapsed_us + round(seconds * 1e6)
        while self._sleepers and self._sleepers[0][0] <= end_us:
            due_us, _, future = heapq.heappop(self._sleepers)
            self._move_to(due_us)
            if not future.done():
                future.set_result(None)
            await self._settle()
        self._move_to(end_us)
        await self._settle()

    def _move_to(self, elapsed_us: int) -> None:
        self._now_us += elapsed_us - self._elapsed_us
        self._elapsed_us = elapsed_us

    @staticmethod
    async def _settle() -> None:
        """Let every task that can run do so; chains of awaits are short, so a fixed number of turns is enough."""
        for _ in range(20):
            await asyncio.sleep(0)
