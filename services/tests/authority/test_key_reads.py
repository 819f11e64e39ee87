"""Keys of pairs, as they are handed out from memory: for whom, what is refused, for how long; no database."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from chart.authority import tls
from chart.authority.api import create_app
from chart.authority.context import Authority, Buckets
from chart.authority.keys import HeldKey, Keys, _Entry
from chart.authority.service import Epoch, KeyTimes
from chart.authority.settings import AuthoritySettings
from chart.authority.tls import PEER_CERTIFICATE
from chart.authority.trust import Trust
from chart.common.clock import FakeClock, SystemClock
from support.authority import OtherAuthority

FAR_US = 10**12


class Elements(Trust):
    """Trust whose tables do not change."""

    async def refresh(self) -> None:
        self._read_at = self._clock.monotonic()


class World:
    """The application, and certificates of the domain."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._ca = folder, OtherAuthority()
        clock, absent = SystemClock(), cast("Any", None)
        trust = Elements(absent, clock, tls.server_context(), "chart.local", self._ca.certificate, 60)
        trust._read_at = clock.monotonic()
        trust.elements = {"alpha": 1, "bravo": 2, "mallory": 3}
        keys, now_us = Keys(absent, absent, clock, KeyTimes(FAR_US, 1)), clock.now_us()
        epoch = Epoch(1, now_us, now_us, now_us + FAR_US, now_us + FAR_US)
        keys._held["alpha", "bravo"] = _Entry([HeldKey(epoch, bytes(32))], clock.monotonic() + FAR_US)
        settings = AuthoritySettings(state_dir=folder)
        self._app = create_app(settings)
        self._app.state.authority = Authority(
            settings, clock, absent, absent, trust, keys, absent, absent, Buckets(1, 1), absent
        )

    def _certificate(self, identity: str) -> bytes:
        file, _ = self._ca.issue(self._folder, f"spiffe://chart.local/{identity}")
        return ssl.PEM_cert_to_DER_cert(Path(file).read_text())

    async def get(self, path: str, identity: str | None = "node/alpha") -> httpx.Response:
        """As the holder of a certificate."""
        der = self._certificate(identity) if identity is not None else None

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await self._app({**scope, PEER_CERTIFICATE: der}, receive, send)

        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="https://authority") as client:
            return await client.get(path)


@pytest.fixture
def place(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_both_ends_get_the_key(place: World) -> None:
    for identity in ("node/alpha", "node/bravo"):
        answer = await place.get("/v1/keys/alpha/bravo", identity)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert (found["sender_id"], found["receiver_id"], len(found["epochs"])) == (1, 2, 1)
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "identity", "status"),
    [
        ("/v1/keys/alpha/bravo", None, 401),
        ("/v1/keys/alpha/bravo", "node/mallory", 403),
        ("/v1/keys/alpha/bravo", "user/operator", 403),
        ("/v1/keys/alpha/bravo", "service/gateway", 403),
        ("/v1/keys/alpha/alpha", "node/alpha", 403),
        ("/v1/keys/alpha/nobody", "node/alpha", 404),
        ("/v1/keys/alpha/edge@b.example", "node/alpha", 403),
        ("/v1/keys/alpha/Bravo", "node/alpha", 422),
        ("/v1/keys/alpha/bravo'%3B--", "node/alpha", 422),
        (f"/v1/keys/alpha/{'b' * 300}", "node/alpha", 422),
        ("/v1/keys/alpha/bravo?start=perhaps", "node/alpha", 422),
        ("/v1/keys/alpha/bravo/more", "node/alpha", 404),
    ],
)
async def test_others_and_nonsense_get_none(place: World, path: str, identity: str | None, status: int) -> None:
    answer = await place.get(path, identity)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert 'key"' not in answer.text


class Read(Keys):
    """Keys whose reading of the database is counted, and may be disturbed."""

    def __init__(self, clock: FakeClock) -> None:
        absent = cast("Any", None)
        super().__init__(absent, absent, clock, KeyTimes(FAR_US, 1))
        self.reads = 0
        self.meanwhile: Callable[[], None] = lambda: None

    async def _read_and_make(self, pair: tuple[str, str], demanded_by: str | None) -> list[HeldKey]:
        self.reads += 1
        self.meanwhile()
        now_us = self._clock.now_us()
        return [HeldKey(Epoch(self.reads, now_us, now_us, now_us + FAR_US, now_us + FAR_US), bytes(32))]


async def test_a_pair_is_held_for_as_long_as_changes_are_told() -> None:
    clock = FakeClock()
    keys = Read(clock)

    async def reads_after(wait_s: float, *, heard: bool) -> int:
        await clock.advance(wait_s)
        if heard:
            keys.heard()
        await keys.of_pair("alpha", "bravo")
        return keys.reads

    # Nothing is told: a second, and it is read again.
    assert await reads_after(0, heard=False) == 1
    assert await reads_after(0.9, heard=False) == 1
    assert await reads_after(0.2, heard=False) == 2
    # What was read before the listening began may have missed a change.
    keys.follow()
    assert await reads_after(1.1, heard=True) == 3
    assert await reads_after(50, heard=True) == 3
    assert await reads_after(4, heard=False) == 4
    keys.heard()
    for told in ("alpha>bravo", "bravo"):
        reads = keys.reads
        keys.changed(told)
        assert await reads_after(0, heard=True) == reads + 1
    keys.changed("alpha>charlie")
    assert await reads_after(1, heard=True) == 6


@pytest.mark.parametrize("told", ["alpha>bravo", "alpha"])
async def test_what_a_change_overtook_is_not_held(told: str) -> None:
    clock = FakeClock()
    keys = Read(clock)
    keys.follow()
    keys.heard()
    keys.meanwhile = lambda: keys.changed(told)
    await keys.of_pair("alpha", "bravo")
    keys.meanwhile = lambda: None
    assert (await keys.of_pair("alpha", "bravo"))[0].epoch.generation == 2
    assert (await keys.of_pair("alpha", "bravo"))[0].epoch.generation == 2


async def test_a_pair_is_read_by_one_at_a_time() -> None:
    clock = FakeClock()
    keys = Read(clock)
    together = 0
    most = 0

    async def read(pair: tuple[str, str], demanded_by: str | None) -> list[HeldKey]:
        nonlocal together, most
        together += 1
        most = max(most, together)
        for _ in range(3):
            await asyncio.sleep(0)
        together -= 1
        return await Read._read_and_make(keys, pair, demanded_by)

    keys._read_and_make = read  # type: ignore[method-assign]

    async def ask(number: int) -> None:
        for _ in range(number):
            await asyncio.sleep(0)
        await keys.of_pair("alpha", "bravo", demanded_by="test")

    await asyncio.gather(*(ask(number) for number in range(20)))
    assert (keys.reads, most, len(keys._locks)) == (20, 1, 0)
