"""Waiting for something to become true, to a bound."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from chart_lab.steal import Steal

Answer = TypeVar("Answer")

# A limit is never stretched to more than this.
STRETCHED_MOST = 4.0
# Between two looks, seconds; after one that took long, so much longer that looking takes a third of the time.
PAUSE_S, PAUSE_MOST_S = 0.02, 0.5
PAUSE_PER_LOOK = 2.0


class Limit:
    """A limit in seconds that the machine was there: what the hypervisor takes of the processors does not count."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._began = Steal.now()

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        elapsed_s = time.monotonic() - self._began.at_s
        if elapsed_s <= self._limit_s:
            return False
        share = Steal.now().cores_since(self._began) / (os.cpu_count() or 1)
        return elapsed_s > STRETCHED_MOST * self._limit_s or elapsed_s * (1 - share) > self._limit_s


def poll(look: Callable[[], Answer], good: Callable[[Answer], object] = bool, limit_s: float = 10.0) -> Answer:
    """Look until the answer is good; the last answer in any case. Every 20 ms, and more rarely where a look starts
    programs, which would take the processors from what is looked at.
    """
    limit = Limit(limit_s)
    while True:
        began_s = time.monotonic()
        answer = look()
        if good(answer) or limit.over:
            return answer
        time.sleep(min(PAUSE_MOST_S, max(PAUSE_S, PAUSE_PER_LOOK * (time.monotonic() - began_s))))


def until(condition: Callable[[], Answer], what: str, limit_s: float = 30.0) -> Answer:
    """`poll` until the answer is true and return it; AssertionError with ``what`` after the limit."""
    answer = poll(condition, limit_s=limit_s)
    assert answer, f"not within {limit_s:g} s: {what}"
    return answer


async def eventually(condition: Callable[[], Any] | Callable[[], Awaitable[Any]], limit_s: float = 10.0) -> Any:
    """Ask every 20 ms until the answer is true, and return it; AssertionError after the limit."""
    limit = Limit(limit_s)
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if limit.over:
            msg = f"not within {limit_s:g} s: {inspect.getsource(condition).strip()}"
            raise AssertionError(msg)
        await asyncio.sleep(0.02)
