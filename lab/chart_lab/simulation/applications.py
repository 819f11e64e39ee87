"""Applications: they request rates, repeat calls without a response, change and release requests."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from chart.common.rpc_errors import RefusalError
from chart.reservations.decisions.rates import Change
from chart.v1 import rate_request_pb2
from chart.v1.flow_grant_pb2 import ServiceType
from chart.v1.rate_request_pb2 import RateRequestSpecification, TrafficClass
from chart_lab.simulation.calls import UnavailableError, call
from chart_lab.simulation.checker import Checker
from chart_lab.simulation.loop import SimulatedLoop
from chart_lab.simulation.processes import Process
from chart_lab.simulation.reservations import Replica
from chart_lab.simulation.trace import Trace

S_US = 1_000_000
MEGA = 1_000_000
ATTEMPTS = 5
# Everybody acts at about the same moments: crowds are what admission has to stand.
BEAT_S = 0.8
JITTER_S = 0.02

Ask = Callable[[Replica], Coroutine[Any, Any, Any]]


@dataclass
class Server:
    """A replica of reservations as its callers see it; `replica` is its present life, None while it opens."""

    process: Process
    replica: Replica | None = None


class Application:
    """One caller with requests of its own."""

    def __init__(
        self,
        name: str,
        loop: SimulatedLoop,
        trace: Trace,
        numbers: random.Random,
        servers: Sequence[Server],
        checker: Checker,
        nodes: Sequence[str],
    ) -> None:
        self.name = name
        self._loop = loop
        self._trace = trace
        self._numbers = numbers
        self._servers = servers
        self._checker = checker
        self._nodes = nodes
        self._asked = 0
        self._mine: list[str] = []
        self.counts = {"granted": 0, "refused": 0, "unknown": 0, "released": 0, "changed": 0}

    async def run(self, until_s: float) -> None:
        """Act at every beat until then."""
        while True:
            now_s = self._loop.time()
            await asyncio.sleep(BEAT_S - now_s % BEAT_S + self._numbers.uniform(0, JITTER_S))
            if self._loop.time() >= until_s:
                return
            draw = self._numbers.random()
            if not self._mine or draw < 0.62:
                await self._ask()
            elif draw < 0.74:
                await self._change(self._numbers.choice(self._mine))
            else:
                await self._release(self._mine.pop(self._numbers.randrange(len(self._mine))))

    def _specification(self) -> RateRequestSpecification:
        numbers = self._numbers
        source, destination = numbers.sample(list(self._nodes), 2)
        self._asked += 1
        rate_bps = numbers.randint(5, 60) * MEGA
        one = RateRequestSpecification(
            source=source,
            destination=destination,
            guaranteed_bps=rate_bps,
            service=ServiceType.SERVICE_TYPE_GUARANTEED,
            preemption_priority=numbers.choice((0, 0, 0, 1, 5)),
            tags={"ask": f"{self.name}-{self._asked}"},
            hold=numbers.random() < 0.1,
        )
        if numbers.random() < 0.5:
            one.callback_url = f"https://{self.name}.example/told"
        if numbers.random() < 0.3:
            one.minimum_bps = rate_bps // 4
        if numbers.random() < 0.15:
            one.traffic_class = TrafficClass.TRAFFIC_CLASS_BACKGROUND
            one.preemption_priority = 0
        if numbers.random() < 0.35:
            one.start_us = self._loop.now_us + numbers.randint(1, 25) * S_US
        if numbers.random() < 0.8:
            one.end_us = (one.start_us or self._loop.now_us) + numbers.randint(2, 40) * S_US
        return one

    async def _ask(self) -> None:
        specification = self._specification()
        ask = specification.tags["ask"]
        try:
            made: rate_request_pb2.RateRequest | None = await self._until_answered(
                ask, lambda replica: replica.create(self.name, specification, ask)
            )
        except RefusalError as error:
            self.counts["refused"] += 1
            self._trace.note(self.name, f"{ask} is refused: {error.refusal.code}")
            return
        if made is None:
            self.counts["unknown"] += 1
            return
        self.counts["granted"] += 1
        self._trace.note(self.name, f"{ask} is granted as {made.id}: {made.granted_bps} over {list(made.link_ids)}")
        self._checker.promised(made)
        self._mine.append(made.id)
        if specification.hold and self._numbers.random() < 0.7:
            await self._try(f"commit of {made.id}", lambda replica: replica.commit(self.name, made.id))

    async def _change(self, request_id: str) -> None:
        numbers = self._numbers
        wanted = Change(
            guaranteed_bps=numbers.randint(5, 60) * MEGA,
            minimum_bps=0,
            end_us=self._loop.now_us + numbers.randint(3, 40) * S_US if numbers.random() < 0.5 else None,
        )
        self._checker.given_back(request_id)
        answer = await self._try(
            f"change of {request_id}", lambda replica: replica.change(self.name, request_id, wanted)
        )
        self.counts["changed"] += answer is not None

    async def _release(self, request_id: str) -> None:
        self._checker.given_back(request_id)
        answer = await self._try(f"release of {request_id}", lambda replica: replica.release(self.name, request_id))
        self.counts["released"] += answer is not None

    async def _try(self, what: str, ask: Ask) -> Any:
        """An answer, or None when it was refused or nobody answered."""
        try:
            return await self._until_answered(what, ask)
        except RefusalError as error:
            self._trace.note(self.name, f"{what} is refused: {error.refusal.code}")
            return None

    async def _until_answered(self, what: str, ask: Ask) -> Any:
        """Call a replica, maybe another one when there is no answer; None when nobody answered.

        Raises:
            RefusalError: the answer.
        """
        for _ in range(ATTEMPTS):
            calls = [self._call(ask)]
            if self._numbers.random() < 0.1:
                # The network, or an impatient library, sends it twice.
                calls.append(self._call(ask))
            answers = await asyncio.gather(*calls, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, UnavailableError):
                    continue
                if isinstance(answer, BaseException):
                    raise answer
                return answer
            self._trace.note(self.name, f"{what}: {answers[0]}")
            await asyncio.sleep(self._numbers.uniform(0.05, 1.0))
        return None

    async def _call(self, ask: Ask) -> Any:
        server = self._numbers.choice(self._servers)
        replica = server.replica
        if replica is None:
            raise UnavailableError(f"{server.process.name} is not ready")
        return await call(server.process, self.name, lambda: ask(replica), self._numbers)
