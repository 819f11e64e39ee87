"""What nodes may not say: commands at the broker with a stolen node certificate, streams after a revocation, and
services that would speak to a plain broker in production.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs forget the re-exports
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from chart.common import broker_access, catalogue, topics
from chart.common.broker_access import Difference, Rule
from chart_lab.platform.programs import SERVICES
from chart_lab.platform.settings import PlatformSettings
from support.authority import OtherAuthority, Place
from threats import hostile
from threats.clients import ANSWER_S, Installed, admitted, as_node, written
from threats.impostors import Findings

# No service takes that long to find out that it may not start.
START_LIMIT_S = 60.0
STREAM_LIMIT_S = 20.0
WRITE_EVERY_S = 0.05
REFUSED = "in plain"
# Nobody is there, and nobody is asked: that the name is not of this machine is enough.
ELSEWHERE = "kafka.chart.example:9092"


def _commands(node: str, victim: str) -> list[tuple[str, str, bytes | None]]:
    """Records and tombstones for every stream that is not a node's to write, dead letters too."""
    own = {topic.name for topic in catalogue.load().topics() if "node" in topic.writers}
    others = [topic.name for topic in topics.wanted(catalogue.load()) if topic.name not in own]
    said: list[tuple[str, bytes | None]] = [(node, b"\x0a\x01x"), (victim, b"\x0a\x01x"), (victim, None)]
    return [(topic, key, value) for topic in others for key, value in said]


def _administration(admin: AdminClient, node: str) -> Iterator[tuple[str, Callable[[], object]]]:
    """What only those who look after the broker may do."""
    limit_s = ANSWER_S

    def make() -> object:
        return admin.create_topics([NewTopic("chart.mine.v1", 1, 1)], request_timeout=limit_s)["chart.mine.v1"].result()

    def delete(topic: str) -> object:
        return admin.delete_topics([topic], request_timeout=limit_s)[topic].result()

    def empty(topic: str) -> object:
        partition = TopicPartition(topic, 0, 1)
        (future,) = admin.delete_records([partition], request_timeout=limit_s).values()
        return future.result()

    def configure(topic: str) -> object:
        entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        (future,) = admin.incremental_alter_configs([resource], request_timeout=limit_s).values()
        return future.result()

    def permit(topic: str) -> None:
        rule = Rule(f"node:{node}", "TOPIC", topic, "WRITE")
        broker_access.change(admin, Difference(missing=[rule]), limit_s)

    yield "a topic made", make
    for topic in ("chart.flow-grant.v1", "chart.policy.v1"):
        yield f"{topic} deleted", partial(delete, topic)
        yield f"records of {topic} deleted", partial(empty, topic)
        yield f"settings of {topic} changed", partial(configure, topic)
        yield f"a right to {topic} given", partial(permit, topic)


def by_node(settings: Installed, place: Place, node: str, victim: str) -> Findings:
    """A stolen node certificate tries every command; others try with another authority's, with none, and in plain."""
    found = Findings()
    stolen = as_node(settings, place, place.files(f"node-{node}"))
    records = _commands(node, victim)
    # Its own word is taken: the broker answers, and it is no refusal of everything.
    producer = admitted(stolen, "chart.node-state.v1", node)
    answers = written(producer, records)
    for (topic, key, value), answer in zip(records, answers, strict=True):
        found.tried += 1
        if answer is None:
            found.accepted.append(f"{topic} {key} {'tombstone' if value is None else 'record'}")
    for name, attempt in _administration(AdminClient(stolen), node):
        found.tried += 1
        try:
            attempt()
        except KafkaException:
            continue
        found.accepted.append(name)
    strangers = {
        "of another authority": as_node(
            settings, place, OtherAuthority().issue(place.folder, "spiffe://chart.local/service/topics")
        ),
        "without certificate": {
            name: value
            for name, value in stolen.items()
            if name not in ("ssl.certificate.location", "ssl.key.location")
        },
        "in plain": {"bootstrap.servers": settings.kafka_bootstrap, "message.timeout.ms": 2000, "log_level": 0},
    }
    for name, client in strangers.items():
        some = records[:3]
        for answer in written(Producer({**client, "message.timeout.ms": 2000}), some):
            found.tried += 1
            if answer is None:
                found.accepted.append(name)
    return found


