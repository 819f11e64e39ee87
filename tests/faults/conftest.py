"""A whole platform of its own (broker, database, services) on free ports, for tests that break it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from chart_lab.platform.stack import Platform
from support import laboratory, waiting


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Everything but a lab, started for one test module."""
    with laboratory.running_platform(tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture(scope="module")
def token(platform: Platform) -> str:
    """An operator's token from the development issuer."""
    return laboratory.operator_token(platform)


@pytest.fixture(scope="module")
def rest(platform: Platform) -> Iterator[httpx.Client]:
    """REST client of the platform."""
    with laboratory.operator(platform) as client:
        yield client


@pytest.fixture
def kill(platform: Platform) -> Callable[[str], int]:
    """Kills one program of the platform with -9; returns the pid that it had."""

    def kill_program(name: str) -> int:
        (row,) = [row for row in platform.status() if row.name == name]
        assert row.pid, f"{name} does not run: {row.state}"
        os.kill(row.pid, signal.SIGKILL)
        return row.pid

    return kill_program


@pytest.fixture
def until() -> Callable[..., None]:
    """Polls a condition to a bound; what it waited for is in the failure."""
    return waiting.until


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return Path(__file__).resolve().parents[2]
