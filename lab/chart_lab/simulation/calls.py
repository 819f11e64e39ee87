"""Calls from applications to replicas: late, lost on the way there or back, sent twice, given up half way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

from chart.common.rpc_errors import RefusalError
from chart_lab.simulation.processes import Process

DEADLINE_S = 3.0


class UnavailableError(Exception):
    """No answer: whether the call had its effect is unknown."""


async def call(process: Process, caller: str, handler: Callable[[], Awaitable[Any]], numbers: random.Random) -> Any:
    """Call a replica and wait for its answer.

    Raises:
        RefusalError: its answer.
        UnavailableError: no answer within the deadline, or the replica could not do it.
    """
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await _exchange(process, caller, handler, numbers)
    except TimeoutError:
        raise UnavailableError(f"{process.name} did not answer within {DEADLINE_S:g} s") from None


async def _exchange(
    process: Process, caller: str, handler: Callable[[], Awaitable[Any]], numbers: random.Random
) -> Any:
    await asyncio.sleep(_way_s(numbers))
    if not process.reaches(caller):
        await asyncio.sleep(DEADLINE_S)
    if not process.alive:
        raise UnavailableError(f"{process.name} refuses connections")
    life = process.life
    task = process.spawn(_handle(handler))
    try:
        answer, error = await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled() or process.life != life:
            raise UnavailableError(f"{process.name} died") from None
        # The caller gave up; most servers learn of it and stop, some are past stopping.
        if numbers.random() < 0.5:
            task.cancel()
        raise
    await asyncio.sleep(_way_s(numbers))
    if not process.reaches(caller) or process.life != life:
        raise UnavailableError(f"the answer of {process.name} was lost")
    if isinstance(error, RefusalError):
        raise error
    if error is not None:
        raise UnavailableError(f"{process.name}: {error!r}")
    return answer


async def _handle(handler: Callable[[], Awaitable[Any]]) -> tuple[Any, Exception | None]:
    """The server's side: errors travel as answers."""
    try:
        return await handler(), None
    except Exception as error:
        return None, error


def _way_s(numbers: random.Random) -> float:
    return numbers.uniform(0.1, 0.8) if numbers.random() < 0.03 else numbers.uniform(0.0005, 0.01)
