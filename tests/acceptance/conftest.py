"""One platform with the lab `demo` on it for all acceptance tests; none of them breaks it."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from chart_lab.network import Lab
from chart_lab.platform.stack import Platform
from support import laboratory


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Broker, database and services."""
    with laboratory.running_platform(tmp_path_factory.mktemp("platform")) as platform:
        yield platform


@pytest.fixture(scope="package")
def rest(platform: Platform) -> Iterator[httpx.Client]:
    """REST client of an operator."""
    with laboratory.operator(platform) as client:
        yield client


@pytest.fixture(scope="package")
def lab(platform: Platform, rest: httpx.Client) -> Iterator[Lab]:
    """Four nodes in a line with agents and pods, enforcing."""
    with laboratory.running_lab(platform, rest) as lab:
        rest.put("/v1/policies/default", json={"enforcement": "enforce"}).raise_for_status()
        yield lab
