"""An asyncio event loop whose time is simulated: it never waits, it goes to the next moment that anything is planned
for.

With it the services run as they are, thousands of times faster than real time and the same way every time: one thread,
tasks in the order in which they became ready, no sockets. What would break that (threads, the machine's clock, its
random numbers) is refused or replaced (`pretend`).
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import os
import random
import selectors
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import Context, ContextVar
from typing import Any, NoReturn
from unittest import mock

# Where the simulation's calendar begins: a moment in 2025.
EPOCH_US = 1_750_000_000_000_000


class DeadlockError(RuntimeError):
    """Everybody waits and nothing is planned that could wake anybody."""


class _NoSockets(selectors.BaseSelector):
    """Nothing ever arrives."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Remembered; the loop registers its own wake-up pipe."""
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[fileobj] = selectors.SelectorKey(fileobj, number, events, data)
        return self._keys[fileobj]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Forget."""
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """No file is ever ready: the loop has no real input or output."""
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """What was registered."""
        return self._keys


class NumberedTask(asyncio.Task[Any]):
    """A task that hashes by its number: sets of tasks have the same order in every run."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop on simulated time. `on_task` receives every new task, in whose context it runs.

    What is planned and what is ready is kept by the loop itself, for speed: a third of a run was spent on asyncio's own
    way of doing it. Of what is planned for one moment the first planned runs first.
    """

    # Of asyncio's own.
    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_NoSockets())
        self._count = 0
        # Moment, number, callback.
        self._planned: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._plans = 0
        self.on_task: Callable[[asyncio.Task[Any], Context | None], None] = lambda task, context: None
        self.set_task_factory(self._new_task)  # type: ignore[arg-type]  # the protocol lacks `context`

    def time(self) -> float:
        """Seconds since the simulation began."""
        return self._now_s

    @property
    def now_us(self) -> int:
        """True time, microseconds since the epoch."""
        return EPOCH_US + round(self._now_s * 1e6)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:  # type: ignore[override]
        """Threads would make two runs differ.

        Raises:
            RuntimeError: always.
        """
        msg = f"{func} wants a thread, which a simulation cannot have"
        raise RuntimeError(msg)

    def call_at(  # type: ignore[override]  # of any arguments
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback at simulated time `when`, seconds."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._plans += 1
        heapq.heappush(self._planned, (when, self._plans, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run the callback `delay` simulated seconds from now."""
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Run the callback in the next step, before simulated time advances."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Those that are cancelled are left out when their moment comes."""

    def _run_once(self) -> None:
        """Run what is ready; when nothing is, go to the next moment that anything is planned for."""
        ready, planned = self._ready, self._planned
        if not ready:
            while planned and planned[0][2].cancelled():
                heapq.heappop(planned)
            if planned:
                self._now_s = max(self._now_s, planned[0][0])
            elif not self._stopping:
                msg = f"at {self._now_s:.6f} s everybody waits and nothing is planned"
                raise DeadlockError(msg)
        now_s = self._now_s
        while planned and planned[0][0] <= now_s:
            ready.append(heapq.heappop(planned)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = NumberedTask(coroutine, loop=loop, context=context)
        self._count += 1
        task.number = self._count
        self.on_task(task, context)
        return task


# The clock of whoever runs now; `pretend` shows it to code that asks the machine.
NOW_US: ContextVar[Callable[[], int]] = ContextVar("NOW_US")


@contextlib.contextmanager
def pretend(loop: SimulatedLoop, seed: int) -> Iterator[None]:
    """While this holds, `time` and `os.urandom` are those of the simulation, so that ids and times can be had again."""
    numbers = random.Random(f"{seed}:urandom")  # noqa: S311 - the point is that they can be had again

    def now_us() -> int:
        return NOW_US.get(lambda: loop.now_us)()

    def now_s() -> float:
        return now_us() / 1e6

    def now_ns() -> int:
        return now_us() * 1000

    with (
        mock.patch.object(time, "time", now_s),
        mock.patch.object(time, "time_ns", now_ns),
        mock.patch.object(time, "monotonic", loop.time),
        mock.patch.object(os, "urandom", numbers.randbytes),
    ):
        yield
