"""The API server of the cluster that the authority runs in: reviews of tokens, the node of a pod, a published CA.

Calls as the pod's own service account does: its token is read again for every call, because the cluster renews it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any

import httpx
import structlog

from chart.authority.settings import AuthoritySettings

TIMEOUT_S = 5.0
PUBLISH_EVERY_S = 60.0
PUBLISH_RETRY_S = 5.0
CA_KEY = "ca.pem"

_log = structlog.get_logger("chart.authority")


class KubernetesError(Exception):
    """The API server did not do what it was asked; the words say why."""


class Kubernetes:
    """The API server."""

    def __init__(self, settings: AuthoritySettings) -> None:
        self._url = settings.authority_kubernetes_url.rstrip("/")
        self._ca_file = settings.authority_kubernetes_ca_file
        self._token_file = settings.authority_kubernetes_token_file

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
        found = await self._ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
        status = found.get("status")
        return status if isinstance(status, dict) else {}

    async def node_of_pod(self, namespace: str, pod: str, uid: str) -> str | None:
        """The node that a pod runs on; None: that pod is no more, or another one has its name.

        Raises:
            KubernetesError: as `review`.
        """
        try:
            found = await self._ask("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
        except _NotThereError:
            return None
        if found.get("metadata", {}).get("uid") != uid:
            return None
        name = found.get("spec", {}).get("nodeName")
        return name if isinstance(name, str) and name else None

    async def publish(self, config_map: str, pem: str) -> None:
        """Put a certificate into the config map "namespace/name" under `CA_KEY`.

        Raises:
            KubernetesError: as `review`; the config map is not found.
        """
        namespace, _, name = config_map.partition("/")
        await self._ask("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/{name}", {"data": {CA_KEY: pem}})

    async def keep_published(self, config_map: str, pem: str) -> None:
        """`publish` until cancelled: also what came anew without it is given it again."""
        good = False
        while True:
            try:
                await self.publish(config_map, pem)
            except KubernetesError as error:
                _log.warning("the authority's certificate is not published, trying again", reason=str(error))
                await asyncio.sleep(PUBLISH_RETRY_S)
                continue
            if not good:
                _log.info("the authority's certificate is published", config_map=config_map)
            good = True
            await asyncio.sleep(PUBLISH_EVERY_S)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            own = await asyncio.to_thread(self._token_file.read_text)
            headers = {"Authorization": f"Bearer {own.strip()}", "Content-Type": kind}
            async with self._client() as client:
                answer = await client.request(method, self._url + path, json=body, headers=headers)
            found = answer.json()
        except (httpx.HTTPError, OSError, ValueError) as error:
            words = str(error) or type(error).__name__
            raise KubernetesError(f"the API server {self._url} cannot be asked: {words}") from error
        if answer.is_success and isinstance(found, dict):
            return found
        words = str(found.get("message", answer.status_code)) if isinstance(found, dict) else str(answer.status_code)
        kind_of_error = _NotThereError if answer.status_code == httpx.codes.NOT_FOUND else KubernetesError
        raise kind_of_error(f"the API server refused {method} {path}: {words[:300]}")

    def _client(self) -> httpx.AsyncClient:
        if self._url.startswith("http:"):
            return httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False)
        # Made for every call: calls are few, and the cluster's own CA file is replaced when the cluster rotates it.
        context = ssl.create_default_context(cafile=str(self._ca_file))
        return httpx.AsyncClient(verify=context, timeout=TIMEOUT_S, trust_env=False)


class _NotThereError(KubernetesError):
    """404."""
