"""Where callbacks may go in production: to public addresses, under TLS.

The address that was checked is the one that is connected to: a name that is looked up twice, once to check it and once
to connect, may give a public address first and one of this network then (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable

import httpx

Resolve = Callable[[str, int], Awaitable[list[str]]]


class ForbiddenReceiverError(httpx.TransportError):
    """Nobody calls there; the message says why."""


async def resolve(host: str, port: int) -> list[str]:
    """Every address of a name.

    Raises:
        OSError: it has none.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(one[4][0]) for one in found]


class PublicReceivers(httpx.AsyncBaseTransport):
    """Connects to public addresses only, and for each request anew: connections are kept by address, and two names of
    one address must not share the certificate that was checked for one of them.
    """

    def __init__(self, connect: httpx.AsyncBaseTransport | None = None, find: Resolve = resolve) -> None:
        self._connect = connect or httpx.AsyncHTTPTransport(limits=httpx.Limits(max_keepalive_connections=0))
        self._find = find

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request to the checked address; certificate and `Host` are those of the name."""
        host, port = request.url.host, request.url.port or 443
        if request.url.scheme != "https":
            msg = "callbacks go to https addresses only"
            raise ForbiddenReceiverError(msg)
        try:
            addresses = await self._find(host, port)
        except OSError as error:
            msg = f"{host} has no address: {error}"
            raise ForbiddenReceiverError(msg) from error
        hidden = [address for address in addresses if not ipaddress.ip_address(address).is_global]
        if hidden or not addresses:
            msg = f"{host} is {hidden[0]}, which is no public address" if hidden else f"{host} has no address"
            raise ForbiddenReceiverError(msg)
        checked = httpx.Request(
            request.method,
            request.url.copy_with(host=addresses[0]),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        return await self._connect.handle_async_request(checked)

    async def aclose(self) -> None:
        """Close what is open."""
        await self._connect.aclose()
