"""Health and metrics over HTTP: /healthz (the process lives), /readyz (it can work), /metrics (Prometheus)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

import structlog
import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

CHECK_LIMIT_S = 2.0

# Passes by returning, fails by raising; the words of the error are shown. A returned False fails too.
Check = Callable[[], Awaitable[Any]]

_log = structlog.get_logger("chart.health")


async def run_checks(checks: Mapping[str, Check]) -> dict[str, str]:
    """Outcome of each check, all at once and each within 2 s: "ok" or why not."""

    async def outcome(check: Check) -> str:
        try:
            async with asyncio.timeout(CHECK_LIMIT_S):
                return "failed" if await check() is False else "ok"
        except TimeoutError:
            return f"no answer within {CHECK_LIMIT_S:g} s"
        except Exception as error:
            return str(error) or type(error).__name__

    return dict(zip(checks, await asyncio.gather(*(outcome(check) for check in checks.values())), strict=True))


class _Server(uvicorn.Server):
    """Leaves the signals to the service."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class HealthServer:
    """Serves health and metrics on ``listen`` ("host:port", port 0 takes a free one) inside its async context."""

    def __init__(self, listen: str, checks: Mapping[str, Check]) -> None:
        self._listen = listen
        self._checks = checks
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._socket: socket.socket | None = None
        self._was: dict[str, str] = {}

    @property
    def port(self) -> int:
        """The port that is listened on."""
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    async def __aenter__(self) -> HealthServer:
        host, port = self._listen.rsplit(":", 1)
        self._socket = socket.create_server((host.strip("[]"), int(port)), reuse_port=False)
        routes = [Route("/healthz", self._healthz), Route("/readyz", self._readyz), Route("/metrics", self._metrics)]
        config = uvicorn.Config(
            Starlette(routes=routes),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            ws="none",
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="health")
        while not self._server.started and not self._task.done():  # noqa: ASYNC110 - uvicorn offers a flag only
            await asyncio.sleep(0.005)
        if self._task.done():
            await self._task
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await asyncio.gather(self._task, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()

    async def _healthz(self, _request: Request) -> Response:
        return _json(200, {"status": "ok"})

    async def _readyz(self, _request: Request) -> Response:
        outcome = await run_checks(self._checks)
        if outcome != self._was:
            self._was = outcome
            failed = {name: words for name, words in outcome.items() if words != "ok"}
            if failed:
                _log.warning("not ready", **{"checks": failed})
            else:
                _log.info("ready")
        ready = all(words == "ok" for words in outcome.values())
        return _json(200 if ready else 503, {"status": "ok" if ready else "not ready", "checks": outcome})

    async def _metrics(self, _request: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def _json(status: int, body: dict[str, Any]) -> Response:
    return Response(json.dumps(body), status_code=status, media_type="application/json")
