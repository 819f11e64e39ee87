"""The health and metrics server."""

from __future__ import annotations

import asyncio

import httpx

from chart.common.health import HealthServer, run_checks


async def passes() -> None:
    return None


async def fails() -> None:
    msg = "the database is away"
    raise ConnectionError(msg)


async def says_no() -> bool:
    return False


async def hangs() -> None:
    await asyncio.Event().wait()


async def test_each_check_says_what_is_wrong() -> None:
    outcome = await run_checks({"a": passes, "b": fails, "c": says_no, "d": hangs})
    assert outcome == {"a": "ok", "b": "the database is away", "c": "failed", "d": "no answer within 2 s"}


async def test_ready_follows_the_checks_and_health_does_not() -> None:
    broken = [False]

    async def check() -> None:
        if broken[0]:
            await fails()

    async with (
        HealthServer("127.0.0.1:0", {"database": check}) as server,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client,
    ):
        assert (await client.get("/readyz")).json() == {"status": "ok", "checks": {"database": "ok"}}
        broken[0] = True
        answer = await client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["checks"]["database"] == "the database is away"
        assert (await client.get("/healthz")).status_code == 200
        metrics = await client.get("/metrics")
        assert "chart_rpc_handled_seconds" in metrics.text
        assert (await client.get("/other")).status_code == 404
