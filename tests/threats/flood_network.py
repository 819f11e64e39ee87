"""Granted flows beside a flood: behind one node hundreds of sources send data, forged signals and well-formed ones
across the bottleneck of flows that have grants, while others ask gateway and authority for what they will not get.

On a platform of its own, as `make up` starts it with CHART_KAFKA_TLS=1, whose nodes are enrolled and enforce.
"""

from __future__ import annotations

import asyncio
import base64
import math
import re
import secrets
import ssl
import statistics
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

import httpx

from chart.common import qos
from chart_lab import demo_in_band
from chart_lab.experiments import signal_abuse
from chart_lab.experiments.framework import Figure
from chart_lab.experiments.installed import Installation, agent_status, installation
from chart_lab.experiments.traffic import Transfer
from chart_lab.network import Lab
from chart_lab.platform.settings import PlatformSettings
from chart_lab.topology import Topology
from support.waiting import eventually
from threats.flood import Flood, beside

BOTTLENECK_MBIT, ACCESS_MBIT, DELAY_MS = 40, 100, 2
TOPOLOGY = Topology.model_validate(
    {
        "name": "flood",
        "nodes": [{"name": name} for name in ("alpha", "mallory", "mid", "bravo")],
        "links": [
            {"ends": ["alpha", "mid"], "rate_mbit": ACCESS_MBIT, "delay_ms": DELAY_MS},
            {"ends": ["mallory", "mid"], "rate_mbit": ACCESS_MBIT, "delay_ms": DELAY_MS},
            {"ends": ["mid", "bravo"], "rate_mbit": BOTTLENECK_MBIT, "delay_ms": DELAY_MS},
        ],
    }
)
SEED = 21
PORTS = (5001, 5002)
GUARANTEED_BPS = 8_000_000
# Seconds of a measurement, and what of it is not counted: the joining.
FLOW_S, JOINED_S = 6.0, 1.0
SOURCES = 300
# A second: datagrams of data, signals under keys that are none, signals under the sender's own good key.
DATA_PER_S, FORGED_PER_S, GOOD_PER_S = 4000, 1000, 500
DATA_BYTES, SIGNAL_BYTES = 1200, 100
FLOOD_S = 36.0
API_PER_S = 100
UDP = 17
FLOOD_PORT = 7777
# Flows that ask in band one after the other, and for how long each may try.
FIRST_RATES, FIRST_RATE_LIMIT_S = 5, 4.0
FIRST_RATE = re.compile(
    r"^ *([0-9.]+) s  \w+: guaranteed [0-9.]+ Mb/s, available (?!0\.000)[0-9.]+ Mb/s$", re.MULTILINE
)


@dataclass(frozen=True)
class SigningKey:
    """What the flooding node itself signs with towards the next element."""

    sender: int
    epoch: int
    key: bytes


@dataclass(frozen=True)
class Measured:
    """Of granted flows: goodput of all, bit/s; milliseconds until a flow that asks in band knows its rate, median, None
    when most of them never did.
    """

    goodput_bps: float
    first_rate_ms: float | None
    rates_known: int


def first_rate_s(lab: Lab, sender: str, receiver: str) -> float | None:
    """Seconds from opening a flow until it knows its rate; None: not within the limit. Whether its octets arrive in
    that time is not asked: beside a flood they go as the ordinary traffic does.
    """
    with demo_in_band.receiving(lab, receiver) as command:
        sending = lab.popen(sender, command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            said, _ = sending.communicate(timeout=FIRST_RATE_LIMIT_S)
        except subprocess.TimeoutExpired:
            sending.kill()
            said, _ = sending.communicate()
    found = FIRST_RATE.search(said)
    return float(found[1]) if found else None


def source(number: int) -> IPv4Address:
    """The address of one of the sources: of the range for tests between networks (RFC 2544)."""
    return IPv4Address("198.18.0.1") + number


def datagram(sender: IPv4Address, receiver: IPv4Address, port: int, size: int) -> bytes:
    """UDP in IPv4, without a UDP checksum."""
    body = struct.pack("!HHHH", port, FLOOD_PORT, 8 + size, 0) + bytes(size)
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), 0, 0, 64, UDP, 0, sender.packed, receiver.packed)
    return head[:10] + qos.ipv4_checksum(head).to_bytes(2, "big") + head[12:] + body


def packets(receiver: IPv4Address, own: SigningKey, seconds: float) -> Iterator[bytes]:
    """The flood in its order: every source in turn, each with ports of its own."""
    sequence = signal_abuse.FRESH_FROM
    turns = DATA_PER_S + FORGED_PER_S + GOOD_PER_S
    for number in range(round(seconds * turns)):
        sender, port = source(number % SOURCES), 1024 + number % 50_000
        place = number * GOOD_PER_S // turns, (number + 1) * GOOD_PER_S // turns
        forged = number * FORGED_PER_S // turns, (number + 1) * FORGED_PER_S // turns
        if place[0] == place[1] and forged[0] == forged[1]:
            yield datagram(sender, receiver, port, DATA_BYTES)
            continue
        sequence = qos.next_sequence(sequence)
        asked = qos.Qos(guaranteed_rate=qos.encode_rate(10_000_000), available_rate=qos.encode_rate(10_000_000))
        made = qos.Signal(asked, own.sender, own.epoch, sequence)
        key = own.key if place[0] != place[1] else secrets.token_bytes(32)
        flow = qos.Flow.of_ports(sender, receiver, UDP, (port, FLOOD_PORT))
        yield qos.insert_ipv4(datagram(sender, receiver, port, SIGNAL_BYTES), made.sign(flow, key))


