"""Simulated time with processes, for tests of the simulation's parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from chart_lab.simulation.loop import SimulatedLoop
from chart_lab.simulation.processes import Process, follow_tasks
from chart_lab.simulation.trace import Trace


class Bench:
    """A simulated loop and processes that do nothing by themselves."""

    def __init__(self) -> None:
        self.loop = SimulatedLoop()
        follow_tasks(self.loop)
        self.trace = Trace(self.loop.time)

    def process(self, name: str) -> Process:
        async def idle(_process: Process) -> None:
            await asyncio.get_running_loop().create_future()

        process = Process(name, self.loop, self.trace, idle, lambda: 1.0)
        process.start()
        return process

    def end(self) -> None:
        if not self.loop.is_closed():
            self.loop.run_until_complete(self._cancel_all())
            self.loop.close()

    @staticmethod
    async def _cancel_all() -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run(self, story: Callable[[], Coroutine[None, None, None]]) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(story())
        finally:
            self.end()
            asyncio.set_event_loop(None)
