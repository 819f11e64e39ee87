"""Calls of the authority with a certificate of its own: HTTPS with mutual TLS, replica after replica.

The certificate may appear after the process began, and it is renewed: its files are read again when they changed.
"""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from cryptography import x509

from chart.common.replicas import Replicas

TIMEOUT_S = 3.0
# X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED of OpenSSL.
_NOT_YET_VALID, _EXPIRED = 9, 10


class AuthorityCalls:
    """``base``: certificate and key without their endings .pem and .key; ``ca``: what the authority's own is checked
    with.
    """

    def __init__(self, urls: str, ca: Path, base: Path) -> None:
        self._urls = urls
        self._replicas = Replicas(urls)
        self.ca = ca
        self.certificate, self.key = base.with_name(f"{base.name}.pem"), base.with_name(f"{base.name}.key")
        self._client: httpx.AsyncClient | None = None
        self._seen_ns = 0

    async def get(self, path: str) -> Any:
        """The answer's JSON. Raises httpx.HTTPError or OSError; httpx.HTTPStatusError is a refusal."""
        return (await self._ask("GET", path, None, self._certified)).json()

    async def post(self, path: str, body: dict[str, Any], *, certified: bool = True) -> Any:
        """The answer's JSON; ``certified`` False: without a certificate (enrolment). Raises as `get`."""
        if certified:
            return (await self._ask("POST", path, body, self._certified)).json()
        async with httpx.AsyncClient(verify=self._context(), timeout=TIMEOUT_S, trust_env=False) as client:

            async def bare() -> httpx.AsyncClient:
                return client

            return (await self._ask("POST", path, body, bare)).json()

    async def close(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def words(self, error: Exception) -> str:
        """Why a call failed, in a sentence for people. A clock that is off is named, with the certificate's time and
        this machine's own.
        """
        if isinstance(error, httpx.HTTPStatusError):
            return problem_of(error)[1]
        fault = next((one for one in _causes(error) if isinstance(one, ssl.SSLCertVerificationError)), None)
        if fault is not None and fault.verify_code in (_NOT_YET_VALID, _EXPIRED):
            return await asyncio.to_thread(self._times_in_words, fault.verify_code)
        return str(error) or type(error).__name__

    def _times_in_words(self, verify_code: int) -> str:
        # What it presents is believed for these words alone.
        url = urlsplit(self._replicas.first)
        here = _second(datetime.datetime.now(datetime.UTC))
        try:
            pem = ssl.get_server_certificate((url.hostname or "", url.port or 443), timeout=TIMEOUT_S)
            presented = x509.load_pem_x509_certificate(pem.encode())
        except (OSError, ValueError):
            which = "is not yet valid" if verify_code == _NOT_YET_VALID else "is over"
            return f"the authority's certificate {which} at {here} of this machine's clock: set the clocks right"
        if verify_code == _NOT_YET_VALID:
            from_when = _second(presented.not_valid_before_utc)
            return f"the authority's certificate is not valid before {from_when}, and it is {here} here: {_CLOCKS}"
        until_when = _second(presented.not_valid_after_utc)
        return f"the authority's certificate expired at {until_when}, and it is {here} here: {_CLOCKS}"

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None, ready: Any) -> httpx.Response:
        async def send(url: str) -> httpx.Response:
            client = await ready()
            answer: httpx.Response = await client.request(method, url + path, json=body)
            return answer.raise_for_status()

        try:
            return await self._replicas.ask(send)
        except httpx.TransportError:
            # A connection of before a renewal, or to a replica that is gone: the next call begins anew.
            await self.close()
            raise

    async def _certified(self) -> httpx.AsyncClient:
        changed_ns = self.certificate.stat().st_mtime_ns
        if self._client is None or changed_ns != self._seen_ns:
            context = self._context()
            context.load_cert_chain(self.certificate, self.key)
            await self.close()
            self._client = httpx.AsyncClient(verify=context, timeout=TIMEOUT_S, trust_env=False)
            self._seen_ns = changed_ns
        return self._client

    def _context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))


_CLOCKS = "a clock is off, set them right (chrony or ntpd)"


def problem_of(error: httpx.HTTPStatusError) -> tuple[str, str]:
    """What the authority says in its problem document: the last part of its type, and the sentence."""
    try:
        problem = error.response.json()
        return str(problem.get("type", "")).rpartition(":")[2], str(problem["detail"])
    except (ValueError, KeyError, AttributeError):
        return "", f"the authority answered with status {error.response.status_code}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _second(moment: datetime.datetime) -> str:
    return moment.replace(microsecond=0).isoformat().replace("+00:00", "Z")
