"""The embedded platform as a whole: up, down, status."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from chart.common import kafka_properties
from chart.maintenance import broker_identities
from chart_lab.platform import broker_tls, kafka, postgres
from chart_lab.platform.programs import Program, service_programs
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.supervisor import ProgramStatus, Supervisor

MANAGEMENT_BRIDGE = "chart-mgmt"

Progress = Callable[[str], None]


class Platform:
    """Broker, database and services of one machine."""

    def __init__(self, settings: PlatformSettings) -> None:
        self.settings = settings
        self.supervisor = Supervisor(settings.platform_dir)

    def up(self, progress: Progress) -> None:
        """Start everything in order and wait for each health check; what runs already stays as it is.

        Raises:
            SupervisorError, KafkaUnavailableError, PostgresUnavailableError: with what to do about it.
        """
        settings = self.settings
        with_nodes = os.geteuid() == 0
        if with_nodes:
            ensure_management_bridge(settings.management_address)
        protection = broker_tls.prepare(settings) if settings.kafka_tls else None
        broker = kafka.prepare(settings, with_nodes=with_nodes, protection=protection)
        infrastructure = [broker, postgres.prepare(settings)]
        services = service_programs(settings)
        self.supervisor.launch([*infrastructure, *services])
        self.supervisor.start_all(infrastructure, lambda name: progress(f"{name} is up"))
        self._apply_topics()
        progress("streams are there")
        self.migrate()
        progress("database is migrated")
        self.supervisor.start_all(services, lambda name: progress(f"{name} is up"))

    def _apply_topics(self) -> None:
        from chart.common.topics import apply

        apply(self.settings.kafka_bootstrap, properties=self.broker_properties(broker_identities.ADMINISTRATOR))

    def broker_properties(self, name: str) -> dict[str, str] | None:
        """Settings by which a service speaks to the broker; None: in plain."""
        if not self.settings.kafka_tls:
            return None
        return kafka_properties.load(str(self.settings.broker_identities / name / broker_identities.PROPERTIES))

    def migrate(self) -> None:
        """Create the database when missing and bring every schema up to date; safe to repeat."""
        from chart.common.migrate import upgrade

        upgrade(postgres.create_database(self.settings))

    def running(self) -> bool:
        """Whether the platform's process manager runs."""
        return self.supervisor.running()

    def programs(self) -> list[Program]:
        """Every program, without preparing anything."""
        settings = self.settings
        return [
            Program("kafka", (), 0, f"tcp:127.0.0.1:{settings.kafka_port}"),
            Program("postgres", (), 0, f"tcp:127.0.0.1:{settings.postgres_port}"),
            *service_programs(settings),
        ]

    def status(self) -> list[ProgramStatus]:
        """State and health of every program."""
        return self.supervisor.status(self.programs())

    def down(self, *, purge: bool = False) -> None:
        """Stop everything; ``purge`` also forgets the streams and the database."""
        self.supervisor.stop(self.programs())
        if os.geteuid() == 0:
            remove_management_bridge()
        if purge:
            shutil.rmtree(self.settings.platform_dir, ignore_errors=True)


def ensure_management_bridge(address: str) -> None:
    """The bridge over which nodes of the lab reach the broker; it exists before the broker listens on it."""
    if not Path(f"/sys/class/net/{MANAGEMENT_BRIDGE}").exists():
        _ip("link", "add", MANAGEMENT_BRIDGE, "type", "bridge")
    _ip("address", "replace", f"{address}/16", "dev", MANAGEMENT_BRIDGE)
    _ip("link", "set", MANAGEMENT_BRIDGE, "up")


def remove_management_bridge() -> None:
    """Remove the bridge unless a lab still has a port on it."""
    bridge = Path(f"/sys/class/net/{MANAGEMENT_BRIDGE}")
    if bridge.exists() and not any((bridge / "brif").iterdir()):
        _ip("link", "delete", MANAGEMENT_BRIDGE)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=10)
