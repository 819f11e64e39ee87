"""What runs on the local platform: for each program its command, environment, health check and order.

Pure: builds plain data from settings. `supervisor.py` turns it into a running platform.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from chart.maintenance.broker_identities import PROPERTIES
from chart_lab.platform.settings import PlatformSettings


@dataclass(frozen=True)
class Program:
    """One supervised process.

    ``stage`` orders the start: a stage begins when every program of the one before is healthy.
    ``health`` is an HTTP address that answers 200 when ready, or ``tcp:HOST:PORT``.
    """

    name: str
    command: tuple[str, ...]
    stage: int
    health: str
    environment: dict[str, str] = field(default_factory=dict)
    directory: Path | None = None
    stop_signal: str = "TERM"
    stop_wait_s: int = 15


SERVICES = ("registry", "allocator", "reservations", "archiver", "inference", "tunnels")


def grpc_port(settings: PlatformSettings, service: str) -> int:
    """Port of a service's gRPC interface on loopback."""
    return settings.service_port_base + 1 + SERVICES.index(service)


def http_port(settings: PlatformSettings, program: str) -> int:
    """Port where a service answers /healthz, /readyz and /metrics; of the gateway also everything else."""
    if program == "authority":
        return settings.service_port_base + 199
    return settings.gateway_port if program == "gateway" else grpc_port(settings, program) + 100


def service_environment(settings: PlatformSettings, service: str) -> dict[str, str]:
    """Environment of one service: addresses of everything it may talk to."""
    environment = {
        "CHART_KAFKA_BOOTSTRAP": settings.kafka_bootstrap,
        "CHART_STATE_DIR": str(settings.state_dir),
        "CHART_ENVIRONMENT": settings.environment,
        "CHART_LOG_LEVEL": settings.log_level,
        "CHART_RECORD_AUTHENTICATION": settings.record_authentication,
        "CHART_WEB_DIR": str(settings.web_dir),
        "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port(settings, service)}",
        **{f"CHART_{name.upper()}_TARGET": f"127.0.0.1:{grpc_port(settings, name)}" for name in SERVICES},
    }
    if service in SERVICES:
        environment["CHART_GRPC_LISTEN"] = f"127.0.0.1:{grpc_port(settings, service)}"
    if service == "registry":
        environment["CHART_REGISTRY_FIRST_ENFORCEMENT"] = settings.registry_first_enforcement
    if service == "authority":
        environment["CHART_AUTHORITY_LISTEN"] = ",".join(settings.authority_listen)
        environment["CHART_GATEWAY_PORT"] = str(settings.gateway_port)
    if service == "gateway":
        # The last address is the one that nodes of the lab reach.
        environment["CHART_AUTHORITY_PUBLIC_URL"] = f"https://{settings.authority_listen[-1]}"
    environment["CHART_AUTHORITY_URL"] = settings.authority_url
    if settings.kafka_tls:
        environment["CHART_KAFKA_PROPERTIES"] = str(settings.broker_identities / service / PROPERTIES)
    if service in ("registry", "reservations", "archiver", "authority", "tunnels"):
        environment["CHART_DATABASE_URL"] = settings.database_url(service)
    return environment


def _stage(name: str) -> int:
    """The authority first: the others have the keys of nodes' records from it before they read the first record."""
    return {"authority": 1, "gateway": 3}.get(name, 2)


def service_programs(settings: PlatformSettings) -> list[Program]:
    """The Python services; each is the console script that its distribution installs."""
    scripts = Path(sys.executable).parent
    return [
        Program(
            name=name,
            command=(str(scripts / f"chart-{name}"),),
            stage=_stage(name),
            health=f"http://127.0.0.1:{http_port(settings, name)}/readyz",
            environment=service_environment(settings, name),
        )
        for name in (*SERVICES, "authority", "gateway")
    ]
