"""The API server of the cluster that a service runs in, called as the pod's own service account.

The account's token is read again for every call, because the cluster renews it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx

TIMEOUT_S = 5.0
# A watch that says nothing for so long is begun anew; the server ends each of them after this at the latest.
WATCH_S = 240
ACCOUNT_FILES = Path("/var/run/secrets/kubernetes.io/serviceaccount")

Object = dict[str, Any]


class KubernetesError(Exception):
    """The API server did not do what it was asked; the words say why."""


class NotThereError(KubernetesError):
    """404: the object was not found."""


class ConflictError(KubernetesError):
    """409: the object is there already, or was changed by somebody else."""


class GoneError(KubernetesError):
    """410: the watch began too long ago; list anew."""


_ERRORS = {404: NotThereError, 409: ConflictError, 410: GoneError}


class ApiServer:
    """``url``: https://HOST:PORT, or http:// in tests; the files are those that are mounted into a pod."""

    def __init__(
        self,
        url: str,
        ca_file: Path = ACCOUNT_FILES / "ca.crt",
        token_file: Path = ACCOUNT_FILES / "token",
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._url = url.rstrip("/")
        self._ca_file, self._token_file = ca_file, token_file
        self._timeout_s = timeout_s
        self._trust: tuple[int, ssl.SSLContext] | None = None

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Object:
        """The answer to one call; a PATCH is a JSON merge patch (RFC 7396).

        Raises:
            NotThereError, ConflictError: 404, 409.
            KubernetesError: it cannot be asked, or refuses for another reason.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            headers = {**await self._headers(), "Content-Type": kind}
            async with self._client(self._timeout_s) as client:
                answer = await client.request(method, self._url + path, json=body, headers=headers)
            found = answer.json()
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise self._away(error) from error
        if answer.is_success and isinstance(found, dict):
            return found
        raise _refused(answer.status_code, found, f"{method} {path}")

    async def review(self, token: str, audience: str) -> Mapping[str, Any]:
        """What the cluster says of a token: the status of a TokenReview.

        Raises:
            KubernetesError: the API server cannot be asked, or does not let this service account ask.
        """
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [audience]},
        }
        found = await self.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
        status = found.get("status")
        return status if isinstance(status, dict) else {}

    async def watch(self, path: str, version: str) -> AsyncIterator[tuple[str, Object]]:
        """What happens to the objects of a list after a resource version: ADDED, MODIFIED, DELETED or BOOKMARK and the
        object; returns when the server ends the watch.

        Raises:
            GoneError: the version is too old.
            KubernetesError: as `ask`.
        """
        query = f"?watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={version}"
        limits = httpx.Timeout(self._timeout_s, read=WATCH_S + self._timeout_s)
        try:
            async with (
                self._client(limits) as client,
                client.stream("GET", self._url + path + query, headers=await self._headers()) as answer,
            ):
                if not answer.is_success:
                    await answer.aread()
                    raise _refused(answer.status_code, {}, f"GET {path}")
                async for line in answer.aiter_lines():
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise _refused(event["object"].get("code", 500), event["object"], f"watching {path}")
                    yield event["type"], event["object"]
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise self._away(error) from error

    async def _headers(self) -> dict[str, str]:
        own = await asyncio.to_thread(self._token_file.read_text)
        return {"Authorization": f"Bearer {own.strip()}"}

    def _away(self, error: Exception) -> KubernetesError:
        return KubernetesError(f"the API server {self._url} cannot be asked: {str(error) or type(error).__name__}")

    def _client(self, timeout: float | httpx.Timeout) -> httpx.AsyncClient:
        if self._url.startswith("http:"):
            return httpx.AsyncClient(timeout=timeout, trust_env=False)
        # The file is replaced when the cluster rotates its CA.
        changed = self._ca_file.stat().st_mtime_ns
        if self._trust is None or self._trust[0] != changed:
            self._trust = changed, ssl.create_default_context(cafile=str(self._ca_file))
        return httpx.AsyncClient(verify=self._trust[1], timeout=timeout, trust_env=False)


def claims_of(token: str) -> Mapping[str, Any]:
    """What a token (JWT) says of itself, believed by nobody; empty: it cannot be read."""
    part = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        found = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, binascii.Error):
        return {}
    return found if isinstance(found, dict) else {}


def _refused(status: int, found: Any, what: str) -> KubernetesError:
    words = str(found.get("message", status)) if isinstance(found, dict) else str(status)
    return _ERRORS.get(status, KubernetesError)(f"the API server refused {what}: {words[:300]}")
