"""Shared allowances: the arithmetic, and callers that draw at once from a real database."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.common import database
from chart.common.settings import BaseServiceSettings
from chart.reservations.store.allowances import Allowances, draw, forget
from support.postgres import PostgresServer

AMOUNT = st.floats(0.001, 1e6)


@given(AMOUNT, st.floats(-10, 1e6), AMOUNT, AMOUNT, AMOUNT, AMOUNT)
def test_nothing_comes_from_nowhere(
    tokens: float, idle_s: float, need: float, want: float, per_s: float, burst: float
) -> None:
    left, drawn = draw(min(tokens, burst), idle_s, need=need, want=want, per_s=per_s, burst=burst)
    filled = min(burst, min(tokens, burst) + max(0.0, idle_s) * per_s)
    assert left + drawn.given == pytest.approx(filled)
    assert drawn.given == 0.0 or need <= drawn.given <= max(need, want) * (1 + 1e-9)
    assert left >= -1e-9
    if not drawn.given:
        assert left + drawn.wait_s * per_s == pytest.approx(need)


@pytest.mark.contract
async def test_callers_at_once_share_a_bucket(postgres: PostgresServer) -> None:
    postgres.truncate("reservations")
    settings = BaseServiceSettings(database_url=postgres.role_url("reservations"))
    async with database.pool(settings) as pool:
        allowances = Allowances(pool)
        drawn = await asyncio.gather(
            *(allowances.draw("subject:x", need=1, want=10, per_s=0.001, burst=45) for _ in range(12))
        )
        assert sum(one.given for one in drawn) == pytest.approx(45, abs=0.1)
        assert [round(one.given) for one in drawn].count(0) == 7
        assert all(one.wait_s > 100 for one in drawn if not one.given)
        async with pool.connection() as connection:
            await forget(connection)
            kept = await connection.execute("UPDATE allowance SET at = at - interval '2 hours' RETURNING name")
            assert await kept.fetchone() is not None
            await forget(connection)
            assert await (await connection.execute("SELECT 1 FROM allowance")).fetchone() is None
