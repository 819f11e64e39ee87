"""The authority behind the gateway: HTTPS with the certificate of service/gateway, the caller's own token forwarded."""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Any

import httpx
from fastapi import Request

from chart.common.problems import ProblemError
from chart.common.replicas import Replicas
from chart.common.service_identity import ServiceIdentity
from chart.gateway.auth import SESSION_COOKIE
from chart.gateway.errors import away
from chart.gateway.settings import GatewaySettings

TIMEOUT_S = 5.0


class AuthorityClient:
    """Connects when first used; the certificate is read again when its file changed (it is renewed)."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._replicas = Replicas(settings.authority_url)
        self._identity = ServiceIdentity(settings, "service/gateway", settings.authority_identity)
        self._client: httpx.AsyncClient | None = None
        self._seen_ns = 0

    async def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    async def ask(self, method: str, path: str, request: Request, body: dict[str, Any] | None = None) -> Any:
        """The answer's JSON; what the authority refuses becomes the same problem here.

        Raises:
            ProblemError: the authority's own, or 503 when it cannot be reached.
        """
        header = request.headers.get("authorization")
        headers = {"Authorization": header or f"Bearer {request.cookies.get(SESSION_COOKIE, '')}"}
        if request.client is not None:
            headers["Chart-Client-Address"] = request.client.host
        try:
            answer = await self._send(method, path, body, headers)
            found = answer.json() if answer.content else None
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise away("The authority") from error
        if answer.is_success:
            return found
        raise _problem(answer.status_code, found if isinstance(found, dict) else {})

    async def ca_pem(self) -> str:
        """The certificate that the authority's own is checked with, PEM.

        Raises:
            ProblemError: 503, it is not there (yet).
        """
        try:
            return await asyncio.to_thread(self._identity.ca.read_text)
        except OSError as error:
            raise away("The certificate of the authority") from error

    async def _send(
        self, method: str, path: str, body: dict[str, Any] | None, headers: dict[str, str]
    ) -> httpx.Response:
        """Ask a replica, and the next when it is gone; what may have changed something already is not asked twice."""

        async def send(url: str) -> httpx.Response:
            client = await self._ready()
            return await client.request(method, url + path, json=body, headers=headers)

        def unheard(error: httpx.HTTPError) -> bool:
            return method == "GET" or isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))

        return await self._replicas.ask(send, repeatable=unheard)

    async def _ready(self) -> httpx.AsyncClient:
        await self._identity.ready()
        certificate = self._identity.certificate
        changed_ns = os.stat(certificate).st_mtime_ns  # noqa: PTH116 - a look at local metadata, no waiting
        if self._client is None or changed_ns != self._seen_ns:
            context = ssl.create_default_context(cafile=str(self._identity.ca))
            context.load_cert_chain(certificate, self._identity.key)
            if self._client is not None:
                # Calls that are under way end on the certificate that they began with.
                asyncio.get_running_loop().call_later(2 * TIMEOUT_S, _let_go, self._client)
            self._client = httpx.AsyncClient(verify=context, timeout=TIMEOUT_S, trust_env=False)
            self._seen_ns = changed_ns
        return self._client


def _let_go(client: httpx.AsyncClient) -> None:
    task = asyncio.ensure_future(client.aclose())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


# Tasks that nobody waits for; without this they might be collected before their end.
_closing: set[asyncio.Future[None]] = set()


def _problem(status: int, found: dict[str, Any]) -> ProblemError:
    detail = str(found.get("detail", "the authority gave no reason"))
    if status >= 500 or status == 401:
        return away("The authority") if status != 503 else ProblemError(503, "Service unavailable", detail)
    return ProblemError(
        status,
        str(found.get("title", "Refused")),
        detail,
        field=found.get("field"),
        ceiling=found.get("ceiling"),
        suggestions=tuple(found.get("suggestions", ())),
        kind=str(found.get("type", "refused")).rsplit(":", 1)[-1],
    )
