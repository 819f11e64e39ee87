"""Next hops as elements see them: stated by operators, worked out from the topology, healed by reports."""

from __future__ import annotations

import base64
from ipaddress import IPv4Address, ip_interface
from typing import Any

import httpx
import psycopg
import pytest

from chart.authority import service, streams
from chart.common import database, qos
from chart.common.clock import SystemClock
from support.authority import Place

pytestmark = pytest.mark.contract


def signalled(key: bytes, epoch: int, sender: int, destination: str) -> bytes:
    """An IPv4 packet with a signal, TCP 4000 -> 5000."""
    tcp = (4000).to_bytes(2, "big") + (5000).to_bytes(2, "big") + bytes(16)
    source = bytes([10, 1, 0, 1])
    target = bytes(int(part) for part in destination.split("."))
    packet = bytes([0x45, 0]) + (40).to_bytes(2, "big") + bytes(5) + bytes([6, 0, 0]) + source + target + tcp
    packet = packet[:8] + bytes([64, 6]) + packet[10:]
    fields = qos.Qos(guaranteed_rate=0x61B0)
    described = qos.Flow.of_ports(IPv4Address(source), IPv4Address(target), 6, (4000, 5000))
    return qos.insert_ipv4(packet, qos.Signal(fields, sender, epoch, 7).sign(described, key))


async def test_a_report_heals_the_table_only_with_a_signal_that_proves_it(place: Place) -> None:
    alpha, bravo, charlie = [await place.node(name) for name in ("alpha", "bravo", "charlie")]
    prefix = {"element": "alpha", "prefix": "10.9.0.0/16", "next_element": "bravo"}
    assert (await place.operator.put("/v1/next-hops", json=prefix)).status_code == 204
    keys = (await alpha.get("/v1/keys/alpha/bravo")).json()
    await alpha.get("/v1/keys/alpha/charlie")
    epoch = keys["epochs"][0]
    good = signalled(base64.b64decode(epoch["key"]), epoch["epoch"], keys["sender_id"], "10.9.1.1")

    async def report(node: httpx.AsyncClient, packet: bytes) -> Any:
        body = {"carrier": "ipv4", "packet": base64.b64encode(packet).decode()}
        return (await node.post("/v1/next-hops/reports", json=body)).json()

    before = (await alpha.get("/v1/next-hops")).json()
    junk = signalled(bytes(32), epoch["epoch"], keys["sender_id"], "10.9.1.1")
    assert not (await report(charlie, junk))["changed"]
    assert not (await report(bravo, good))["changed"]
    assert (await alpha.get(f"/v1/next-hops?since={before['revision']}&wait_s=0")).json()["next_hops"] == []
    healed = await report(charlie, good)
    assert healed == {"changed": True, "sender": "alpha", "prefix": "10.9.1.1/32"}
    told = (await alpha.get(f"/v1/next-hops?since={before['revision']}&wait_s=5")).json()
    assert told["next_hops"] == [
        {"prefix": "10.9.1.1/32", "next_element": "charlie", "shim_address": None, "source": "report"}
    ]
    # The same signal proves nothing twice, and reports are limited.
    assert not (await report(charlie, good))["changed"]
    answers = [(await report(charlie, junk)).get("status", 200) for _ in range(8)]
    assert 429 in answers
    with psycopg.connect(place.settings.database_url) as connection:
        actions = [row[0] for row in connection.execute("SELECT action FROM audit WHERE action LIKE 'next-hop%'")]
    assert actions.count("next-hop.report") == 2
    assert "next-hop.report-refused" in actions


async def test_next_hops_name_the_address_of_the_shim(place: Place) -> None:
    alpha = await place.node("alpha")
    line = service.Topology(neighbours={"alpha": {"bravo"}, "bravo": {"alpha", "charlie"}, "charlie": {"bravo"}})
    for number, name in enumerate(("alpha", "bravo", "charlie"), 1):
        line.addresses[name] = (ip_interface(f"10.0.0.{number}/32"),)
    stated = {"element": "alpha", "prefix": "10.9.0.0/16", "next_element": "bravo", "shim_address": "10.1.1.2"}
    assert (await place.operator.put("/v1/next-hops", json=stated)).status_code == 204
    refused = await place.operator.put("/v1/next-hops", json={**stated, "shim_address": "10.1.1.0/24"})
    assert refused.status_code == 422
    async with database.pool(place.settings) as pool:
        assert await streams.write_next_hops(pool, line, SystemClock()) == 6
        assert await streams.write_next_hops(pool, line, SystemClock()) == 0
        hops = (await alpha.get("/v1/next-hops")).json()["next_hops"]
        assert {hop["prefix"]: (hop["next_element"], hop["shim_address"], hop["source"]) for hop in hops} == {
            "10.0.0.2/32": ("bravo", "10.0.0.2", "topology"),
            "10.0.0.3/32": ("bravo", "10.0.0.2", "topology"),
            "10.9.0.0/16": ("bravo", "10.1.1.2", "operator"),
        }
        # A node that moves is reached at its new address.
        line.addresses["bravo"] = (ip_interface("10.0.1.2/32"),)
        await streams.write_next_hops(pool, line, SystemClock())
    hops = (await alpha.get("/v1/next-hops")).json()["next_hops"]
    assert {hop["prefix"]: hop["shim_address"] for hop in hops if hop["source"] == "topology"} == {
        "10.0.1.2/32": "10.0.1.2",
        "10.0.0.3/32": "10.0.1.2",
    }
