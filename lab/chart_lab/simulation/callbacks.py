"""Notices to applications in the simulation: the worker around the database in memory, and receivers that are away,
lose answers, and remember what they were told. What is told, in which order and when again is the real code (notices).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import psycopg
import structlog

from chart.reservations.decisions import notices
from chart_lab.simulation.database import Row
from chart_lab.simulation.loop import SimulatedLoop
from chart_lab.simulation.processes import Process
from chart_lab.simulation.repository import Repository

POLL_S = 0.5
AT_ONCE = 8
# Time is short: a notice whose replica died in the middle is taken by another one after this long.
TAKEN_US = 4_000_000
RETRY_S = 1.0
# A receiver fails no more often than this in a row: the waits after further failures are longer than a run.
MOST_FAILURES = 3
# What a receiver does with an attempt: it is away for a while, it does not get it, its answer is lost.
AWAY, MISSED, ANSWER_LOST = 0.03, 0.1, 0.08

_log = structlog.get_logger("chart.reservations")


class Receivers:
    """All applications that want to be called. `told` gets the webhook-id and the body of what arrives."""

    def __init__(self, loop: SimulatedLoop, numbers: random.Random, told: Callable[[str, str], None]) -> None:
        self._loop = loop
        self._numbers = numbers
        self._told = told
        self._away_until_s: dict[str, float] = {}
        self.healed = False

    async def call(self, owner: str, identity: str, body: str, attempts: int) -> str:
        """One attempt: why it failed, or nothing."""
        numbers = self._numbers
        await asyncio.sleep(numbers.uniform(0.001, 0.05))
        faulty = not self.healed and attempts < MOST_FAILURES
        if faulty and numbers.random() < AWAY:
            self._away_until_s[owner] = self._loop.time() + numbers.uniform(0.5, 2.0)
        if faulty and (self._loop.time() < self._away_until_s.get(owner, 0.0) or numbers.random() < MISSED):
            return "the receiver is away"
        self._told(identity, body)
        await asyncio.sleep(numbers.uniform(0.001, 0.05))
        return "no answer" if faulty and numbers.random() < ANSWER_LOST else ""


class SimulatedCallbacks:
    """The deliveries of one life of a replica; see chart.reservations.edges.deliveries."""

    def __init__(self, repository: Repository, process: Process, receivers: Receivers) -> None:
        self._repository = repository
        self._process = process
        self._receivers = receivers

    async def run(self) -> None:
        """Deliver until the process ends."""
        while True:
            try:
                taken = await self._repository.take_notices(self._process.clock.now_us(), TAKEN_US, AT_ONCE)
                async with asyncio.TaskGroup() as group:
                    for number, row in taken:
                        group.create_task(self._deliver(number, row))
            except psycopg.Error as error:
                _log.warning("callbacks wait for the database", reason=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            if len(taken) < AT_ONCE:
                await asyncio.sleep(POLL_S)

    async def _deliver(self, number: int, row: Row) -> None:
        error = await self._receivers.call(row["owner"], row["id"], row["body"], row["attempts"])
        now_us = self._process.clock.now_us()
        attempts = row["attempts"] + 1
        again_us = notices.next_attempt_us(attempts, row["created_at_us"], now_us) if error else 0
        state = notices.DELIVERED if not error else notices.PENDING if again_us else notices.DEAD
        try:
            await self._repository.note_notice(number, state, attempts, again_us, now_us)
        except psycopg.Error as failure:
            # It stays taken for a while and is delivered again.
            _log.warning("the outcome of a callback is not stored", reason=str(failure))
