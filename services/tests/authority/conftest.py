from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from chart.maintenance.vault import VaultUnavailableError
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.vault import binary
from support import authority
from support.authority import Place
from support.postgres import PostgresServer
from support.vault import VaultServer, start_or_skip


@pytest.fixture(scope="session")
def vault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VaultServer]:
    """A real Vault, set up for the authority."""
    server = start_or_skip(tmp_path_factory.mktemp("vault"))
    try:
        yield server
    finally:
        server.stop()


def stores() -> list[str]:
    """Both key stores; without a Vault the embedded one alone, and the skips of test_vault_contract.py say so."""
    try:
        binary(PlatformSettings())
    except VaultUnavailableError:
        return ["embedded"]
    return ["embedded", "vault"]


@pytest.fixture(params=stores())
def store_settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the authority is told about its key store: the same tests run against both."""
    if request.param == "embedded":
        return {}
    server: VaultServer = request.getfixturevalue("vault")
    return server.settings()


@pytest_asyncio.fixture
async def place(postgres: PostgresServer, tmp_path: Path, store_settings: dict[str, Any]) -> AsyncIterator[Place]:
    """An authority."""
    authority.empty(postgres)
    settings = authority.settings_of(postgres.role_url("authority"), tmp_path / "state", **store_settings)
    async with authority.running(settings, tmp_path) as made:
        yield made
