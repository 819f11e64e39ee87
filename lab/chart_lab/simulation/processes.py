"""Simulated processes: each is a set of tasks with a clock of its own, and can be killed without a last word."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any

from chart_lab.simulation.loop import NOW_US, SimulatedLoop
from chart_lab.simulation.trace import Trace

CURRENT: ContextVar[Process | None] = ContextVar("CURRENT", default=None)


class ProcessClock:
    """A machine's clock: wrong by a bounded offset that faults change. See chart.common.clock.Clock."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop
        self.offset_us = 0

    def now_us(self) -> int:
        """What this machine takes for the time."""
        return self._loop.now_us + self.offset_us

    def monotonic(self) -> float:
        """Seconds that have passed; machines agree on those."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds."""
        await asyncio.sleep(seconds)


class Process:
    """One process of a machine. `main` is run at each start; when it fails, it is started again after a while."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        trace: Trace,
        main: Callable[[Process], Coroutine[Any, Any, None]],
        restart_s: Callable[[], float],
    ) -> None:
        self.name = name
        self.loop = loop
        self.trace = trace
        self.clock = ProcessClock(loop)
        self.alive = False
        # Counts the starts: what was made for an earlier life is of no use to a later one.
        self.life = 0
        # Paths that are cut now: names of other processes, or "broker" and "database".
        self.cut: set[str] = set()
        self._main = main
        self._restart_s = restart_s
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.on_death: list[Callable[[], None]] = []

    def reaches(self, other: str) -> bool:
        """Whether it lives and its path there is not cut."""
        return self.alive and other not in self.cut

    def start(self) -> None:
        """Begin a life."""
        if self.alive:
            return
        self.alive = True
        self.life += 1
        self.trace.note(self.name, f"starts (life {self.life})")
        self.spawn(self._live(self.life))

    async def _live(self, life: int) -> None:
        try:
            await self._main(self)
            reason = "ends"
        except asyncio.CancelledError:
            raise
        except Exception as error:
            reason = f"fails: {error!r}"
        if self.alive and self.life == life:
            self.trace.note(self.name, reason)
            self.kill()
            self.loop.call_later(self._restart_s(), self.start)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something within this process, such as the handler of a call."""
        context = copy_context()
        context.run(CURRENT.set, self)
        context.run(NOW_US.set, self.clock.now_us)
        return self.loop.create_task(coroutine, context=context)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        """A task of this process."""
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def kill(self) -> None:
        """End at once: whatever its tasks still try in their last moments has no effect outside."""
        if not self.alive:
            return
        self.alive = False
        for told in self.on_death:
            told()
        self.on_death.clear()
        for task in list(self._tasks):
            task.cancel()

    def kill_for(self, seconds: float) -> None:
        """Kill, and start again after a while."""
        if self.alive:
            self.trace.note("faults", f"kill -9 {self.name}, back in {seconds:.2f} s")
            self.kill()
            self.loop.call_later(seconds, self.start)


def follow_tasks(loop: SimulatedLoop) -> None:
    """From now on each task belongs to the process in whose context it was made."""

    def adopt(task: asyncio.Task[Any], context: Context | None) -> None:
        process = context.get(CURRENT, None) if context is not None else CURRENT.get()
        if process is not None:
            if process.alive:
                process.adopt(task)
            else:
                task.cancel()

    loop.on_task = adopt


@contextlib.contextmanager
def outside() -> Any:
    """What is started within belongs to no process: the network, the broker, the database."""
    token = CURRENT.set(None)
    try:
        yield
    finally:
        CURRENT.reset(token)
