"""What goes wrong, when: drawn from the seed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from chart_lab.simulation.broker import BROKER, SimulatedBroker
from chart_lab.simulation.database import DATABASE, Database
from chart_lab.simulation.loop import SimulatedLoop
from chart_lab.simulation.processes import Process
from chart_lab.simulation.trace import Trace

# Machines keep time by NTP or PTP; what relies on clocks allows for this much.
CLOCK_ERROR_US = 250_000
MEAN_PAUSE_S = 2.5


class Faults:
    """Breaks things until it is stopped, then heals everything."""

    def __init__(
        self,
        loop: SimulatedLoop,
        trace: Trace,
        numbers: random.Random,
        processes: Sequence[Process],
        broker: SimulatedBroker,
        database: Database,
        change_link: Callable[[], str],
        callers: Sequence[str],
    ) -> None:
        self._loop = loop
        self._trace = trace
        self._numbers = numbers
        self._processes = processes
        self._broker = broker
        self._database = database
        self._change_link = change_link
        self._callers = callers
        self._intensity = numbers.choice((0.3, 1.0, 1.0, 2.0))
        kinds = (self._kill, self._cut, self._broker_away, self._database_dies, self._clock, self._link)
        # Each seed has its own character: some faults often, some never.
        self._kinds = [kind for kind in kinds if numbers.random() < 0.75] or [self._kill]

    async def run(self, until_s: float) -> None:
        """Break things until then."""
        while True:
            await asyncio.sleep(self._numbers.expovariate(self._intensity / MEAN_PAUSE_S))
            if self._loop.time() >= until_s:
                return
            self._numbers.choice(self._kinds)()

    def heal(self) -> None:
        """Everything works again."""
        self._trace.note("faults", "everything is healed")
        self._broker.up = self._database.up = True
        for process in self._processes:
            process.cut.clear()
            process.clock.offset_us = 0
        self._broker.heal()

    def _kill(self) -> None:
        victim = self._numbers.choice(self._processes)
        victim.kill_for(self._numbers.choice((0.05, 0.5, 2.0, 6.0)) * self._numbers.uniform(0.5, 1.5))

    def _cut(self) -> None:
        process = self._numbers.choice(self._processes)
        other = self._numbers.choice((BROKER, DATABASE, *self._callers))
        seconds = self._numbers.choice((0.3, 2.0, 6.0)) * self._numbers.uniform(0.5, 1.5)
        if other in process.cut:
            return
        self._trace.note("faults", f"{process.name} is cut off from {other} for {seconds:.2f} s")
        process.cut.add(other)

        def mend() -> None:
            process.cut.discard(other)
            self._broker.heal()

        self._loop.call_later(seconds, mend)

    def _broker_away(self) -> None:
        seconds = self._numbers.uniform(0.2, 4.0)
        self._trace.note("faults", f"the broker is away for {seconds:.2f} s")
        self._broker.up = False

        def back() -> None:
            self._broker.up = True
            self._broker.heal()

        self._loop.call_later(seconds, back)

    def _database_dies(self) -> None:
        seconds = self._numbers.uniform(0.2, 3.0)
        self._trace.note("faults", f"kill -9 database, back in {seconds:.2f} s")
        self._database.crash()
        self._loop.call_later(seconds, self._database_back)

    def _database_back(self) -> None:
        self._database.up = True

    def _clock(self) -> None:
        process = self._numbers.choice(self._processes)
        process.clock.offset_us = self._numbers.randint(-CLOCK_ERROR_US, CLOCK_ERROR_US)
        self._trace.note("faults", f"the clock of {process.name} is wrong by {process.clock.offset_us} us")

    def _link(self) -> None:
        self._trace.note("faults", self._change_link())
