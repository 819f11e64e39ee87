from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.tunnels import TunnelsProcess


@pytest.fixture
def service(kafka_bootstrap: str, postgres: PostgresServer, tmp_path: Path) -> Iterator[TunnelsProcess]:
    """The running service, with empty tables and leases of a second."""
    postgres.truncate("tunnels")
    made = TunnelsProcess(tmp_path, kafka_bootstrap, postgres.role_url("tunnels"))
    made.start()
    try:
        yield made
    finally:
        made.process.stop()
