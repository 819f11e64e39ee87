"""Callbacks in production: public addresses, TLS, and a connection to the address that was checked."""

from __future__ import annotations

import httpx
import pytest

from chart.reservations.edges.receivers import ForbiddenReceiverError, PublicReceivers


class Connected(httpx.AsyncBaseTransport):
    """Notes where a request went."""

    def __init__(self) -> None:
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(200)


class Names:
    """A name service whose answers change from one question to the next."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def __call__(self, _host: str, _port: int) -> list[str]:
        self.asked += 1
        if not self._answers:
            msg = "Name or service not known"
            raise OSError(msg)
        return self._answers.pop(0)


async def call(url: str, names: Names) -> list[httpx.Request]:
    connected = Connected()
    async with httpx.AsyncClient(transport=PublicReceivers(connected, names), trust_env=False) as client:
        await client.post(url, content=b"notice")
    return connected.requests


async def test_the_checked_address_is_connected_to_under_the_name_of_the_url() -> None:
    """The second answer, of this network, is never asked for."""
    names = Names(["93.184.216.34"], ["10.0.0.1"])
    (request,) = await call("https://app.example:8443/notices?x=1", names)
    assert request.url == "https://93.184.216.34:8443/notices?x=1"
    assert request.headers["host"] == "app.example:8443"
    assert request.extensions["sni_hostname"] == "app.example"
    assert names.asked == 1


@pytest.mark.parametrize(
    ("url", "addresses", "says"),
    [
        ("http://app.example/", ["93.184.216.34"], "https addresses only"),
        ("https://app.example/", ["127.0.0.1"], r"app.example is 127.0.0.1, which is no public address"),
        ("https://app.example/", ["93.184.216.34", "169.254.169.254"], "169.254.169.254, which is no public address"),
        ("https://app.example/", ["::ffff:10.0.0.1"], "no public address"),
        ("https://[fd00::1]/", ["fd00::1"], "no public address"),
        ("https://app.example/", [], "app.example has no address"),
    ],
)
async def test_other_receivers_are_not_called(url: str, addresses: list[str], says: str) -> None:
    with pytest.raises(ForbiddenReceiverError, match=says):
        await call(url, Names(addresses))


async def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(ForbiddenReceiverError, match=r"app\.example has no address: Name or service not known"):
        await call("https://app.example/", Names())
