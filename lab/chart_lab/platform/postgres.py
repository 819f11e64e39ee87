"""The PostgreSQL server of the local platform."""

from __future__ import annotations

from chart.maintenance import postgres_server
from chart_lab.platform.programs import Program
from chart_lab.platform.settings import PlatformSettings


def prepare(settings: PlatformSettings) -> Program:
    """Create the cluster once and return the program to supervise.

    Raises:
        PostgresUnavailableError: no server is installed, or initdb failed (the message has its output).
    """
    return Program(
        name="postgres",
        command=postgres_server.prepare(settings.platform_dir / "postgres", settings.postgres_port),
        stage=0,
        health=f"tcp:127.0.0.1:{settings.postgres_port}",
        stop_signal="INT",
        stop_wait_s=20,
    )


def create_database(settings: PlatformSettings) -> str:
    """Make the database `chart` when it is missing; returns the administrator's address of it."""
    return postgres_server.create_database(settings.postgres_port)
