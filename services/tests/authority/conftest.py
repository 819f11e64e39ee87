from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio
from support import authority
from support.authority import Place
from support.postgres import PostgresServer


@pytest_asyncio.fixture
async def place(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Place]:
    """An authority with the embedded key store."""
    authority.empty(postgres)
    settings = authority.settings_of(postgres.role_url("authority"), tmp_path / "state")
    async with authority.running(settings, tmp_path) as made:
        yield made
