"""The rate limit of a caller over all replicas of the gateway: each draws a part of the shared bucket ahead.

The buckets are with reservations, in its database. While they cannot be reached each replica limits for itself; no
request waits longer for them than `DRAW_S`.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from dataclasses import dataclass, field

import structlog
from grpc import aio
from prometheus_client import Counter

from chart.common.clock import Clock
from chart.gateway.limits import MAX_BUCKETS, Allowance, RateLimiter, too_many
from chart.v1 import reservations_pb2 as pb
from chart.v1 import reservations_pb2_grpc

# A draw takes this part of a burst, so that a caller at its limit makes twenty calls a burst.
PART = 20
DRAW_S = 0.3
# After a failure the shared buckets are not asked for so long.
AWAY_S = 1.0
# What was drawn and not used is worth nothing after so long: it is another replica's to use.
KEEP_S = 2.0

ALONE = Counter("chart_gateway_unshared_limits_total", "Requests limited by this replica alone.")

_log = structlog.get_logger("chart.gateway.limits")


@dataclass
class _Held:
    tokens: float = 0.0
    left: float = 0.0
    at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class SharedLimiter:
    """Limits by subject, shared; `alone` limits by this replica's own count."""

    def __init__(
        self,
        draws: reservations_pb2_grpc.ReservationsAsyncStub,
        alone: RateLimiter,
        clock: Clock,
        *,
        per_s: float,
        burst: int,
    ) -> None:
        self._draws = draws
        self.alone = alone
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._away_until = float("-inf")

    async def take(self, name: str, cost: int) -> Allowance:
        """Use so much of a caller's allowance; raises a 429 problem with Retry-After when there is not enough."""
        need = min(cost, self._burst)
        held = self._held.setdefault(name, _Held())
        self._held.move_to_end(name)
        if len(self._held) > MAX_BUCKETS:
            self._held.popitem(last=False)
        async with held.lock:
            now = self._clock.monotonic()
            if now - held.at > KEEP_S:
                held.tokens = 0.0
            if held.tokens < need:
                if now < self._away_until:
                    return self._take_alone(name, need)
                try:
                    await self._draw(name, held, need)
                except (aio.AioRpcError, TimeoutError) as error:
                    self._away_until = self._clock.monotonic() + AWAY_S
                    _log.info("limits are not shared now", reason=repr(error)[:200])
                    return self._take_alone(name, need)
            held.tokens -= need
            left = held.tokens + held.left
        return Allowance(self._burst, int(left), math.ceil((self._burst - left) / self._per_s))

    async def _draw(self, name: str, held: _Held, need: int) -> None:
        want = max(float(need), self._burst / PART) - held.tokens
        call = pb.DrawAllowanceRequest(
            name=name, need=need - held.tokens, want=want, per_s=self._per_s, burst=float(self._burst)
        )
        drawn = await self._draws.DrawAllowance(call, timeout=DRAW_S)
        if not drawn.given:
            raise too_many(self._per_s, self._burst, need, math.ceil(drawn.wait_s) or 1)
        held.tokens += drawn.given
        held.left, held.at = drawn.left, self._clock.monotonic()

    def _take_alone(self, name: str, need: int) -> Allowance:
        ALONE.inc()
        return self.alone.take(name, need)
