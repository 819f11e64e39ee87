"""The platform as `make up` starts it, in a folder and on ports of its own, and further replicas of its authority."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import httpx

from chart.authority.settings import AuthoritySettings
from chart_lab.platform.programs import service_programs
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.stack import MANAGEMENT_BRIDGE, Platform, remove_management_bridge
from support.authority import Place
from support.processes import free_ports
from support.waiting import eventually

# Services listen on ports counted from a base: grpc, health, and the authority's HTTPS as the last.
PORTS_OF_SERVICES = 400


def _free_base() -> int:
    """A base for the ports of services of which nobody listens on the authority's."""
    for base in random.sample(range(30_000, 60_000, PORTS_OF_SERVICES), 50):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", base + 343)):
            return base
    msg = "no free ports"
    raise RuntimeError(msg)


@contextmanager
def platform_up(folder: Path, environment: Mapping[str, str]) -> Iterator[Platform]:
    """Up by the code of `make up`, with its settings but for folder and ports, and with CHART_KAFKA_TLS=1;
    ``environment``: what an operator would state before it.
    """
    kafka, nodes, controller, postgres, gateway = free_ports(5)
    settings = PlatformSettings(
        state_dir=folder, kafka_port=kafka, kafka_node_port=nodes, kafka_controller_port=controller,
        postgres_port=postgres, gateway_port=gateway, service_port_base=_free_base(), log_level="debug",
        kafka_tls=True,
    )  # fmt: skip
    # One that runs beside has the bridge; it keeps it.
    beside = Path(f"/sys/class/net/{MANAGEMENT_BRIDGE}").exists()
    platform = Platform(settings)
    os.environ.update(environment)
    try:
        platform.up(lambda _: None)
        yield platform
    finally:
        for name in environment:
            del os.environ[name]
        platform.supervisor.stop(platform.programs())
        if not beside and os.geteuid() == 0:
            remove_management_bridge()


def place_of(settings: PlatformSettings, port: int) -> Place:
    """Clients of a replica on a port of loopback."""
    listen = f"127.0.0.1:{port}"
    told = AuthoritySettings(
        state_dir=settings.state_dir, authority_listen=listen, database_url=settings.database_url("authority")
    )
    return Place(told, settings.state_dir, f"https://{listen}")


class Replica:
    """A replica of the platform's authority; without a process: the platform's own."""

    def __init__(self, place: Place, process: subprocess.Popen[bytes] | None, log: Path) -> None:
        self.place, self.process, self.log = place, process, log

    @classmethod
    def own(cls, platform: Platform) -> Replica:
        """The one that `make up` started."""
        settings = platform.settings
        log = settings.platform_dir / "logs" / "authority.log"
        return cls(place_of(settings, settings.authority_port), None, log)

    @classmethod
    def further(cls, platform: Platform, log: Path, environment: Mapping[str, str] | None = None) -> Replica:
        """One more, by the platform's command and environment, on other ports."""
        settings = platform.settings
        (program,) = [one for one in service_programs(settings) if one.name == "authority"]
        port, http_port = free_ports(2)
        listen = {"CHART_AUTHORITY_LISTEN": f"127.0.0.1:{port}", "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}"}
        given = {**os.environ, **program.environment, **listen, **(environment or {})}
        with log.open("ab") as file:
            process = subprocess.Popen(program.command, env=given, stdout=file, stderr=file)
        return cls(place_of(settings, port), process, log)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.place.settings.authority_listen.split(":")
        return host, int(port)

    async def ready(self) -> None:
        async def answers() -> bool:
            if self.process is not None and self.process.poll() is not None:
                raise RuntimeError(self.log.read_text()[-2000:])
            if not self.place.has("user-operator"):
                return False
            try:
                return (await self.place.operator.get("/v1/elements")).status_code == 200
            except httpx.HTTPError:
                return False

        await eventually(answers, 30)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End a further one."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(20)
