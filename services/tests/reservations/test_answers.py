"""Answers that are given again, on a real PostgreSQL: one claim, one answer, whoever asks at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from chart.common import database
from chart.common.clock import FakeClock
from chart.common.database import Pool
from chart.common.rpc_errors import RefusalError
from chart.common.settings import BaseServiceSettings
from chart.reservations.edges.answer_calls import CLAIM_US, AnswerCalls
from chart.reservations.store.idempotency import KeptAnswers
from chart.reservations.store.repository import Repository
from chart.v1 import reservations_pb2 as pb
from support.postgres import PostgresServer

pytestmark = pytest.mark.contract
DAY_US = 24 * 3600 * 1_000_000
ANSWER = pb.KeptAnswer(status=201, headers={"etag": '"1"'}, body=b"{}")


@pytest_asyncio.fixture
async def pool(postgres: PostgresServer) -> AsyncIterator[Pool]:
    postgres.truncate("reservations")
    async with database.pool(BaseServiceSettings(database_url=postgres.role_url("reservations"))) as opened:
        yield opened


class Calls:
    """Two gateways at one service."""

    def __init__(self, pool: Pool) -> None:
        self.clock = FakeClock()
        self._calls = AnswerCalls(KeptAnswers(pool, DAY_US), self.clock)

    async def claim(
        self, key: str = "k", body: bytes = b"b", owner: str = "alice", claim_us: int = 0
    ) -> pb.ClaimAnswerResponse:
        request = pb.ClaimAnswerRequest(
            owner=owner, operation="POST /v1/x", key=key, fingerprint=body, claim_us=claim_us
        )
        return await self._calls.ClaimAnswer(request, None)

    async def keep(self, claim: str, answer: pb.KeptAnswer | None, key: str = "k", owner: str = "alice") -> None:
        request = pb.KeepAnswerRequest(owner=owner, operation="POST /v1/x", key=key, claim=claim, answer=answer)
        await self._calls.KeepAnswer(request, None)


async def test_one_of_many_calls_claims_and_all_get_its_answer(pool: Pool) -> None:
    calls = Calls(pool)
    found = await asyncio.gather(*(calls.claim() for _ in range(8)))
    claims = [one.claim for one in found if one.claim]
    assert len(claims) == 1
    assert not any(one.HasField("answer") for one in found)
    await calls.keep(claims[0], ANSWER)
    assert (await calls.claim()).answer == ANSWER
    with pytest.raises(RefusalError) as caught:
        await calls.claim(body=b"other")
    assert (caught.value.refusal.code, caught.value.refusal.field) == ("idempotency-key-reused", "idempotency_key")
    assert (await calls.claim(owner="bob")).claim
    with pytest.raises(RefusalError):
        await calls.claim(key="")


async def test_what_is_given_back_is_free(pool: Pool) -> None:
    calls = Calls(pool)
    await calls.keep((await calls.claim()).claim, None)
    assert (await calls.claim(body=b"other")).claim


async def test_a_claim_may_be_short_but_not_long(pool: Pool) -> None:
    calls = Calls(pool)
    assert (await calls.claim("short", claim_us=5_000_000)).claim
    assert (await calls.claim("long", claim_us=100 * CLAIM_US)).claim
    await calls.clock.advance(6)
    assert (await calls.claim("short")).claim
    assert not (await calls.claim("long")).claim
    await calls.clock.advance(CLAIM_US / 1e6)
    assert (await calls.claim("long")).claim


async def test_a_claim_whose_gateway_died_is_free_after_a_while_for_the_same_call(pool: Pool) -> None:
    calls = Calls(pool)
    dead = (await calls.claim()).claim
    await calls.clock.advance(CLAIM_US / 1e6 - 1)
    assert not (await calls.claim()).claim
    await calls.clock.advance(2)
    with pytest.raises(RefusalError):
        await calls.claim(body=b"other")
    after = (await calls.claim()).claim
    assert after not in ("", dead)
    # The former was only slow: what it did is not told any more.
    with pytest.raises(RefusalError):
        await calls.keep(dead, ANSWER)
    await calls.keep(after, ANSWER)
    assert (await calls.claim()).answer == ANSWER


async def test_a_day_later_the_key_is_new(pool: Pool) -> None:
    calls = Calls(pool)
    await calls.keep((await calls.claim()).claim, ANSWER)
    await calls.clock.advance(24 * 3600 + 1)
    assert (await calls.claim(body=b"other")).claim
    await calls.clock.advance(24 * 3600 + 1)
    await Repository(pool, DAY_US).keep_house(calls.clock.now_us(), past=False)
    async with pool.connection() as connection:
        assert await (await connection.execute("SELECT 1 FROM kept_answer")).fetchone() is None
