"""Where the local platform keeps its state and on which addresses its parts listen.

Everything can be overridden in the environment or in the `.env` file at the root of the checkout.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def repository_root() -> Path:
    """The checkout that this module was installed from (editable install)."""
    return Path(__file__).resolve().parents[3]


class PlatformSettings(BaseSettings):
    """Settings of the embedded platform, prefix ``CHART_``."""

    model_config = SettingsConfigDict(env_prefix="CHART_", env_file=str(repository_root() / ".env"), extra="ignore")

    state_dir: Path = Field(default_factory=lambda: repository_root() / "var")
    build_dir: Path = Field(default_factory=lambda: repository_root() / "build")
    web_dir: Path = Field(default_factory=lambda: repository_root() / "web" / "dist")
    environment: str = "development"
    log_level: str = "info"

    kafka_port: int = 19092
    kafka_node_port: int = 19093
    kafka_controller_port: int = 19094
    kafka_heap_mb: int = 512
    # Mutual TLS at the broker, which then asks of every request who may do it; without: plain, on loopback and towards
    # the lab alone.
    kafka_tls: bool = False
    postgres_port: int = 15432
    gateway_port: int = 18080
    # gRPC of a service is at base + n, its health and metrics at base + 100 + n; the authority's HTTPS at base + 343.
    service_port_base: int = 18100
    management_address: str = "10.254.0.1"
    # Whether services check that records of nodes are written by these nodes (chart.common.record_check).
    record_authentication: Literal["off", "observe", "require"] = "require"
    # The local platform is there to be tried: its nodes enforce until an operator says otherwise.
    registry_first_enforcement: Literal["off", "observe", "enforce"] = "enforce"

    @property
    def kafka_bootstrap(self) -> str:
        """Where the services reach the broker."""
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def node_bootstrap(self) -> str:
        """Where agents and pods inside the lab's namespaces reach the broker."""
        return f"{self.management_address}:{self.kafka_node_port}"

    @property
    def authority_port(self) -> int:
        """HTTPS with mutual TLS."""
        return self.service_port_base + 343

    @property
    def authority_url(self) -> str:
        """Where services of this machine reach the authority."""
        return f"https://127.0.0.1:{self.authority_port}"

    @property
    def node_authority_url(self) -> str:
        """Where nodes of the lab reach the authority."""
        return f"https://{self.management_address}:{self.authority_port}"

    @property
    def authority_ca(self) -> Path:
        """Certificate of the authority itself."""
        return self.state_dir.resolve() / "authority" / "ca.pem"

    @property
    def authority_listen(self) -> tuple[str, ...]:
        """Addresses that the authority listens on; nodes of the lab exist only for root."""
        hosts = ("127.0.0.1", self.management_address) if os.geteuid() == 0 else ("127.0.0.1",)
        return tuple(f"{host}:{self.authority_port}" for host in hosts)

    @property
    def gateway_url(self) -> str:
        """Base address of REST and dashboard."""
        return f"http://127.0.0.1:{self.gateway_port}"

    @property
    def platform_dir(self) -> Path:
        """State of broker, database and process manager."""
        return self.state_dir / "platform"

    @property
    def broker_identities(self) -> Path:
        """Certificates of the broker and of the services that speak to it, a folder for each."""
        return self.platform_dir.resolve() / "broker"

    def database_url(self, role: str) -> str:
        """Connection address for one role; one role and schema per service."""
        return f"postgresql://{role}@127.0.0.1:{self.postgres_port}/chart"
