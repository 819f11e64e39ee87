"""A flood of flows through an element whose table of in-band flows fills up: flows that hold a guaranteed rate and are
silent meanwhile must find it again.

The element is a node of the platform: its agent is enrolled at the platform's authority and enforces. Its neighbours
are stolen nodes, whose good keys sign everything.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx

from agent.world import CLONE_NEWNET, LINK_CAPACITY_BPS, Agent, Pair, Relay, run
from chart.common import qos
from chart_lab import kernel
from support.authority import Place
from support.waiting import until
from threats.flood_network import FLOOD_PORT, UDP, SigningKey, datagram, source

MIDDLE, HOLDER, FLOODER, BEYOND = "middle", "holder", "flooder", "beyond"
NEIGHBOURS = (HOLDER, FLOODER, BEYOND)
# Where all flows go.
DESTINATION, PREFIX = IPv4Address("10.99.0.2"), "10.99.0.0/24"
SOURCES, SOURCES_PREFIX = 300, "198.18.0.0/15"
HOLDERS, RATE_BPS = 64, 128_000
FLOWS = 200_000
# A holder's rate lives 30 s without a word of it.
SILENCE_LIMIT_S = 25.0
PAYLOAD_BYTES = 20
FIRST_PORT = 2000
IPV4 = 0x0800


@dataclass
class Neighbour:
    """Signs for the element in the middle, with sequences that rise."""

    key: SigningKey
    sequence: int = 0

    def packet(self, number: int, port: int, asked: qos.Qos) -> bytes:
        """A datagram of a flow that carries this signal; ``number``: of its source."""
        self.sequence = qos.next_sequence(self.sequence)
        sender = source(number)
        flow = qos.Flow.of_ports(sender, DESTINATION, UDP, (port, FLOOD_PORT))
        made = qos.Signal(asked, self.key.sender, self.key.epoch, self.sequence)
        return qos.insert_ipv4(datagram(sender, DESTINATION, port, PAYLOAD_BYTES), made.sign(flow, self.key.key))


@contextmanager
def _inside(namespace: str) -> Iterator[None]:
    """This thread is in the namespace; a socket stays in that in which it was made."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/thread-self/ns/net").open() as outside, (kernel.NAMESPACES / namespace).open() as inside:
        if libc.setns(inside.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            yield
        finally:
            libc.setns(outside.fileno(), CLONE_NEWNET)


def _mac(namespace: str, interface: str) -> str:
    (told,) = json.loads(run("ip", "-n", namespace, "-j", "link", "show", "dev", interface))
    return str(told["address"])


def _build(pair: Pair) -> None:
    """The element forwards between its two links; its neighbours are all in the other namespace."""
    middle, around = pair.sender, pair.receiver
    run(*f"ip -n {middle} link add to-beyond type veth peer name from-middle netns {around}".split())
    for namespace, interface in ((middle, "to-beyond"), (around, "from-middle")):
        run("ip", "-n", namespace, "link", "set", interface, "up")
    for setting in ("ip_forward=1", "conf.all.rp_filter=0", "conf.to-peer.rp_filter=0"):
        run(*pair.command(middle, "sysctl", "-qw", f"net.ipv4.{setting}"))
    run("ip", "-n", middle, "route", "add", PREFIX, "dev", "to-beyond")
    run("ip", "-n", middle, "route", "add", SOURCES_PREFIX, "dev", "to-peer")
    neighbour = ("lladdr", _mac(around, "from-middle"), "dev", "to-beyond")
    run("ip", "-n", middle, "neigh", "add", str(DESTINATION), *neighbour)


@dataclass
class Element:
    """The element in the middle, and what its neighbours send to it and hear of it."""

    pair: Pair
    agent: Agent
    sending: socket.socket = field(init=False)
    hearing: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        with _inside(self.pair.receiver):
            self.sending = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
            self.hearing = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        mac = bytes.fromhex(_mac(self.pair.sender, "to-peer").replace(":", ""))
        self._to = ("to-sender", IPV4, 0, 0, mac)

    def send(self, packets: list[bytes]) -> None:
        """One after the other, as fast as they go."""
        for packet in packets:
            self.sending.sendto(packet, self._to)

    def listen(self) -> None:
        """What leaves towards the destination is heard from now on."""
        self.hearing.bind(("from-middle", IPV4))
        self.hearing.settimeout(0.5)

    def heard(self) -> Iterator[qos.Parsed]:
        """The signals that left, until there are no more."""
        while True:
            try:
                octets = self.hearing.recv(2048)
            except TimeoutError:
                return
            try:
                yield qos.parse_ipv4(octets)
            except qos.QosError:
                continue

    def signalling(self) -> dict[str, Any]:
        """What the agent says of in-band signalling."""
        return dict(self.agent.status().get("signalling", {}))

    def held_bps(self) -> float:
        """What the link towards the destination has promised."""
        return next(float(link["held_bps"]) for link in self.signalling()["links"] if link["interface"] == "to-beyond")

    def close(self) -> None:
        self.sending.close()
        self.hearing.close()


@contextmanager
def _running(place: Place, token: str) -> Iterator[Element]:
    """The element, with its agent enrolled by the one-time token."""
    directory = place.folder / MIDDLE
    directory.mkdir()
    (directory / "token").write_text(token)
    (directory / "token").chmod(0o600)
    (directory / "rates.json").write_text(json.dumps({"enforcement": "enforce", "grants": []}))
    pair = Pair()
    agent = Agent(pair, MIDDLE, "", directory)
    links = [
        word for name in ("to-peer", "to-beyond") for word in ("--link", f"{MIDDLE}:{name}={name}:{LINK_CAPACITY_BPS}")
    ]
    pair.up()
    try:
        _build(pair)
        element = Element(pair, agent)
        with Relay(pair.sender, int(place.url.rpartition(":")[2])):
            try:
                agent.start(
                    *links, "--rate-file", str(directory / "rates.json"), "--authority", place.url,
                    "--authority-ca", str(place.ca_file), "--enrolment-token-file", str(directory / "token"),
                )  # fmt: skip
                yield element
            finally:
                agent.stop()
                element.close()
    finally:
        pair.down()


def _key(place: Place, name: str, files: tuple[str, str]) -> SigningKey:
    """What a neighbour signs with, by its own certificate."""
    context: ssl.SSLContext = place.context(files)
    answer = httpx.get(f"{place.url}/v1/keys/{name}/{MIDDLE}", verify=context, timeout=10, trust_env=False)
    told = answer.raise_for_status().json()
    newest = [one for one in told["epochs"] if one["sign_from_us"] <= time.time() * 1e6][-1]
    return SigningKey(told["sender_id"], newest["epoch"], base64.b64decode(newest["key"]))


async def introduce(place: Place) -> tuple[str, dict[str, tuple[str, str]]]:
    """Everybody is enrolled, and who follows whom is stated: the element's one-time token, its neighbours' files."""
    files = {name: await place.enrol(f"node/{name}") for name in NEIGHBOURS}
    made = await place.operator.post("/v1/enrolments", json={"identity": f"node/{MIDDLE}"})
    for element, following in ((HOLDER, MIDDLE), (FLOODER, MIDDLE), (MIDDLE, BEYOND)):
        hop = {"element": element, "prefix": PREFIX, "next_element": following}
        (await place.operator.put("/v1/next-hops", json=hop)).raise_for_status()
    return made.raise_for_status().json()["token"], files


def trial(place: Place, token: str, files: Mapping[str, tuple[str, str]]) -> tuple[int, dict[str, Any]]:
    """How many holders lost their place, and what was seen."""
    asked = qos.Qos(guaranteed_rate=qos.encode_rate(RATE_BPS), service=qos.Service.GUARANTEED)
    rate_bps = qos.decode_rate(asked.guaranteed_rate)
    greedy = qos.Qos(available_rate=qos.encode_rate(LINK_CAPACITY_BPS))
    with _running(place, token) as element:
        until(lambda: _knows_everybody(element), "the element has its keys", 20)
        holder, flooder = (Neighbour(_key(place, name, files[name])) for name in (HOLDER, FLOODER))

        def said(status: qos.Status) -> list[bytes]:
            return [holder.packet(number, FIRST_PORT, replace(asked, status=status)) for number in range(HOLDERS)]

        flood = [
            flooder.packet(number % SOURCES, 1 + FIRST_PORT + number // SOURCES, greedy) for number in range(FLOWS)
        ]
        element.send(said(qos.Status.REQUEST))
        element.send(said(qos.Status.CONFIRM))
        silent_at = time.monotonic()
        until(lambda: element.held_bps() >= HOLDERS * rate_bps, "all holders hold their rate", 5)
        before = element.signalling()["counters"]
        element.send(flood)
        took_s = time.monotonic() - silent_at
        counters = element.signalling()["counters"]
        held_bps = element.held_bps()
        element.listen()
        element.send(said(qos.Status.RENEGOTIATE))
        found = {
            parsed.flow.source
            for parsed in element.heard()
            if parsed.flow.selector[:2] == FIRST_PORT.to_bytes(2, "big")
            and parsed.signal.qos.status == qos.Status.RENEGOTIATE
            and parsed.signal.qos.guaranteed_rate == asked.guaranteed_rate
        }
        twice = round((element.held_bps() - held_bps) / rate_bps)
    moved = {name: counters[name] - before[name] for name in ("accepted", "no_room")}
    assert took_s < SILENCE_LIMIT_S, f"the flood took {took_s:.1f} s: holders may have ended by themselves"
    assert moved["accepted"] == FLOWS, moved
    assert moved["no_room"] > 0, f"the table was never full: {moved}"
    evicted = HOLDERS - len(found) + max(0, twice)
    return evicted, {"flows": FLOWS, "holders": HOLDERS, "flood_s": round(took_s, 1), **moved}


def _knows_everybody(element: Element) -> bool:
    """Keys of all its pairs: two in, one out."""
    told = element.agent.status().get("authority", {})
    return bool(told.get("pairs", 0) >= len(NEIGHBOURS) and told.get("keys", 0) >= len(NEIGHBOURS))
