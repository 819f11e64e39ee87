"""`chart-gateway`: the REST interface, the event stream and the dashboard on ``CHART_HTTP_LISTEN``."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator

import structlog
import uvicorn

from chart.common import runtime, telemetry
from chart.gateway.api import attach, create_app
from chart.gateway.service import ConfigurationError, key_source, running
from chart.gateway.settings import GatewaySettings

STOP_GRACE_S = 3

_log = structlog.get_logger("chart.gateway")


class _Server(uvicorn.Server):
    """Leaves the signals to the runtime."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(address: str) -> socket.socket:
    """A listening socket on "host:port"; raises OSError when it cannot be had."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, int(port)), family=family, backlog=1024)
    # Accepted connections inherit it. Without it the body of an answer waits 40 ms for the client's delayed ACK of the
    # headers, since the event loop sets it only on sockets whose protocol number is stated.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


async def serve(settings: GatewaySettings, listening: socket.socket) -> None:
    """Serve until cancelled; event streams are ended with a reason, requests under way get 3 s."""
    async with running(settings) as gateway:
        app = create_app(settings)
        attach(app, gateway)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            # Whose word counts is a setting (forwarded.py); uvicorn would take this machine's.
            proxy_headers=False,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=STOP_GRACE_S,
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        _log.info("the gateway listens", address="{}:{}".format(*listening.getsockname()[:2]))
        try:
            await asyncio.shield(task)
        finally:
            gateway.hub.close()
            server.should_exit = True
            await asyncio.gather(task, return_exceptions=True)


def main() -> None:
    """Entry point of the console script."""
    settings = GatewaySettings()
    telemetry.setup("gateway", settings)
    try:
        key_source(settings)
        listening = listen(settings.http_listen)
    except (ConfigurationError, OSError, ValueError) as error:
        _log.critical("the gateway cannot start", listen=settings.http_listen, error=str(error))
        sys.exit(1)
    with listening:
        sys.exit(runtime.run(serve(settings, listening)))


if __name__ == "__main__":
    main()
