"""A sending node with its agent, joined to the session's broker."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.running import World, world_up
from agent.world import AGENT, Agent, Pair, Streams
from support.kafka import KafkaServer


@pytest.fixture
def world(kafka: KafkaServer, tmp_path: Path) -> Iterator[World]:
    """A running agent whose link is in the topology, in mode enforce, with an available rate of 10 Mb/s."""
    if os.geteuid() != 0:
        pytest.skip("needs root: builds network namespaces")
    if not AGENT.exists():
        pytest.fail(f"{AGENT} is not built: run `make dataplane`")
    pair = Pair()
    agent = Agent(pair, f"n{secrets.token_hex(3)}", kafka.bootstrap, tmp_path)
    with world_up(pair, agent, Streams(kafka.bootstrap)) as world:
        yield world
