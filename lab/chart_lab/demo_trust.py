"""What the demonstration measures of trust: whether every node is enrolled, whether what services read of nodes is
authentic, and whether they take records that somebody else writes in a node's name.

Brassil et al., The CHART System, section 3, on the streams between nodes and services.
"""

from __future__ import annotations

import base64
import re
import secrets
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
from confluent_kafka import Producer

from chart.common import kafka_properties, record_mac
from chart.v1 import link_load_pb2
from chart_lab import enrolment, supervise
from chart_lab.experiments.framework import Figure
from chart_lab.network import Lab
from chart_lab.platform.laboratory import LaboratoryError
from chart_lab.platform.programs import http_port
from chart_lab.platform.settings import PlatformSettings

TOPIC = "chart.link-load.v1"
# Services that read what agents report of their links.
READERS = ("allocator", "reservations", "archiver", "gateway")
ENROLLED_LIMIT_S = 30.0
FORGED_OF_EACH_KIND = 25
READ_LIMIT_S = 15.0
TIMEOUT_S = 10.0

_CHECKS = re.compile(r'^chart_streams_record_checks_total\{result="(good|refused)",topic="([^"]+)"\} (\S+)$', re.M)


@dataclass(frozen=True)
class Checks:
    """Records of nodes that a service checked since it began, all topics, and those of `TOPIC` that it refused."""

    good: float = 0.0
    refused: float = 0.0
    refused_loads: float = 0.0


def parse_checks(metrics: str) -> Checks:
    """From a service's metrics in the text format of Prometheus."""
    found = [(result, topic, float(count)) for result, topic, count in _CHECKS.findall(metrics)]
    return Checks(
        good=sum(count for result, _, count in found if result == "good"),
        refused=sum(count for result, _, count in found if result == "refused"),
        refused_loads=sum(count for result, topic, count in found if (result, topic) == ("refused", TOPIC)),
    )


def checks(settings: PlatformSettings) -> dict[str, Checks]:
    """What every reader counted until now.

    Raises:
        LaboratoryError: a service does not tell its metrics.
    """
    found = {}
    for name in READERS:
        try:
            answer = httpx.get(f"http://127.0.0.1:{http_port(settings, name)}/metrics", timeout=TIMEOUT_S)
            found[name] = parse_checks(answer.raise_for_status().text)
        except httpx.HTTPError as error:
            msg = f"{name} does not tell its metrics: {error}"
            raise LaboratoryError(msg) from error
    return found


def authenticated_share(before: dict[str, Checks], after: dict[str, Checks]) -> float | None:
    """Which part of the records that the readers checked in between was authentic; None: they checked none."""
    good = sum(after[name].good - before[name].good for name in after)
    refused = sum(after[name].refused - before[name].refused for name in after)
    return good / (good + refused) if good + refused else None


def enrolled_share(lab: Lab) -> float:
    """Which part of the nodes is enrolled, holds keys for its neighbours and signs its records."""
    nodes = [enrolment.of_node(lab, node.name) for node in lab.topology.nodes]
    return sum(node.enrolled and node.keys > 0 and node.records_signed for node in nodes) / len(nodes)


def _stream_key(settings: PlatformSettings, lab: Lab, node: str) -> tuple[int, bytes]:
    """Epoch and key of a node's own records, asked for with its own certificate, as who stole that would."""
    directory = lab.node_directory(node)
    context = ssl.create_default_context(cafile=str(settings.authority_ca))
    context.load_cert_chain(str(directory / "node.pem"), str(directory / "node.key"))
    url = f"{lab.authority}/v1/stream-keys/{node}"
    answer = httpx.get(url, verify=context, timeout=TIMEOUT_S, trust_env=False).raise_for_status()
    newest = answer.json()["epochs"][-1]
    return int(newest["epoch"]), base64.b64decode(newest["key"])


def forged(lab: Lab, thief: str, epoch: int, key: bytes) -> Iterator[tuple[str, bytes, str | None]]:
    """Loads in the names of other nodes: key, value and code. Without a code; with one that is none; under a random
    key; under the thief's own good key, as itself and as the other.
    """
    victims = [node.name for node in lab.topology.nodes if node.name != thief]
    for number in range(FORGED_OF_EACH_KIND):
        victim = victims[number % len(victims)]
        load = link_load_pb2.LinkLoadReport(node=victim, interval_end_us=time.time_ns() // 1000, interval_us=100_000)
        load.links.add(link_id=lab.links_of(victim)[0], sent_bytes=secrets.randbelow(10**9))
        value = load.SerializeToString()
        yield victim, value, None
        yield victim, value, "junk"
        yield victim, value, record_mac.header(victim, epoch, secrets.token_bytes(32), TOPIC, victim, value)
        yield victim, value, record_mac.header(thief, epoch, key, TOPIC, victim, value)
        yield victim, value, record_mac.header(victim, epoch, key, TOPIC, victim, value)


def forge(settings: PlatformSettings, lab: Lab) -> tuple[int, int]:
    """Writes forged records to the streams; how many, and how many of them a reader took at most.

    Raises:
        LaboratoryError: the broker did not take them.
    """
    before = checks(settings)
    tried = 0
    thief = lab.topology.nodes[0].name
    # A broker that asks who writes is told the truth: the records are what is forged.
    who = kafka_properties.load(str(supervise.broker_file(lab, thief))) if settings.kafka_tls else {}
    producer = Producer({**who, "bootstrap.servers": settings.kafka_bootstrap})
    for name, value, code in forged(lab, thief, *_stream_key(settings, lab, thief)):
        headers: list[tuple[str, str | bytes | None]] = [("type", b"chart.v1.LinkLoadReport")]
        if code is not None:
            headers.append((record_mac.HEADER, code.encode()))
        producer.produce(TOPIC, value, key=name, headers=headers)
        tried += 1
    if producer.flush(TIMEOUT_S):
        msg = "the broker does not take the records that services shall refuse"
        raise LaboratoryError(msg)
    deadline = time.monotonic() + READ_LIMIT_S
    while True:
        after = checks(settings)
        refused = min(after[name].refused_loads - before[name].refused_loads for name in READERS)
        if refused >= tried or time.monotonic() > deadline:
            return tried, max(0, tried - round(refused))
        time.sleep(0.2)


def figures(settings: PlatformSettings, lab: Lab, before: dict[str, Checks]) -> list[Figure]:
    """The figures; the share of authentic records is since ``before``, the forgeries are made after it is taken.

    Raises:
        LaboratoryError: something could not be measured; says what.
    """
    share = authenticated_share(before, checks(settings))
    tried, accepted = forge(settings, lab)
    if settings.record_authentication != "require":
        # Then readers count what they would refuse, and take it.
        accepted = tried
    return [
        Figure("nodes_enrolled_share", enrolled_share(lab), "ratio", ">= 1"),
        Figure("authenticated_record_share", share, "ratio", ">= 1"),
        Figure("forged_records_tried", tried, "records"),
        Figure("forged_records_accepted", accepted, "records", "<= 0"),
    ]