def signing_key(settings: PlatformSettings, lab: Lab, node: str, peer: str) -> SigningKey:
    """The key of a pair, asked for with the node's own certificate."""
    directory = lab.node_directory(node)
    context = ssl.create_default_context(cafile=str(settings.authority_ca))
    context.load_cert_chain(str(directory / "node.pem"), str(directory / "node.key"))
    answer = httpx.get(f"{lab.authority}/v1/keys/{node}/{peer}", verify=context, timeout=10, trust_env=False)
    told = answer.raise_for_status().json()
    newest = [one for one in told["epochs"] if one["sign_from_us"] <= time.time() * 1e6][-1]
    return SigningKey(told["sender_id"], newest["epoch"], base64.b64decode(newest["key"]))


def counted(lab: Lab) -> tuple[int, int]:
    """Signals that the element behind the flooding node accepted and refused until now."""
    counters: dict[str, int] = agent_status(lab, "mid")["signalling"]["counters"]
    return counters["accepted"], signal_abuse.refused(counters)


def measured(lab: Lab) -> Measured:
    """The granted flows beside each other, then flows that ask in band one after the other."""
    transfers = [Transfer(lab, "alpha", "bravo", duration_s=FLOW_S, port=port) for port in PORTS]
    goodput_bps = sum(transfer.finish().goodput_bps(FLOW_S, JOINED_S) for transfer in transfers)
    told = [first_rate_s(lab, "alpha", "bravo") for _ in range(FIRST_RATES)]
    rate_s = statistics.median(math.inf if one is None else one for one in told)
    known = sum(one is not None for one in told)
    return Measured(goodput_bps, None if math.isinf(rate_s) else round(1000 * rate_s, 1), known)


async def _flooded(product: Installation, lab: Lab) -> tuple[Measured, dict[str, Any]]:
    """The same while everything is flooded."""
    settings = product.settings
    own = signing_key(settings, lab, "mallory", "mid")
    made = list(packets(IPv4Address(lab.address("bravo")), own, FLOOD_S))
    before = counted(lab)
    api = Flood(
        ("127.0.0.1", settings.gateway_port), ("127.0.0.1", settings.authority_port), str(settings.authority_ca),
        SOURCES, SOURCES / API_PER_S, FLOOD_S,
    )  # fmt: skip
    process, asking = await beside(api)
    per_s = DATA_PER_S + FORGED_PER_S + GOOD_PER_S
    sending = asyncio.create_task(asyncio.to_thread(signal_abuse.inject, lab, made, "mallory", "to-mid", per_s))
    try:
        # Both kinds have arrived.
        await eventually(lambda: all(now > then for now, then in zip(counted(lab), before, strict=True)), 20)
        found = await asyncio.to_thread(measured, lab)
        assert not sending.done(), "the flood ended before the measurement"
        sent, told = await sending, await asking
    finally:
        if process.returncode is None:
            process.kill()
    accepted, refused = (now - then for now, then in zip(counted(lab), before, strict=True))
    assert told.accepted == 0, told.answers
    return found, {
        "sources": SOURCES, "packets": sent, "signals_accepted": accepted, "signals_refused": refused,
        "requests": told.requests, "answers": dict(told.answers),
    }  # fmt: skip


def trial() -> tuple[list[Figure], dict[str, Any]]:
    """The granted flows without the flood, with it, and without it again."""
    asked = {"source": "alpha", "destination": "bravo", "protocol": "tcp", "service": "guaranteed"}
    bodies = [{**asked, "destination_port": port, "guaranteed_bps": GUARANTEED_BPS} for port in PORTS]
    with (
        installation(lambda *_: None, kafka_tls=True) as product,
        product.network(TOPOLOGY, SEED) as lab,
        product.rates(bodies),
    ):
        before = measured(lab)
        during, notes = asyncio.run(_flooded(product, lab))
        after = measured(lab)
    quiet_bps = statistics.fmean((before.goodput_bps, after.goodput_bps))
    figures = [
        Figure("flood_granted_goodput_share", round(during.goodput_bps / quiet_bps, 4), "ratio", ">= 0.95"),
        Figure("flood_granted_goodput_share_tried", notes["packets"], "packets"),
        Figure("flood_first_rate_ms", during.first_rate_ms, "ms", None, before.first_rate_ms),
        Figure("flood_rates_known", during.rates_known, "flows", None, before.rates_known),
    ]
    return figures, {**notes, "before": vars(before), "during": vars(during), "after": vars(after)}
