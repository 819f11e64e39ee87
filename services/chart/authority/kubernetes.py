"""The API server of the cluster that the authority runs in: reviews of tokens, the node of a pod, a published CA."""

from __future__ import annotations

import asyncio

import structlog

from chart.authority.settings import AuthoritySettings
from chart.common.kubernetes import ApiServer, KubernetesError, NotThereError

PUBLISH_EVERY_S = 60.0
PUBLISH_RETRY_S = 5.0
CA_KEY = "ca.pem"

_log = structlog.get_logger("chart.authority")


class Kubernetes(ApiServer):
    """The API server."""

    def __init__(self, settings: AuthoritySettings) -> None:
        super().__init__(
            settings.authority_kubernetes_url,
            settings.authority_kubernetes_ca_file,
            settings.authority_kubernetes_token_file,
        )

    async def node_of_pod(self, namespace: str, pod: str, uid: str) -> str | None:
        """The node that a pod runs on; None: that pod is no more, or another one has its name.

        Raises:
            KubernetesError: as `review`.
        """
        try:
            found = await self.ask("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")
        except NotThereError:
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
        await self.ask("PATCH", f"/api/v1/namespaces/{namespace}/configmaps/{name}", {"data": {CA_KEY: pem}})

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
