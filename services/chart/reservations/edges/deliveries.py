"""Delivers notices to applications: at least once, in order for each request, signed, retried with back-off, given up
after a day. What was given up stays visible and can be sent again.

The receiver gets 5 s, its answer is not read beyond its status, redirects are not followed.
"""

from __future__ import annotations

import asyncio

import httpx
import psycopg
import psycopg_pool
import structlog
from prometheus_client import Counter

from chart.common.clock import Clock
from chart.reservations.decisions import notices
from chart.reservations.edges.receivers import ForbiddenReceiverError, PublicReceivers
from chart.reservations.store.callbacks import AT_ONCE, Callbacks, Notice

TIMEOUT_S = 5.0
POLL_S = 0.5
MOST_ERROR = 300

DELIVERED = Counter("chart_reservations_callbacks_total", "Attempts to deliver a notice", ["outcome"])
_OUTCOMES = {notices.DELIVERED: "delivered", notices.PENDING: "retry", notices.DEAD: "dead"}

_log = structlog.get_logger("chart.reservations")


class Deliveries:
    """Deliveries of one replica. `anywhere` allows receivers on this machine and plain HTTP."""

    def __init__(self, callbacks: Callbacks, clock: Clock, *, anywhere: bool) -> None:
        self._callbacks = callbacks
        self._clock = clock
        self._anywhere = anywhere

    async def run(self) -> None:
        """Deliver until cancelled."""
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
        transport = None if self._anywhere else PublicReceivers()
        async with httpx.AsyncClient(
            timeout=TIMEOUT_S, follow_redirects=False, limits=limits, trust_env=False, transport=transport
        ) as client:
            running: set[asyncio.Task[None]] = set()
            try:
                while True:
                    running |= await self._begin(client, AT_ONCE - len(running))
                    if running:
                        # One receiver that does not answer holds up nobody else.
                        _, running = await asyncio.wait(running, timeout=POLL_S, return_when=asyncio.FIRST_COMPLETED)
                    else:
                        await self._clock.sleep(POLL_S)
            finally:
                for task in running:
                    task.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def _begin(self, client: httpx.AsyncClient, most: int) -> set[asyncio.Task[None]]:
        """Begin the deliveries whose time has come."""
        try:
            taken = await self._callbacks.take(self._clock.now_us(), most) if most else []
        except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
            _log.warning("callbacks wait for the database", reason=str(error))
            taken = []
        return {asyncio.create_task(self._attempt(client, one)) for one in taken}

    async def _attempt(self, client: httpx.AsyncClient, notice: Notice) -> None:
        try:
            await self._deliver(client, notice)
        except (psycopg.Error, psycopg_pool.PoolTimeout) as error:
            # It stays taken for a while and is delivered again.
            _log.warning("the outcome of a callback is not stored", request=notice.request_id, reason=str(error))

    async def _deliver(self, client: httpx.AsyncClient, notice: Notice) -> None:
        """One attempt."""
        error = ""
        now_us = self._clock.now_us()
        keys = await self._callbacks.secrets(notice.owner, now_us)
        headers = notices.headers(keys, notice.id, now_us // 1_000_000, notice.body)
        if notice.traceparent:
            headers["traceparent"] = notice.traceparent
        try:
            async with client.stream("POST", notice.url, content=notice.body, headers=headers) as answer:
                if not answer.is_success:
                    error = f"the receiver answered {answer.status_code}"
        except ForbiddenReceiverError as failure:
            error = str(failure)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        await self._note(notice, error[:MOST_ERROR])

    async def _note(self, notice: Notice, error: str) -> None:
        state = await self._callbacks.note(notice, error, self._clock.now_us())
        DELIVERED.labels(outcome=_OUTCOMES[state]).inc()
        if state == notices.DEAD:
            _log.warning("gave up to tell an application", request=notice.request_id, url=notice.url, reason=error)
