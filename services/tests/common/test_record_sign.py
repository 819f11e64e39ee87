"""Signing by programs of a node: the key, its renewal, what waits for it."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx
import pytest

from chart.common import record_mac
from chart.common.clock import FakeClock
from chart.common.record_sign import ASK_EVERY_S, RecordSigner, keys_of
from chart.common.records import StreamUnavailable

TOPIC = "chart.measurement.v1"
KEYS = {1: bytes(range(32)), 2: bytes(32)}
AHEAD_US = 3_000_000


class Authority:
    """Answers with the keys of node alpha; its clock is ahead."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.refusal: int | None = None
        self.away = False
        self.epochs: tuple[int, ...] = (1,)
        self.life_us = 60_000_000

    async def get(self, path: str) -> Any:
        assert path == "/v1/stream-keys/alpha"
        if self.away:
            raise httpx.ConnectError("away")
        if self.refusal is not None:
            request = httpx.Request("GET", "https://authority")
            raise httpx.HTTPStatusError("refused", request=request, response=httpx.Response(self.refusal))
        now_us = self.clock.now_us() + AHEAD_US
        epochs = [
            {
                "epoch": epoch,
                "generation": epoch,
                "key": base64.b64encode(KEYS[epoch]).decode(),
                # The second is for later.
                "sign_from_us": now_us + 10_000_000 * (epoch - 1),
                "expires_at_us": now_us + self.life_us,
            }
            for epoch in self.epochs
        ]
        return {"epochs": epochs, "renew_at_us": now_us + self.life_us // 2, "now_us": now_us}

    async def words(self, error: Exception) -> str:
        return str(error)


def epoch_of(signer: RecordSigner) -> int:
    code = signer.header(TOPIC, "alpha,bravo,rtt_us", b"x")
    assert code is not None
    return record_mac.parse(code).epoch


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def authority(clock: FakeClock) -> Authority:
    return Authority(clock)


async def running(signer: RecordSigner, clock: FakeClock) -> asyncio.Task[None]:
    task = asyncio.create_task(signer.run())
    await clock.advance(0.01)
    return task


async def test_nothing_is_written_before_there_is_a_key(clock: FakeClock, authority: Authority) -> None:
    authority.away = True
    told: list[bool] = []
    signer = RecordSigner("alpha", authority, clock, lambda: told.append(True))
    task = await running(signer, clock)
    with pytest.raises(StreamUnavailable, match="wait for the node's key: away"):
        signer.header(TOPIC, "alpha,bravo,rtt_us", b"x")
    # What no node writes needs no code.
    assert signer.header("chart.estimate.v1", "alpha,bravo,rtt_us", b"x") is None
    authority.away = False
    await clock.advance(2)
    code = signer.header(TOPIC, "alpha,bravo,rtt_us", b"x")
    assert code == record_mac.header("alpha", 1, KEYS[1], TOPIC, "alpha,bravo,rtt_us", b"x")
    assert told == [True]
    task.cancel()


async def test_the_next_epoch_is_used_from_its_time_on(clock: FakeClock, authority: Authority) -> None:
    signer = RecordSigner("alpha", authority, clock)
    task = await running(signer, clock)
    authority.epochs = (1, 2)
    await clock.advance(ASK_EVERY_S)
    authority.away = True
    assert epoch_of(signer) == 1
    await clock.advance(10)
    assert epoch_of(signer) == 2
    # An authority that is away for longer than its keys live: nothing is signed any more, until it is back.
    await clock.advance(60)
    assert not signer.signs
    authority.away = False
    await clock.advance(2)
    assert signer.signs
    task.cancel()


@pytest.mark.parametrize("status", [403, 404])
async def test_a_revoked_node_signs_no_more(clock: FakeClock, authority: Authority, status: int) -> None:
    signer = RecordSigner("alpha", authority, clock)
    task = await running(signer, clock)
    assert signer.signs
    authority.refusal = status
    await clock.advance(ASK_EVERY_S)
    assert not signer.signs
    task.cancel()


async def test_times_are_moved_to_this_clock(clock: FakeClock, authority: Authority) -> None:
    now_us = clock.now_us()
    (found,) = keys_of(await authority.get("/v1/stream-keys/alpha"), now_us)
    assert (found.sign_from_us, found.expires_at_us) == (now_us, now_us + authority.life_us)
