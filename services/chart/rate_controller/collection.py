"""Objects of one kind in the whole cluster, kept up to date by listing and watching."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from chart.common.kubernetes import ApiServer, GoneError, KubernetesError, Object
from chart.common.retries import for_ever

PAGE = 500
PAUSE_S = (1.0, 30.0)

_log = structlog.get_logger("chart.rate_controller")


class Collection:
    """``keep``: what is kept of an object; a change of what is not kept is no news. ``own``: a part that is kept and
    that only the follower itself writes, no news either.
    """

    def __init__(
        self,
        api: ApiServer,
        path: str,
        keep: Callable[[Object], Object],
        news: Callable[[], object],
        own: str = "",
    ) -> None:
        self._api, self._path, self._keep, self._news, self._own = api, path, keep, news, own
        # By uid.
        self.objects: dict[str, Object] = {}
        self.read = asyncio.Event()

    async def run(self) -> None:
        """Follow the objects until cancelled."""

        def told(error: Exception, pause_s: float) -> None:
            _log.warning(
                "objects of the cluster cannot be followed", path=self._path, reason=str(error), pause_s=pause_s
            )

        while True:
            # Its pauses begin anew with every list that was read.
            await for_ever(self._follow, KubernetesError, told, PAUSE_S)

    async def _follow(self) -> None:
        version = await self._list()
        try:
            while True:
                async for kind, found in self._api.watch(self._path, version):
                    version = found["metadata"]["resourceVersion"]
                    if kind != "BOOKMARK":
                        self._take(kind, found)
        except GoneError:
            _log.info("the watch was too old, listing anew", path=self._path)

    async def _list(self) -> str:
        objects: dict[str, Object] = {}
        more = ""
        while True:
            found = await self._api.ask("GET", f"{self._path}?limit={PAGE}{more}")
            objects |= {one["metadata"]["uid"]: self._keep(one) for one in found["items"]}
            if not found["metadata"].get("continue"):
                break
            more = f"&continue={found['metadata']['continue']}"
        self.objects = objects
        self.read.set()
        self._news()
        return str(found["metadata"]["resourceVersion"])

    def _take(self, kind: str, found: Object) -> None:
        uid = found["metadata"]["uid"]
        before = self.objects.get(uid)
        if kind == "DELETED":
            self.objects.pop(uid, None)
            self._news()
            return
        after = self.objects[uid] = self._keep(found)
        if before is None or self._told(before) != self._told(after):
            self._news()

    def _told(self, one: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in one.items() if name != self._own}


def of_pod(pod: Object) -> Object:
    """What is kept of a pod; its addresses and phase are news."""
    about, status = pod["metadata"], pod.get("status") or {}
    return {
        "metadata": {
            **{name: about.get(name) for name in ("namespace", "name", "uid", "labels", "deletionTimestamp")},
            "annotations": {
                name: text for name, text in (about.get("annotations") or {}).items() if name.startswith("chart.io/")
            },
        },
        "spec": {"hostNetwork": bool((pod.get("spec") or {}).get("hostNetwork"))},
        "status": {name: status.get(name) for name in ("phase", "podIP", "podIPs")},
    }


def of_request(request: Object) -> Object:
    """What is kept of a RateRequest."""
    about = request["metadata"]
    kept = ("namespace", "name", "uid", "generation", "deletionTimestamp", "finalizers")
    return {
        "metadata": {name: about.get(name) for name in kept},
        "spec": request["spec"],
        "status": request.get("status") or {},
    }
