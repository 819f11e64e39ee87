"""Waiting for something to become true, to a bound."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any


async def eventually(condition: Callable[[], Any] | Callable[[], Awaitable[Any]], limit_s: float = 10.0) -> Any:
    """Ask every 20 ms until the answer is true, and return it; AssertionError after the limit."""
    end = time.monotonic() + limit_s
    while True:
        answer = condition()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        if time.monotonic() > end:
            msg = f"not within {limit_s:g} s: {inspect.getsource(condition).strip()}"
            raise AssertionError(msg)
        await asyncio.sleep(0.02)
