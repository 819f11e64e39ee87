from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chart.common import telemetry
from chart.common.settings import BaseServiceSettings
from support.gateway_thread import Running


@pytest.fixture(scope="session", autouse=True)
def logs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The gateway in this process logs to stderr, as a service does; the command's stdout is its own."""
    telemetry.setup("test", BaseServiceSettings(state_dir=tmp_path_factory.mktemp("state")))


@pytest.fixture
def gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A running gateway; the environment points at it."""
    for name in ("CHART_TOKEN", "CHART_NODE"):
        monkeypatch.delenv(name, raising=False)
    running = Running(tmp_path)
    monkeypatch.setenv("CHART_SERVER", running.url)
    yield running
    running.stop()
