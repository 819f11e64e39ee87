"""A small Kubernetes cluster in this process: pods, RateRequests and events over the API server's own interface, with
lists, watches, merge patches, finalizers and conflicts; tokens are reviewed as in `support.kubernetes`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from chart.gateway.main import listen
from support.kubernetes import OWN_TOKEN, review
from support.waiting import eventually

KINDS = {"pods": "Pod", "raterequests": "RateRequest", "events": "Event"}


def merged(target: Any, change: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(change, dict):
        return change
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in change.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


@dataclass
class Cluster:
    """Objects by plural, namespace and name."""

    objects: dict[tuple[str, str, str], dict[str, Any]] = field(default_factory=dict)
    away: bool = False
    # Watches that began before this version are told that it is gone, once.
    forget: bool = False
    url: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    _versions: Any = field(default_factory=lambda: itertools.count(1))
    _watchers: list[tuple[str, asyncio.Queue[dict[str, Any] | None]]] = field(default_factory=list)

    def put(self, plural: str, namespace: str, name: str, document: dict[str, Any]) -> dict[str, Any]:
        """Make or change an object."""
        key = plural, namespace, name
        before = self.objects.get(key)
        about = {
            **(before or {}).get("metadata", {}),
            **document.get("metadata", {}),
            "namespace": namespace,
            "name": name,
            "resourceVersion": str(next(self._versions)),
        }
        about.setdefault("uid", f"uid-of-{namespace}-{name}-{about['resourceVersion']}")
        changed = before is None or before.get("spec") != document.get("spec")
        about["generation"] = about.get("generation", 0) + changed
        self.objects[key] = {**document, "metadata": about}
        self._tell("MODIFIED" if before else "ADDED", plural, self.objects[key])
        if about.get("deletionTimestamp") and not about.get("finalizers"):
            self._drop(key)
        return self.objects[key]

    def pod(self, namespace: str, name: str, address: str = "", **annotations: str) -> dict[str, Any]:
        """A pod; ``chart_io`` style annotations come with their whole name."""
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]} if address else {}
        known = {one.replace("_", "-"): text for one, text in annotations.items()}
        return self.put(
            "pods",
            namespace,
            name,
            {
                "metadata": {
                    "labels": {"app": name.partition("-")[0]},
                    "annotations": {f"chart.io/{one}": text for one, text in known.items()},
                },
                "spec": {"nodeName": "node-a"},
                "status": status,
            },
        )

    def request(self, namespace: str, name: str, **spec: Any) -> dict[str, Any]:
        """A RateRequest."""
        before = self.objects.get(("raterequests", namespace, name), {})
        return self.put("raterequests", namespace, name, {**before, "spec": spec})

    def delete(self, plural: str, namespace: str, name: str) -> None:
        """Delete an object, or mark it when it has finalizers."""
        key = plural, namespace, name
        about = self.objects[key]["metadata"]
        if about.get("finalizers"):
            self.put(plural, namespace, name, merged(self.objects[key], {"metadata": {"deletionTimestamp": "now"}}))
            return
        self._drop(key)

    def status(self, name: str, namespace: str = "batch") -> dict[str, Any]:
        """The status of a RateRequest."""
        found: dict[str, Any] = self.objects["raterequests", namespace, name].get("status") or {}
        return found

    def events(self, of: str) -> list[str]:
        """Reasons and messages of an object's events."""
        return [
            f"{one['type']} {one['reason']} {one['message']}"
            for (plural, _, _), one in self.objects.items()
            if plural == "events" and one["involvedObject"]["name"] == of
        ]

    def _drop(self, key: tuple[str, str, str]) -> None:
        self._tell("DELETED", key[0], self.objects.pop(key))

    def _tell(self, kind: str, plural: str, document: dict[str, Any]) -> None:
        for wanted, queue in self._watchers:
            if wanted == plural:
                queue.put_nowait({"type": kind, "object": json.loads(json.dumps(document))})

    def end_watches(self) -> None:
        """As a restart of the API server would."""
        for _, queue in self._watchers:
            queue.put_nowait(None)

    async def answer(self, call: Request) -> Response:
        """One call."""
        path, method = call.url.path, call.method
        self.calls.append((method, path))
        if call.headers.get("authorization") != f"Bearer {OWN_TOKEN}":
            return _refusal(401, "Unauthorized")
        if self.away:
            return _refusal(503, "etcd is away")
        body: Any = await call.json() if method in ("POST", "PATCH") else None
        if path.endswith("/tokenreviews"):
            return JSONResponse({"status": review(body["spec"])}, 201)
        parts = path.removeprefix("/api/v1").removeprefix("/apis/chart.io/v1alpha1").strip("/").split("/")
        if parts[0] != "namespaces":
            return self._watched(parts[0]) if "watch" in call.query_params else self._listed(parts[0])
        _, namespace, plural, *rest = parts
        if method == "POST":
            name = body["metadata"]["name"]
            if (plural, namespace, name) in self.objects:
                return _refusal(409, f"{name} already exists")
            return JSONResponse(self.put(plural, namespace, name, body), 201)
        return self._one(method, (plural, namespace, rest[0]), rest[1:], body)

    def _one(self, method: str, key: tuple[str, str, str], part: list[str], body: Any) -> Response:
        known = self.objects.get(key)
        if known is None:
            return _refusal(404, f"{key[2]} not found")
        if method == "PATCH":
            wanted = body.get("metadata", {}).get("uid")
            if wanted and wanted != known["metadata"]["uid"]:
                return _refusal(409, "another object has this name")
            change = (
                {"status": body["status"]} if part == ["status"] else {k: v for k, v in body.items() if k != "status"}
            )
            known = self.put(*key, merged(known, change))
        return JSONResponse(known)

    def _listed(self, plural: str) -> Response:
        items = [one for (kind, _, _), one in self.objects.items() if kind == plural]
        return JSONResponse({"metadata": {"resourceVersion": str(next(self._versions))}, "items": items})

    def _watched(self, plural: str) -> Response:
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        if self.forget:
            self.forget = False
            queue.put_nowait({"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
        self._watchers.append((plural, queue))

        async def lines() -> AsyncIterator[str]:
            try:
                while (one := await queue.get()) is not None:
                    yield json.dumps(one) + "\n"
            finally:
                self._watchers.remove((plural, queue))

        return StreamingResponse(lines())


def _refusal(status: int, message: str) -> Response:
    return JSONResponse({"kind": "Status", "message": message, "code": status}, status)


@asynccontextmanager
async def running_cluster() -> AsyncIterator[Cluster]:
    """One on a free port of loopback."""
    cluster = Cluster()
    methods = ["GET", "POST", "PATCH"]
    app = Starlette(routes=[Route("/{path:path}", cluster.answer, methods=methods)])
    socket = listen("127.0.0.1:0")
    server = uvicorn.Server(
        uvicorn.Config(app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
    )
    task = asyncio.create_task(server._serve([socket]))
    cluster.url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    try:
        await eventually(lambda: server.started)
        yield cluster
    finally:
        cluster.end_watches()
        server.should_exit = True
        await task
        socket.close()
