"""Limits of callers: what requests cost, and one allowance over all replicas."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from grpc import StatusCode, aio

from chart.common.clock import FakeClock
from chart.gateway import costs
from chart.gateway.api import create_app
from chart.gateway.costs import MOST, cost_of
from chart.gateway.errors import GatewayError
from chart.gateway.limits import RateLimiter
from chart.gateway.settings import GatewaySettings
from chart.gateway.shared_limits import AWAY_S, SharedLimiter
from chart.reservations.store.allowances import draw
from chart.v1 import reservations_pb2 as pb

PER_S, BURST = 10.0, 40


class Shared:
    """The buckets of `store.allowances` without a database."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.calls, self.away = clock, 0, False
        self.buckets: dict[str, tuple[float, float]] = {}

    async def DrawAllowance(self, request: Any, **_: Any) -> Any:  # noqa: N802
        self.calls += 1
        if self.away:
            raise aio.AioRpcError(StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), "away", "away")
        now = self.clock.monotonic()
        tokens, at = self.buckets.get(request.name, (request.burst, now))
        left, drawn = draw(
            tokens, now - at, need=request.need, want=request.want, per_s=request.per_s, burst=request.burst
        )
        self.buckets[request.name] = (left, now)
        return pb.DrawAllowanceResponse(given=drawn.given, left=drawn.left, wait_s=drawn.wait_s)


def replicas(number: int) -> tuple[Shared, list[SharedLimiter], FakeClock]:
    clock = FakeClock()
    shared = Shared(clock)
    return (
        shared,
        [
            SharedLimiter(
                cast("Any", shared), RateLimiter(clock, per_s=PER_S, burst=BURST), clock, per_s=PER_S, burst=BURST
            )
            for _ in range(number)
        ],
        clock,
    )


async def used(limiters: list[SharedLimiter], cost: int = 1) -> int:
    """How many requests in turn, one at each replica, until one is refused."""
    for number in range(1000):
        try:
            await limiters[number % len(limiters)].take("alice", cost)
        except GatewayError:
            return number
    return 1000


@pytest.mark.parametrize("number", [1, 3])
async def test_replicas_share_one_allowance(number: int) -> None:
    shared, limiters, _ = replicas(number)
    assert await used(limiters) in range(BURST - 2 * number, BURST + 1)
    assert shared.calls <= BURST


async def test_it_fills_again_and_says_when() -> None:
    _, limiters, clock = replicas(2)
    await used(limiters)
    with pytest.raises(GatewayError) as error:
        await limiters[0].take("alice", 20)
    assert error.value.status == 429
    assert "counts as 20" in error.value.detail
    assert 1 <= int(error.value.headers["Retry-After"]) <= 2
    await clock.advance(2.0)
    allowance = await limiters[1].take("alice", 20)
    assert allowance.remaining == 0
    await limiters[0].take("bob", 1)


async def test_what_costs_more_comes_less_often() -> None:
    _, limiters, _ = replicas(2)
    assert await used(limiters, cost=10) == 4


async def test_a_cost_above_the_burst_is_all_of_it() -> None:
    _, limiters, _ = replicas(1)
    assert await used(limiters, cost=500) == 1


async def test_without_the_shared_buckets_each_replica_limits_for_itself() -> None:
    shared, limiters, clock = replicas(2)
    shared.away = True
    assert await used(limiters) == 2 * BURST
    assert shared.calls == 2
    await clock.advance(AWAY_S)
    shared.away = False
    # Back at once: the shared buckets know nothing of what was used meanwhile.
    assert (await limiters[0].take("alice", 1)).remaining == BURST - 1
    assert shared.calls == 3


async def test_many_at_once_draw_once() -> None:
    shared, limiters, _ = replicas(1)
    await asyncio.gather(limiters[0].take("alice", 1), limiters[0].take("alice", 1))
    assert shared.calls == 1


@pytest.mark.parametrize(
    ("method", "route", "limit", "cost"),
    [
        ("GET", "/v1/rate-requests/{id}", None, 1),
        ("GET", "/v1/nodes", "1000", 5),
        ("GET", "/v1/series", None, 10),
        ("GET", "/v1/path-changes", "10000", 45),
        ("GET", "/v1/snapshots/{id}/file", "9999999999", 50),
        ("GET", "/v1/audit", "-5", 5),
        ("GET", "/v1/snapshots/{id}/file", "10000", MOST),
        ("GET", "", "x", 1),
    ],
)
def test_what_requests_cost(method: str, route: str, limit: str | None, cost: int) -> None:
    assert cost_of(method, route, limit) == cost


def test_every_weighed_route_exists(tmp_path: Path) -> None:
    document = create_app(GatewaySettings(state_dir=tmp_path)).openapi()
    known = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert set(costs._FIXED) <= known
