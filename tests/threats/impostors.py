"""A node that speaks for another: records in its name, and reports that would draw its traffic here."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import secrets
from dataclasses import dataclass, field
from typing import Any

import httpx
from confluent_kafka import Producer

from chart.common import qos, record_mac
from chart.common.record_check import AuthorityKeys, RecordCheck
from chart.common.record_mac import RecordMacError
from chart.common.settings import BaseServiceSettings
from chart.v1 import link_load_pb2
from chart_lab import demo_trust
from chart_lab.platform.settings import PlatformSettings
from support.authority import Place
from support.waiting import eventually
from threats.clients import admitted, as_node
from threats.forgeries import FLOW, packet

TOPIC = "chart.link-load.v1"
ROUNDS = 50
# Reservations read loads when a node draws rates in band, which none of these does.
READERS = ("allocator", "archiver", "gateway")


@dataclass
class Findings:
    """What came of it."""

    tried: int = 0
    accepted: list[str] = field(default_factory=list)
    good_refused: int = 0


async def _taken(check: RecordCheck, key: str, load: link_load_pb2.LinkLoadReport, mac: str | None) -> bool:
    headers = {record_mac.HEADER: mac} if mac is not None else {}
    try:
        await check.check(TOPIC, key, load.SerializeToString(), headers, load)
    except RecordMacError:
        return False
    return True


def _load(node: str, link: str) -> link_load_pb2.LinkLoadReport:
    made = link_load_pb2.LinkLoadReport(node=node, interval_end_us=1)
    made.links.add(link_id=link, sent_bytes=secrets.randbelow(10**9))
    return made


class Writer:
    """A node's own keys, and the real consumer of what it writes: it has the certificate of service/records."""

    def __init__(self, place: Place, node: str, newest: dict[str, Any]) -> None:
        self.node = node
        self._key, self._epoch = base64.b64decode(newest["key"]), newest["epoch"]
        # The first address is nobody's: the next replica is asked.
        url = f"https://127.0.0.1:1,{place.url}"
        settings = BaseServiceSettings(state_dir=place.settings.state_dir, authority_url=url)
        self.check = RecordCheck(AuthorityKeys(settings), "require")

    @classmethod
    async def of(cls, place: Place, node: str, client: httpx.AsyncClient) -> Writer:
        """With the keys that the node is given."""
        answer = await client.get(f"/v1/stream-keys/{node}")
        answer.raise_for_status()
        return cls(place, node, answer.json()["epochs"][-1])

    def code(self, node: str, record_key: str, load: link_load_pb2.LinkLoadReport) -> str:
        """What it writes over a record, in its own or another's name."""
        return record_mac.header(node, self._epoch, self._key, TOPIC, record_key, load.SerializeToString())

    async def own_taken(self) -> bool:
        """Whether a record of its own is taken."""
        own = _load(self.node, f"{self.node}:eth0")
        return await _taken(self.check, self.node, own, self.code(self.node, self.node, own))


async def records(place: Place, thief: httpx.AsyncClient) -> Findings:
    """Mallory has the keys and certificates of mallory, access to the broker, and wants to write what alpha says."""
    writer = await Writer.of(place, "mallory", thief)
    check, code = writer.check, writer.code
    found = Findings()
    for _ in range(ROUNDS):
        own, others = _load("mallory", "mallory:eth0"), _load("alpha", "alpha:eth0")
        found.good_refused += not await writer.own_taken()
        attempts = {
            "without a code": ("alpha", others, None),
            "as mallory, of alpha": ("alpha", others, code("mallory", "alpha", others)),
            "as alpha, with mallory's key": ("alpha", others, code("alpha", "alpha", others)),
            "as mallory, about alpha's link": ("mallory", others, code("mallory", "mallory", others)),
            "altered on the way": ("mallory", _load("mallory", "mallory:eth1"), code("mallory", "mallory", own)),
        }
        for name, attempt in attempts.items():
            found.tried += 1
            if await _taken(check, *attempt):
                found.accepted.append(name)
    return found


async def _heard(settings: PlatformSettings, writer: Writer, producer: Producer) -> None:
    """Return when every service has taken a record of the writer's: it reads from the newest on, once it has its share,
    and has to ask for the writer's key.

    Raises:
        AssertionError: one does not.
    """
    begun = demo_trust.checks(settings)

    async def all_heard() -> bool:
        own = _load(writer.node, f"{writer.node}:eth0")
        headers = _headers(writer.code(writer.node, writer.node, own))
        producer.produce(TOPIC, own.SerializeToString(), key=writer.node, headers=headers)
        await asyncio.to_thread(producer.flush, 5)
        await asyncio.sleep(0.5)
        now = demo_trust.checks(settings)
        return all(now[name].good > begun[name].good for name in READERS)

    await eventually(all_heard, 60)


def _headers(mac: str | None) -> list[tuple[str, str | bytes | None]]:
    found: list[tuple[str, str | bytes | None]] = [("type", b"chart.v1.LinkLoadReport")]
    return [*found, (record_mac.HEADER, mac.encode())] if mac is not None else found


async def written(settings: PlatformSettings, place: Place, thief: httpx.AsyncClient) -> Findings:
    """The same into the platform's broker: what its services take of it, by their own counters."""
    writer = await Writer.of(place, "mallory", thief)
    stolen = as_node(settings, place, place.files("node-mallory"))
    producer = await asyncio.to_thread(admitted, stolen, "chart.node-state.v1", "mallory")
    await _heard(settings, writer, producer)
    before = demo_trust.checks(settings)
    good = 0
    found = Findings()
    for _ in range(ROUNDS):
        own, others = _load("mallory", "mallory:eth0"), _load("alpha", "alpha:eth0")
        attempts = [
            ("mallory", own, writer.code("mallory", "mallory", own)),
            ("alpha", others, None),
            ("alpha", others, writer.code("mallory", "alpha", others)),
            ("alpha", others, writer.code("alpha", "alpha", others)),
            ("mallory", others, writer.code("mallory", "mallory", others)),
        ]
        for name, load, mac in attempts:
            producer.produce(TOPIC, load.SerializeToString(), key=name, headers=_headers(mac))
        good += 1
        found.tried += len(attempts) - 1
    assert producer.flush(20) == 0

    def counted(what: str) -> float:
        after = demo_trust.checks(settings)
        return min(float(getattr(after[name], what) - getattr(before[name], what)) for name in READERS)

    with contextlib.suppress(AssertionError):
        await eventually(lambda: counted("refused_loads") >= found.tried and counted("good") >= good, 20)
    taken = max(0, found.tried - round(counted("refused_loads")))
    found.accepted += ["a forged record, by a service"] * taken
    found.good_refused += max(0, good - round(counted("good")))
    return found


async def reports(thief: httpx.AsyncClient, sender: int, epoch: int, own_key: bytes) -> Findings:
    """Junk that names a neighbour: with mallory's own key, with none; few, because reports are limited."""
    found = Findings()
    for key in (own_key, secrets.token_bytes(32), own_key, secrets.token_bytes(32)):
        signal = qos.Signal(qos.Qos(guaranteed_rate=0x61B0), sender, epoch, 1 + secrets.randbelow(1000))
        junk = base64.b64encode(packet(FLOW, signal.sign(FLOW, key))).decode()
        answer = await thief.post("/v1/next-hops/reports", json={"carrier": "ipv4", "packet": junk})
        found.tried += 1
        if answer.is_success and answer.json()["changed"]:
            found.accepted.append("report")
    return found
