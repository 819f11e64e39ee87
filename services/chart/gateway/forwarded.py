"""Who asks, behind a proxy: the address and scheme that a trusted forwarder states are taken, those of nobody else.

Limits for callers without a token and "your own address" of authorisations rest on that address: who may state it,
states anybody's.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections.abc import Sequence
from typing import Any, cast

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

# Of names; a proxy that was replaced has another address.
RESOLVED_FOR_S = 10.0


class Forwarded:
    """ASGI middleware. ``forwarders``: addresses, networks and host names."""

    def __init__(self, app: ASGIApp, forwarders: Sequence[str]) -> None:
        self._app = app
        self._literal = [one for one in forwarders if _is_network(one)]
        self._names = [one for one in forwarders if not _is_network(one)]
        self._proxy = _proxy(app, self._literal)
        self._resolve_at = float("-inf")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if not self._literal and not self._names:
            await self._app(scope, receive, send)
            return
        if self._names and time.monotonic() >= self._resolve_at:
            self._resolve_at = time.monotonic() + RESOLVED_FOR_S
            found = [address for name in self._names for address in await _addresses(name)]
            self._proxy = _proxy(self._app, [*self._literal, *found])
        await self._proxy(scope, receive, send)


def _proxy(app: ASGIApp, trusted: list[str]) -> ASGIApp:
    # uvicorn has types of its own for the same things.
    made: Any = ProxyHeadersMiddleware(cast("Any", app), trusted)
    return cast("ASGIApp", made)


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return True


async def _addresses(name: str) -> list[str]:
    """Of a host; none while it has none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None)
    except OSError:
        return []
    return sorted({str(one[4][0]) for one in found})
