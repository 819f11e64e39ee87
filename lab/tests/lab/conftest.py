"""Labs for the tests that need one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.network import Lab


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[..., Lab]]:
    """Builds labs with ids of their own and removes them afterwards."""
    labs: list[Lab] = []

    def make(name: str = "two-node", **impairment: object) -> Lab:
        loaded = topology.load(name)
        if impairment:
            links = [topology.Link.model_validate({**link.model_dump(), **impairment}) for link in loaded.links]
            loaded = loaded.model_copy(update={"links": links})
        lab = Lab(loaded, f"t{secrets.token_hex(3)}", state_dir=tmp_path / "labs")
        labs.append(lab)
        lab.up()
        return lab

    yield make
    for lab in labs:
        lab.down()
