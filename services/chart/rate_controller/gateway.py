"""The gateway, as the controller of a cluster: the requests of all its pods, and calls in the name of a namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

import httpx

from chart.rate_controller.asks import Ask
from chart.rate_controller.decisions import RATES, Existing
from chart.rate_controller.settings import RateControllerSettings

PAGE = 500


class AwayError(Exception):
    """The gateway, or something behind it, cannot be asked now; the words say why."""


class RefusedError(Exception):
    """The gateway refuses what was asked; the words say why and what would do."""


class GatewayClient:
    """An async context: its connections end with it."""

    def __init__(self, settings: RateControllerSettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._settings = settings
        verify = str(settings.gateway_ca_file) if settings.gateway_ca_file else True
        self._http = httpx.AsyncClient(
            base_url=settings.gateway_url.rstrip("/"),
            timeout=settings.gateway_timeout_s,
            verify=verify,
            trust_env=False,
            transport=transport,
        )

    async def __aenter__(self) -> GatewayClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def live(self) -> list[Existing]:
        """Every request of this cluster that is in force.

        Raises:
            AwayError: they cannot be had; so also when the gateway does not let this controller see them.
        """
        query = {"lifecycle": "ACTIVE", "tag": f"kubernetes.cluster={self._settings.cluster_name}", "limit": PAGE}
        found: list[Existing] = []
        cursor = None
        while True:
            try:
                page = await self._ask("GET", "/v1/rate-requests", query=query | ({"cursor": cursor} if cursor else {}))
            except RefusedError as error:
                raise AwayError(str(error)) from error
            found += [Existing.of(one) for one in page["items"]]
            cursor = page["next_cursor"]
            if not cursor:
                return found

    async def create(self, ask: Ask) -> Existing:
        """Ask for a rate.

        Raises:
            RefusedError: it is not granted.
            AwayError: the gateway cannot be asked; whether it was granted is seen in `live`.
        """
        body = ask.body(self._settings.cluster_name)
        return Existing.of(
            await self._ask("POST", "/v1/rate-requests", body, namespace=ask.namespace, addresses=(ask.address,))
        )

    async def change(self, one: Existing, ask: Ask) -> Existing:
        """Give a request the rate that is asked now.

        Raises:
            RefusedError, AwayError: as `create`; the request keeps what it has.
        """
        body = ask.body(self._settings.cluster_name)
        path = f"/v1/rate-requests/{one.id}"
        change = {name: body[name] for name in RATES}
        return Existing.of(await self._ask("PATCH", path, change, namespace=one.namespace, addresses=(ask.address,)))

    async def release(self, one: Existing) -> None:
        """Give a rate back; one that is over already is no error.

        Raises:
            RefusedError, AwayError: as `create`.
        """
        await self._ask("POST", f"/v1/rate-requests/{one.id}/release", namespace=one.namespace, over=True)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        namespace: str = "",
        addresses: Sequence[str] = (),
        over: bool = False,
    ) -> dict[str, Any]:
        try:
            token = await asyncio.to_thread(self._settings.gateway_token_file.read_text)
            headers = {"Authorization": f"Bearer {token.strip()}"}
            if namespace:
                headers["Chart-Namespace"] = namespace
            if addresses:
                headers["Chart-Pod-Addresses"] = ",".join(addresses)
            answer = await self._http.request(method, path, json=body, params=query, headers=headers)
            found = answer.json() if answer.content else {}
        except (httpx.HTTPError, OSError, ValueError) as error:
            words = str(error) or type(error).__name__
            raise AwayError(f"the gateway {self._settings.gateway_url} cannot be asked: {words}") from error
        if answer.is_success or (over and answer.status_code in (404, 409)):
            return found if isinstance(found, dict) else {}
        words = problem_words(found, answer.status_code)
        # 401: the token or the API server that reviews it; not what was asked.
        if answer.status_code in (401, 408, 429) or answer.is_server_error:
            raise AwayError(words)
        raise RefusedError(words)


def problem_words(problem: object, status: int) -> str:
    """A problem document (RFC 9457) in a sentence: what is wrong, and what would do."""
    if not isinstance(problem, dict) or "detail" not in problem:
        return f"the gateway answered with status {status}"
    suggestions = [str(one) for one in problem.get("suggestions") or ()][:2]
    return "; ".join([str(problem["detail"]).rstrip("."), *suggestions])
