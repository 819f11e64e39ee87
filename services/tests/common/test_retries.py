from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from chart.common.clock import FakeClock
from chart.common.retries import for_ever, until_done


class Pauses:
    """A sleep that takes no time; ends the test's loop after so many."""

    def __init__(self, most: int = 1_000) -> None:
        self.s: list[float] = []
        self._most = most

    async def __call__(self, seconds: float) -> None:
        self.s.append(seconds)
        await asyncio.sleep(0)
        if len(self.s) >= self._most:
            raise asyncio.CancelledError


def failing(*outcomes: Exception | int) -> Callable[[], Awaitable[int]]:
    left = list(outcomes)

    async def call() -> int:
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return call


async def test_a_call_is_made_until_it_succeeds_with_pauses_that_double_up_to_a_limit() -> None:
    pauses, told = Pauses(), []
    call = failing(*[ConnectionError(str(number)) for number in range(5)], 7)
    found = await until_done(
        call, OSError, lambda error, again_in_s: told.append((str(error), again_in_s)), (0.5, 3.0), sleep=pauses
    )
    assert found == 7
    assert pauses.s == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert told == [("0", 0.5), ("1", 1.0), ("2", 2.0), ("3", 3.0), ("4", 3.0)]


async def test_an_error_that_is_not_named_is_raised_at_once() -> None:
    pauses = Pauses()
    with pytest.raises(KeyError, match="wrong"):
        await until_done(failing(KeyError("wrong"), 1), (OSError, ValueError), print, 1.0, sleep=pauses)
    assert not pauses.s


async def test_for_ever_goes_on_after_an_end_and_after_an_error_but_not_after_being_cancelled() -> None:
    pauses, told = Pauses(4), []
    call = failing(1, ValueError("x"), 2, ValueError("y"))
    with pytest.raises(asyncio.CancelledError):
        await for_ever(call, ValueError, lambda error, _: told.append(str(error)), 2.0, sleep=pauses)
    assert pauses.s == [2.0] * 4
    assert told == ["x", "y"]


async def test_it_waits_by_the_clock_it_is_given_and_is_cancelled_while_it_calls() -> None:
    clock, began = FakeClock(), asyncio.Event()

    async def call() -> None:
        if not began.is_set():
            began.set()
            raise OSError
        await asyncio.Event().wait()

    task = asyncio.create_task(until_done(call, OSError, lambda *_: None, 30.0, sleep=clock.sleep))
    await began.wait()
    await clock.advance(31.0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
