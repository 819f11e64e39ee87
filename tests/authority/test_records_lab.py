"""What an agent writes to Kafka is taken by consumers that require it to be authentic; what others write is not."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from agent.world import AGENT, Pair, Relay
from chart.common import record_mac
from chart.common.settings import BaseServiceSettings
from chart.common.streams import Broker, connect
from chart.v1 import node_state_pb2
from support.authority import Place, empty, running, settings_of
from support.kafka import KafkaServer
from support.postgres import PostgresServer
from support.waiting import eventually

pytestmark = pytest.mark.lab

STATES = "chart.node-state.v1"
REASONS = {"carries no code", "cannot be read", "does not fit"}


@contextlib.contextmanager
def agent(place: Place, pair: Pair, node: str, token: str, bootstrap: str, folder: Path) -> Iterator[None]:
    """An agent in a namespace of its own that enrols with the authority."""
    (folder / "token").write_text(token)
    options = {
        "--node": node, "--state-dir": str(folder), "--cgroup": str(pair.cgroup), "--bootstrap": bootstrap,
        "--authority": place.url, "--authority-ca": str(place.ca_file),
        "--enrolment-token-file": str(folder / "token"),
    }  # fmt: skip
    words = [word for option in options.items() for word in option]
    command = ["setpriv", "--pdeathsig", "KILL", *pair.command(pair.sender, str(AGENT), *words)]
    with (folder / "agent.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    made.up()
    try:
        yield made
    finally:
        made.down()


def forge(bootstrap: str, node: str) -> None:
    """Write in the name of the node: without a code, with one that is none, with one under another key."""
    payload = node_state_pb2.NodeState(node=node, agent_version="forged").SerializeToString()
    false = record_mac.header(node, 1, secrets.token_bytes(32), STATES, node, payload)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for code in (None, "junk", false):
        headers: list[tuple[str, str | bytes | None]] = [("type", b"chart.v1.NodeState")]
        if code is not None:
            headers.append((record_mac.HEADER, code.encode()))
        producer.produce(STATES, payload, key=node, headers=headers)
    assert producer.flush(20) == 0


async def dead_letters(broker: Broker, node: str, reasons: set[str]) -> None:
    """Return when the records of the node were refused for these reasons."""
    left = set(reasons)
    async with asyncio.timeout(15), broker.subscribe([f"{STATES}.dlq"], start="earliest") as letters:
        async for letter in letters:
            if letter.headers["key"] == node:
                left = {one for one in left if one not in letter.headers["reason"]}
            if not left:
                return


async def test_consumers_take_what_the_agent_wrote_and_nothing_else(
    postgres: PostgresServer, kafka: KafkaServer, pair: Pair, tmp_path: Path
) -> None:
    empty(postgres)
    settings = settings_of(postgres.role_url("authority"), tmp_path / "state")
    ways = [int(address.rpartition(":")[2]) for address in (kafka.bootstrap, settings.authority_listen)]
    node = f"n{secrets.token_hex(3)}"
    async with running(settings, tmp_path) as place:
        made = await place.operator.post("/v1/enrolments", json={"identity": f"node/{node}"})
        told = BaseServiceSettings(
            kafka_bootstrap=kafka.bootstrap,
            state_dir=settings.state_dir,
            authority_url=place.url,
            record_authentication="require",
        )
        reader = connect(told)
        try:
            with (
                Relay(pair.sender, ways[0]),
                Relay(pair.sender, ways[1]),
                agent(place, pair, node, made.json()["token"], kafka.bootstrap, tmp_path),
            ):
                states = await reader.compacted(STATES)
                await eventually(lambda: states.get(node) is not None, 25)
                said = states.get(node)
                forge(kafka.bootstrap, node)
                await dead_letters(reader, node, REASONS)
                assert states.get(node) == said
        finally:
            await reader.close()
