"""What a service tries again: calls that a database or broker does not take now, and followers of streams, for ever.

The trying is tenacity's; here are the two forms that services share. Both wait by the service's clock, always the same
time or twice as long each time, tell of each failure, and let errors through that are not named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    retry_if_result,
    wait_exponential,
    wait_fixed,
)
from tenacity.retry import retry_base

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]
# Seconds: always the same, or the first and the longest pause.
Pause = float | tuple[float, float]
# Told of an error and of the pause that follows, in seconds.
Told = Callable[[Exception, float], object]
Sleep = Callable[[float], Awaitable[None]]


async def until_done(
    call: Callable[[], Awaitable[T]], errors: Errors, told: Told, pause_s: Pause, *, sleep: Sleep = asyncio.sleep
) -> T:
    """The result of a call, which is made until it raises none of these errors."""
    return await _made_again(call, retry_if_exception_type(errors), told, pause_s, sleep)


async def for_ever(
    call: Callable[[], Awaitable[object]], errors: Errors, told: Told, pause_s: Pause, *, sleep: Sleep = asyncio.sleep
) -> None:
    """Make a call again when it failed with one of these errors, and also when it returned; ends when cancelled."""
    whatever = retry_if_exception_type(errors) | retry_if_result(lambda _: True)
    await _made_again(call, whatever, told, pause_s, sleep)


async def _made_again(
    call: Callable[[], Awaitable[T]], condition: retry_base, told: Told, pause_s: Pause, sleep: Sleep
) -> T:
    async def attempt() -> T:
        return await call()

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, Exception):
            told(error, state.upcoming_sleep)

    wait = wait_exponential(pause_s[0], max=pause_s[1]) if isinstance(pause_s, tuple) else wait_fixed(pause_s)
    # One for each call: it holds the state of its attempts.
    return await AsyncRetrying(sleep=sleep, retry=condition, wait=wait, before_sleep=tell)(attempt)
