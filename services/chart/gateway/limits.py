"""Request limits: a token bucket per subject or address, and the RateLimit headers that tell a client where it is."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass

from chart.common.clock import Clock
from chart.gateway.errors import GatewayError

# Buckets kept; the one unused for longest is forgotten first (it would be full again by then).
MAX_BUCKETS = 10_000


@dataclass
class _Bucket:
    tokens: float
    at: float


@dataclass(frozen=True)
class Allowance:
    """What is left after a request."""

    limit: int
    remaining: int
    reset_s: int

    def headers(self) -> dict[str, str]:
        """RateLimit headers (draft-ietf-httpapi-ratelimit-headers-03)."""
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset_s),
        }


def too_many(per_s: float, burst: int, cost: int, wait_s: int) -> GatewayError:
    """The 429 problem of a request that costs more than its caller has left."""
    weighed = f" This one counts as {cost}." if cost > 1 else ""
    return GatewayError(
        429,
        "Too many requests",
        f"More than {per_s:g} requests per second, {burst} at once.{weighed}",
        headers={"Retry-After": str(wait_s), **Allowance(burst, 0, wait_s).headers()},
        suggestions=[f"Retry after {wait_s} s.", "Follow /v1/events instead of polling."],
    )


class RateLimiter:
    """Token buckets by name."""

    def __init__(self, clock: Clock, *, per_s: float, burst: int) -> None:
        self._clock = clock
        self._per_s = per_s
        self._burst = burst
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, name: str, cost: int = 1) -> Allowance:
        """Use so many tokens; raises a 429 problem with Retry-After when there are fewer."""
        cost = min(cost, self._burst)
        now = self._clock.monotonic()
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(float(self._burst), now)
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(name)
        bucket.tokens = min(float(self._burst), bucket.tokens + (now - bucket.at) * self._per_s)
        bucket.at = now
        if bucket.tokens < cost:
            raise too_many(self._per_s, self._burst, cost, math.ceil((cost - bucket.tokens) / self._per_s))
        bucket.tokens -= cost
        reset_s = math.ceil((self._burst - bucket.tokens) / self._per_s)
        return Allowance(self._burst, int(bucket.tokens), reset_s)
