from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from support.gateway import World, world


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[World]:
    """A gateway with small services behind it."""
    async with world(tmp_path) as made:
        yield made
