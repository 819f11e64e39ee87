"""The replicas of a service that is asked over HTTP: one of them is asked, until it fails."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import httpx


class Replicas:
    """Addresses, that of the next question first."""

    def __init__(self, urls: str) -> None:
        """``urls``: "https://HOST:PORT[,https://HOST:PORT]"."""
        self._urls = deque(url.strip().rstrip("/") for url in urls.split(","))

    @property
    def first(self) -> str:
        """The address that is asked next."""
        return self._urls[0]

    async def ask(
        self,
        send: Callable[[str], Awaitable[httpx.Response]],
        *,
        repeatable: Callable[[httpx.HTTPError], bool] = lambda _: True,
    ) -> httpx.Response:
        """What ``send`` gets from a replica; from the next one when it fails and may be repeated.

        A refusal (an `httpx.HTTPStatusError` of 4xx) is an answer: every replica would give the same.

        Raises:
            httpx.HTTPError: the last failure, or a refusal.
        """
        for left in reversed(range(len(self._urls))):
            try:
                return await send(self._urls[0])
            except httpx.HTTPError as error:
                if isinstance(error, httpx.HTTPStatusError) and error.response.status_code < 500:
                    raise
                self._urls.rotate(-1)
                if not left or not repeatable(error):
                    raise
        raise AssertionError
