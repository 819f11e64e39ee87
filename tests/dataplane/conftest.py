"""A two-node lab with chart-agents for the tests of the data plane."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.network import Lab
from support.agent import Node


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """Two nodes on a 100 Mb/s link, 20 ms one way, 1 % loss."""
    loaded = topology.load("two-node")
    changed = {"delay_ms": 20, "loss": 0.01}
    links = [topology.Link.model_validate({**link.model_dump(), **changed}) for link in loaded.links]
    with Lab(
        loaded.model_copy(update={"links": links}), f"t{secrets.token_hex(3)}", state_dir=tmp_path / "labs"
    ) as built:
        yield built


@pytest.fixture
def sender(lab: Lab) -> Iterator[Node]:
    """The node that sends, its agent running without any grant."""
    node = Node(lab, "alpha")
    node.grant()
    node.start()
    yield node
    node.stop()