class Revoked:
    """A node that writes and reads all the time, until nothing of that is answered any more."""

    def __init__(self, settings: Installed, place: Place, files: tuple[str, str], node: str) -> None:
        self._node = node
        self._producer = admitted(as_node(settings, place, files, **{"linger.ms": "0"}), "chart.node-state.v1", node)
        self._consumer = Consumer(as_node(settings, place, files, **{"group.id": broker_access.UNGROUPED}))
        self._consumer.assign([TopicPartition("chart.policy.v1", 0, 0)])
        self.written_at = self.read_at = float("-inf")

    def begin(self) -> None:
        """Both are answered. Raises AssertionError."""
        end = time.monotonic() + ANSWER_S
        while time.monotonic() < end and not (self._write() and self._read()):
            pass
        assert self.written_at > 0, "a node's own record was refused"
        assert self.read_at > 0, "a node cannot read its commands"

    def _write(self) -> bool:
        (answer,) = written(self._producer, [("chart.node-state.v1", self._node, b"\x0a\x01x")])
        if answer is None:
            self.written_at = time.monotonic()
        return answer is None

    def _read(self) -> bool:
        """Whether the broker still answers a fetch: the end of the stream is asked for anew each time."""
        try:
            self._consumer.get_watermark_offsets(TopicPartition("chart.policy.v1", 0), timeout=ANSWER_S, cached=False)
        except KafkaException:
            return False
        self.read_at = time.monotonic()
        return True

    def until_shut_out(self) -> None:
        """Go on until both are refused, for a limited time."""
        end = time.monotonic() + STREAM_LIMIT_S
        while time.monotonic() < end:
            wrote, read = self._write(), self._read()
            if not wrote and not read:
                break
            time.sleep(WRITE_EVERY_S)
        self._consumer.close()


async def shut_out_s(settings: Installed, place: Place) -> float:
    """From the revocation of a node to the last answer of the broker on its open connections, seconds."""
    files = await place.enrol("node/leaver")
    leaver = await asyncio.to_thread(Revoked, settings, place, files, "leaver")
    await asyncio.to_thread(leaver.begin)
    following = asyncio.create_task(asyncio.to_thread(leaver.until_shut_out))
    began = time.monotonic()
    answer = await place.operator.post("/v1/revocations", json={"identity": "node/leaver"})
    assert answer.status_code == 204
    await following
    return max(0.0, max(leaver.written_at, leaver.read_at) - began)


async def event_stream_s(settings: PlatformSettings, issuer: hostile.Issuer) -> float:
    """From the revocation of a token to the end of its event stream, seconds."""
    token = issuer.token(exp=int(time.time()) + 600)
    async with (
        httpx.AsyncClient(base_url=settings.gateway_url, trust_env=False, timeout=STREAM_LIMIT_S) as client,
        client.stream("GET", "/v1/events", headers={"Authorization": f"Bearer {token}"}) as stream,
    ):
        assert stream.status_code == 200, await stream.aread()
        texts = stream.aiter_text()
        await anext(texts)
        issuer.revoke(token)
        began = time.monotonic()
        async for text in texts:
            if "event: closed" in text:
                break
            if time.monotonic() > began + STREAM_LIMIT_S:
                return time.monotonic() - began
        return time.monotonic() - began


def plain_production_starts(settings: PlatformSettings, folder: Path) -> Findings:
    """Every service in production beside a broker that would be spoken to in plain, in three ways."""
    ways = {
        "without a word": "",
        "in plain": "security.protocol=plaintext\n",
        "with a password in plain": "security.protocol=sasl_plaintext\nsasl.mechanism=PLAIN\n",
    }
    found = Findings()
    attempts: list[tuple[str, str]] = []
    for number, (_way, text) in enumerate(ways.items()):
        (folder / f"plain-{number}.properties").write_text(text)
        attempts += [
            (name, str(folder / f"plain-{number}.properties"))
            for name in (*SERVICES, "authority", "gateway", "sensor-pod")
        ]
    own = settings.broker_identities / "allocator" / "kafka.properties"
    with ThreadPoolExecutor(3) as threads:
        ends = list(threads.map(lambda one: _start(settings, folder, *one), attempts))
        good = _start(settings, folder, "allocator", str(own), limit_s=5.0)
    for (name, file), (refused, words) in zip(attempts, ends, strict=True):
        found.tried += 1
        if not refused:
            found.accepted.append(f"{name} {Path(file).stem}: {words[-200:]}")
    found.good_refused += good[0]
    return found


def _start(
    settings: PlatformSettings, folder: Path, name: str, properties: str, limit_s: float = START_LIMIT_S
) -> tuple[bool, str]:
    """Whether a service refused to start because of the broker, and what it said."""
    environment = {
        "PATH": os.environ["PATH"],
        "CHART_ENVIRONMENT": "production",
        "CHART_KAFKA_BOOTSTRAP": ELSEWHERE,
        "CHART_KAFKA_PROPERTIES": properties,
        "CHART_STATE_DIR": str(folder / "production"),
        "CHART_DATABASE_URL": settings.database_url(name),
        "CHART_HTTP_LISTEN": "127.0.0.1:0",
        "CHART_GRPC_LISTEN": "127.0.0.1:0",
        "CHART_NODE": "alpha",
        "CHART_AUTHORITY_LISTEN": "127.0.0.1:0",
        "CHART_AUTHORITY_KEY_STORE": "vault",
        "CHART_VAULT_ROLE_ID": "role",
        "CHART_VAULT_SECRET_ID": "secret",
        "CHART_TOKEN_ISSUER": "https://issuer.chart.example",
        "CHART_TOKEN_JWKS_URL": "https://issuer.chart.example/keys",
    }
    command = [str(Path(sys.executable).parent / f"chart-{name}")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        words, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        words, _ = process.communicate()
        return False, words
    return process.returncode != 0 and REFUSED in words, words
