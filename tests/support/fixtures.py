"""Fixtures of all services' tests: one Kafka and one PostgreSQL per session, started when first asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chart.common import migrate, telemetry, topics
from chart.common.settings import BaseServiceSettings
from support import protected_kafka as protected
from support.kafka import KafkaServer
from support.postgres import PostgresServer


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A running broker with all topics of the catalogue; a fault test leaves it running when it is done."""
    server = KafkaServer(tmp_path_factory.mktemp("kafka"))
    try:
        server.start()
        topics.apply(server.bootstrap)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def kafka_bootstrap(kafka: KafkaServer) -> str:
    """HOST:PORT of a running broker with all topics of the catalogue."""
    return kafka.bootstrap


@pytest.fixture(scope="session")
def protected_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[protected.ProtectedKafka]:
    """A broker with mutual TLS and rights."""
    with protected.running(tmp_path_factory.mktemp("protected-kafka")) as made:
        yield made


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    """A running server with the database migrated; a fault test leaves it running when it is done."""
    server = PostgresServer(tmp_path_factory.mktemp("postgres"))
    try:
        server.start()
        migrate.upgrade(server.create_database())
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres_url(postgres: PostgresServer) -> str:
    """The migrated database as its administrator sees it; `support.postgres.role_url(url, role)` is a service's."""
    return postgres.url


@pytest.fixture(scope="session", autouse=True)
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs and traces as in a service; the spans of the session go to a temporary folder, which this returns."""
    directory = tmp_path_factory.mktemp("state")
    telemetry.setup("test", BaseServiceSettings(state_dir=directory))
    return directory / "traces"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of the machine do not reach the tests."""
    import os

    for name in [name for name in os.environ if name.startswith("CHART_")]:
        monkeypatch.delenv(name)
