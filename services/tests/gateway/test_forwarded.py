"""A caller's address behind a proxy: a trusted forwarder states it, nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from chart.gateway import forwarded
from chart.gateway.forwarded import Forwarded


async def seen(forwarders: list[str], peer: str, stated: str | None) -> tuple[str, str]:
    """Address and scheme that the application sees of a request from ``peer``."""
    found: list[tuple[str, str]] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        found.append((scope["client"][0], scope["scheme"]))

    headers = [(b"x-forwarded-for", stated.encode()), (b"x-forwarded-proto", b"https")] if stated else []
    scope = {"type": "http", "scheme": "http", "client": (peer, 1234), "headers": headers}
    await Forwarded(app, forwarders)(scope, None, None)  # type: ignore[arg-type]
    return found[0]


@pytest.mark.parametrize(
    ("forwarders", "peer", "stated", "expected"),
    [
        ([], "127.0.0.1", "192.0.2.7", ("127.0.0.1", "http")),  # not even this machine
        (["10.0.0.2"], "10.0.0.3", "192.0.2.7", ("10.0.0.3", "http")),
        (["10.0.0.2"], "10.0.0.2", "192.0.2.7", ("192.0.2.7", "https")),
        (["10.0.0.2"], "10.0.0.2", None, ("10.0.0.2", "http")),
        (["10.0.0.0/24"], "10.0.0.9", "192.0.2.7", ("192.0.2.7", "https")),
        (["2001:db8::2"], "2001:db8::2", "2001:db8::7", ("2001:db8::7", "https")),
        # What the caller wrote himself stands left of what the forwarder added.
        (["10.0.0.2"], "10.0.0.2", "198.51.100.1, 192.0.2.7", ("192.0.2.7", "https")),
        (["10.0.0.2", "10.0.0.1"], "10.0.0.2", "192.0.2.7, 10.0.0.1", ("192.0.2.7", "https")),
    ],
)
async def test_whose_word_counts(
    forwarders: list[str], peer: str, stated: str | None, expected: tuple[str, str]
) -> None:
    assert await seen(forwarders, peer, stated) == expected


async def test_a_name_is_the_address_that_it_has_now(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"web": ["10.0.0.2"]}

    async def addresses(name: str) -> list[str]:
        return table.get(name, [])

    monkeypatch.setattr(forwarded, "_addresses", addresses)
    assert await seen(["web"], "10.0.0.2", "192.0.2.7") == ("192.0.2.7", "https")
    assert await seen(["gone"], "10.0.0.2", "192.0.2.7") == ("10.0.0.2", "http")
    monkeypatch.setattr(forwarded, "RESOLVED_FOR_S", 0.0)
    table["web"] = ["10.0.0.5"]
    assert await seen(["web"], "10.0.0.2", "192.0.2.7") == ("10.0.0.2", "http")
    assert await seen(["web"], "10.0.0.5", "192.0.2.7") == ("192.0.2.7", "https")


async def test_an_unknown_name_is_nobody() -> None:
    assert await forwarded._addresses("no-such-host.invalid") == []
    assert "127.0.0.1" in await forwarded._addresses("localhost")
