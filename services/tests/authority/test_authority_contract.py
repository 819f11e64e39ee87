"""The authority as its clients see it: HTTPS with mutual TLS over a real PostgreSQL."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from chart.authority.keystore_embedded import EmbeddedKeyStore
from chart.common import qos
from chart.v1.platform_settings_pb2 import PlatformSettings
from chart.v1.tenant_pb2 import Tenant, TenantEnd
from chart.v1.topology_pb2 import Node, TopologyEntity
from support.authority import OtherAuthority, Place, csr, empty, new_key, running, settings_of, store
from support.postgres import PostgresServer
from support.waiting import eventually

pytestmark = pytest.mark.contract

DOMAIN = "chart.local"


async def refused(client: httpx.AsyncClient, path: str = "/v1/elements") -> None:
    """The handshake or the first answer after it ends the connection."""
    with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError, ssl.SSLError)):
        await client.get(path)


async def test_certificates_that_are_not_believed(place: Place, tmp_path: Path) -> None:
    none = await place.client().get("/v1/elements")
    assert (none.status_code, none.json()["type"]) == (401, "urn:chart:problem:not-authenticated")
    await refused(place.client(OtherAuthority().issue(tmp_path, f"spiffe://{DOMAIN}/node/alpha")))
    # Revoked: also on a connection that is open already.
    client = await place.node("alpha")
    assert (await client.get("/v1/elements")).json() == {"alpha": 1}
    assert (await place.operator.post("/v1/revocations", json={"identity": "node/alpha"})).status_code == 204
    answer = await client.get("/v1/elements")
    assert (answer.status_code, answer.json()["title"]) == (403, "Certificate revoked")
    # Enrolled again it is believed, with the id that it had.
    again = await place.node("alpha")
    assert (await again.get("/v1/elements")).json() == {"alpha": 1}


async def test_a_certificate_that_ends_while_the_connection_lives(postgres: PostgresServer, tmp_path: Path) -> None:
    empty(postgres)
    settings = settings_of(postgres.role_url("authority"), tmp_path / "state", authority_certificate_life_s=10)
    async with running(settings, tmp_path) as place:
        client = await place.node("short")
        assert (await client.get("/v1/elements")).status_code == 200

        async def over() -> bool:
            return (await client.get("/v1/elements")).status_code == 401

        await eventually(over, 15)


async def test_a_token_enrols_once(place: Place) -> None:
    made = (await place.operator.post("/v1/enrolments", json={"identity": "node/alpha"})).json()
    bodies = [{"csr": csr(new_key(), "bravo"), "token": made["token"]} for _ in range(5)]
    answers = await asyncio.gather(*(place.client().post("/v1/certificates", json=body) for body in bodies))
    assert sorted(answer.status_code for answer in answers) == [201, 403, 403, 403, 403]
    issued = next(answer.json() for answer in answers if answer.status_code == 201)
    # The name in the request does not matter.
    assert issued["identity"] == f"spiffe://{DOMAIN}/node/alpha"
    subject = x509.load_pem_x509_certificate(issued["certificate"].encode()).subject
    assert subject.rfc4514_string() == "UID=alpha,CN=alpha,OU=node"
    assert issued["element_id"] == 1
    for token in (None, "x" * 43):
        refusal = await place.client().post("/v1/certificates", json={**bodies[0], "token": token})
        assert refusal.status_code in (401, 403)
    assert (await place.client().post("/v1/enrolments", json={"identity": "node/a"})).status_code == 401
    node = await place.node("bravo")
    assert (await node.post("/v1/enrolments", json={"identity": "node/a"})).status_code == 403
    wrong = await place.operator.post("/v1/enrolments", json={"identity": "robot/a"})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "identity")


async def test_a_node_renews_its_certificate(place: Place, tmp_path: Path) -> None:
    node = await place.node("alpha")
    key = new_key()
    renewed = await node.post("/v1/certificates", json={"csr": csr(key)})
    assert renewed.status_code == 201
    assert renewed.json()["renew_at_us"] < renewed.json()["not_after_us"]
    fresh = place.client(store(tmp_path, "fresh", key, renewed.json()["certificate"]))
    assert (await fresh.get("/v1/elements")).status_code == 200
    # One certificate revoked by its number: the other goes on.
    body = {"serial": renewed.json()["serial"], "reason": "lost"}
    assert (await place.operator.post("/v1/revocations", json=body)).status_code == 204
    assert (await fresh.get("/v1/elements")).status_code == 403
    assert (await node.get("/v1/elements")).status_code == 200


async def test_keys_are_for_their_two_ends_only(place: Place) -> None:
    alpha, bravo, mallory = [await place.node(name) for name in ("alpha", "bravo", "mallory")]
    sent, received = [(await node.get("/v1/keys/alpha/bravo")).json() for node in (alpha, bravo)]
    assert sent["epochs"] == received["epochs"]
    assert (sent["sender_id"], sent["receiver_id"]) == (1, 2)
    (epoch,) = sent["epochs"]
    assert len(base64.b64decode(epoch["key"])) == 32
    assert epoch["sign_from_us"] <= sent["now_us"] < epoch["expires_at_us"]
    back = (await alpha.get("/v1/keys/bravo/alpha")).json()
    assert back["epochs"][0]["key"] != epoch["key"]
    user = place.client(await place.enrol("user/eve"))
    for thief in (mallory, user, place.operator, place.client(place.local("service-gateway"))):
        answer = await thief.get("/v1/keys/alpha/bravo")
        assert answer.status_code == 403
        assert epoch["key"] not in answer.text
    unknown = await alpha.get("/v1/keys/alpha/nobody")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "urn:chart:problem:unknown-element")
    # Stream keys: the node itself, and the service that checks records.
    own = (await alpha.get("/v1/stream-keys/alpha")).json()
    assert (await bravo.get("/v1/stream-keys/alpha")).status_code == 403
    checker = place.client(place.local("service-records"))
    assert (await checker.get("/v1/stream-keys/alpha")).json()["epochs"] == own["epochs"]
    with psycopg.connect(place.settings.database_url) as connection:
        everything = json.dumps(
            [
                connection.execute(f"SELECT to_jsonb(t) FROM {table} t").fetchall()
                for table in ("key_epoch", "audit", "outbox", "enrolment", "certificate")
            ]
        )
    for secret in (epoch["key"], base64.b64decode(epoch["key"]).hex(), *place.secrets):
        assert secret not in everything


async def test_an_element_that_started_anew_gets_a_new_epoch(place: Place) -> None:
    alpha, bravo = await place.node("alpha"), await place.node("bravo")
    assert (await alpha.get("/v1/keys/alpha/bravo")).status_code == 200
    second = (await alpha.get("/v1/keys/alpha/bravo?start=true")).json()["epochs"]
    assert [one["epoch"] for one in second] == [1, 2]
    assert second[1]["sign_from_us"] <= time.time() * 1e6
    assert (await bravo.get("/v1/keys/alpha/bravo")).json()["epochs"] == second
    # The other end starts a moment later; an end that starts over and over has to wait.
    third = (await bravo.get("/v1/keys/alpha/bravo?start=true")).json()["epochs"]
    assert [one["epoch"] for one in third] == [2, 3]
    answers = [await alpha.get("/v1/keys/alpha/bravo?start=true") for _ in range(4)]
    assert answers[-1].status_code == 429
    assert "Retry-After" in answers[-1].headers


async def test_a_revoked_node_loses_its_keys_and_the_others_hear_of_it(place: Place) -> None:
    alpha, bravo = await place.node("alpha"), await place.node("bravo")
    await alpha.get("/v1/keys/alpha/bravo")
    state = (await bravo.get("/v1/next-hops")).json()
    assert {one["element"] for one in state["elements"]} == {"alpha", "bravo"}
    waiting = asyncio.create_task(bravo.get(f"/v1/next-hops?since={state['revision']}&wait_s=10"))
    began = time.monotonic()
    await place.operator.post("/v1/revocations", json={"identity": "node/alpha"})
    told = (await waiting).json()
    assert time.monotonic() - began < 5
    assert told["elements"] == [{"element": "alpha", "id": None}]
    answer = await bravo.get("/v1/keys/alpha/bravo")
    assert answer.status_code == 404


async def only_what_is_the_tenants(place: Place, alice: httpx.AsyncClient) -> None:
    """Whoever may name any address names one of its tenant's, and no operator is asked for that."""
    assert place.broker is not None
    await place.broker.publish(
        "chart.topology.v1", "alpha", TopologyEntity(node=Node(id="alpha", addresses=["10.7.0.1/24"]))
    )
    ends = [TenantEnd(prefix="10.6.0.0/16"), TenantEnd(node="alpha")]
    await place.broker.publish("chart.tenant.v1", "shop", Tenant(id="shop", members=["alice"], ends=ends))

    async def asked(who: httpx.AsyncClient, address: str) -> httpx.Response:
        return await who.post("/v1/authorisations", json={"client_address": address, "duration_s": 1})

    async def known() -> bool:
        return (await asked(alice, "10.7.0.1")).status_code == 201 and (await asked(alice, "10.7.0.2")).is_error

    await eventually(known)
    assert (await asked(alice, "10.6.9.9")).status_code == 201
    foreign = await asked(alice, "10.5.0.1")
    assert (foreign.status_code, foreign.json()["field"]) == (403, "client_address")
    assert foreign.json()["type"].endswith("foreign-selector")
    assert "it owns 10.6.0.0/16, node alpha" in foreign.json()["detail"]
    assert (await asked(place.operator, "10.5.0.1")).status_code == 201
    await place.broker.publish("chart.tenant.v1", "shop", None)

    async def nobodys() -> bool:
        return (await asked(alice, "10.5.0.1")).status_code == 201

    await eventually(nobodys)


async def test_authorisations_by_policy_and_long_poll(place: Place) -> None:
    node = await place.node("edge")
    alice = place.client(await place.enrol("user/alice"))
    empty = (await node.get("/v1/authorisations")).json()
    assert (empty["full"], empty["authorisations"]) == (True, [])
    assert empty["unauthorised"]["action"] == "free"
    assert place.broker is not None
    waiting = asyncio.create_task(node.get(f"/v1/authorisations?since={empty['revision']}&wait_s=10"))
    strict = PlatformSettings(id="platform", authority_unauthorised="drop", authority_free_available_bps=0)
    await place.broker.publish("chart.platform-settings.v1", "platform", strict)
    told = (await waiting).json()
    assert told["unauthorised"] == {"action": "drop", "available_bps": 0}
    waiting = asyncio.create_task(node.get(f"/v1/authorisations?since={told['revision']}&wait_s=10"))
    made = await alice.post("/v1/authorisations", json={"max_guaranteed_bps": 5_000_000, "duration_s": 3600})
    assert made.status_code == 201, made.text
    told = (await waiting).json()
    assert told["full"] is False
    assert told["authorisations"] == [made.json()]
    assert made.json()["client_address"] == "127.0.0.1"
    other = await alice.post("/v1/authorisations", json={"client_address": "10.1.2.3"})
    assert (other.status_code, other.json()["field"]) == (403, "client_address")
    much = await alice.post("/v1/authorisations", json={"max_guaranteed_bps": 10**12})
    assert (much.status_code, much.json()["ceiling"]) == (403, 100_000_000)
    policy = {
        "subjects": ["user/alice"], "services": ["guaranteed"], "max_guaranteed_bps": 10**12, "max_priority": 200,
        "max_duration_s": 60, "any_address": True,
    }  # fmt: skip
    assert (await place.operator.put("/v1/authorisation-policies/alice", json=policy)).status_code == 204
    assert (await alice.put("/v1/authorisation-policies/alice", json=policy)).status_code == 403
    granted = await alice.post(
        "/v1/authorisations", json={"client_address": "2001:db8::1", "max_guaranteed_bps": 10**12, "duration_s": 1}
    )
    assert granted.status_code == 201
    # It ends by itself, and the enforcement points hear of that.
    since = (await node.get("/v1/authorisations")).json()["revision"]
    gone = (await node.get(f"/v1/authorisations?since={since}&wait_s=10")).json()["authorisations"]
    assert [(one["id"], one["removed"]) for one in gone] == [(granted.json()["id"], True)]
    bob = place.client(await place.enrol("user/bob"))
    assert (await bob.get("/v1/authorisations")).json()["authorisations"] == []
    assert (await bob.delete(f"/v1/authorisations/{made.json()['id']}")).status_code == 404
    assert (await alice.delete(f"/v1/authorisations/{made.json()['id']}")).status_code == 204
    assert (await node.post("/v1/authorisations", json={})).status_code == 403
    await only_what_is_the_tenants(place, alice)


async def test_a_revision_that_is_too_old_or_unknown_gets_the_full_list(place: Place) -> None:
    node = await place.node("edge")
    newest = (await node.get("/v1/authorisations")).json()["revision"]
    assert (await node.get(f"/v1/authorisations?since={newest + 100}&wait_s=0")).json()["full"]
    with psycopg.connect(place.settings.database_url, autocommit=True) as connection:
        connection.execute("UPDATE revision SET forgotten = value, value = value + 1")
    assert (await node.get(f"/v1/authorisations?since={newest - 1}&wait_s=0")).json()["full"]
    assert not (await node.get(f"/v1/authorisations?since={newest}&wait_s=1")).json()["full"]


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
    healing = {"prefix": "10.9.1.1/32", "next_element": "charlie", "source": "report", "shim_address": None}
    assert told["next_hops"] == [healing]
    # The same signal proves nothing twice, and reports are limited.
    assert not (await report(charlie, good))["changed"]
    answers = [(await report(charlie, junk)).get("status", 200) for _ in range(8)]
    assert 429 in answers
    with psycopg.connect(place.settings.database_url) as connection:
        actions = [row[0] for row in connection.execute("SELECT action FROM audit WHERE action LIKE 'next-hop%'")]
    assert actions.count("next-hop.report") == 2
    assert "next-hop.report-refused" in actions


async def test_replicas_answer_alike(
    place: Place, postgres: PostgresServer, tmp_path: Path, store_settings: dict[str, Any]
) -> None:
    second = settings_of(postgres.role_url("authority"), place.settings.state_dir, **store_settings)
    async with running(second, tmp_path) as other:
        files = await place.enrol("node/alpha")
        bravo = await place.enrol("node/bravo")
        here, there = place.client(files), other.client(files)
        answers = await asyncio.gather(
            *(client.get("/v1/keys/alpha/bravo") for client in (here, there, other.client(bravo)) * 5)
        )
        assert {answer.status_code for answer in answers} == {200}
        assert len({json.dumps(answer.json()["epochs"]) for answer in answers}) == 1
        await other.operator.post("/v1/revocations", json={"identity": "node/alpha"})

        async def cut_off() -> bool:
            return (await here.get("/v1/elements")).status_code == 403

        await eventually(cut_off, 5)


async def test_neighbouring_domains_share_the_keys_of_their_border(
    place: Place, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Two domains that both know the other; the one here keeps the keys of its own senders."""
    theirs = OtherAuthority()
    foreign_files = theirs.issue(tmp_path, "spiffe://b.example/node/edge")
    edge = await place.node("edge")
    await refused(place.client(foreign_files))
    body = {"url": "https://authority.b.example", "ca_pem": theirs.pem, "pairs": [["edge", "edge@b.example"]]}
    wrong = await place.operator.put("/v1/peers/b.example", json={**body, "pairs": [["edge", "other"]]})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "pairs")
    assert (await place.operator.put("/v1/peers/b.example", json=body)).status_code == 200
    foreign = place.client(foreign_files)
    ours = (await edge.get("/v1/keys/edge/edge@b.example")).json()
    assert (await foreign.get("/v1/keys/edge/edge@b.example")).json()["epochs"] == ours["epochs"]
    # Nothing else is theirs, and their authority cannot speak for our nodes.
    assert (await foreign.get("/v1/elements")).status_code == 403
    assert (await foreign.get("/v1/keys/edge@b.example/edge")).status_code == 403
    false = place.client(theirs.issue(tmp_path, f"spiffe://{DOMAIN}/node/edge"))
    answer = await false.get("/v1/elements")
    assert (answer.status_code, "did not issue it" in answer.json()["detail"]) == (401, True)
    assert (await place.operator.delete("/v1/peers/b.example")).status_code == 204
    assert (await foreign.get("/v1/keys/edge/edge@b.example")).status_code == 401


async def test_every_change_is_audited_and_without_audit_nothing_changes(place: Place) -> None:
    await place.node("alpha")
    with psycopg.connect(place.settings.database_url, autocommit=True) as connection:
        actions = {row[0] for row in connection.execute("SELECT action FROM audit")}
        assert {"enrolment.create", "certificate.issue"} <= actions
        connection.execute("ALTER TABLE audit ADD CONSTRAINT no_more CHECK (false) NOT VALID")
        try:
            answer = await place.operator.post("/v1/revocations", json={"identity": "node/alpha"})
            assert answer.status_code == 500
            active = connection.execute("SELECT active FROM identity WHERE name = 'node/alpha'").fetchone()
            assert active == (True,)
        finally:
            connection.execute("ALTER TABLE audit DROP CONSTRAINT no_more")


async def test_hostile_requests_are_refused_in_few_words(place: Place) -> None:
    node = await place.node("alpha")
    for path in ("/v1/keys/alpha/x'%3B%20DROP%20TABLE%20audit--", "/v1/keys/alpha/..%2f..%2fetc", "/v1/nothing"):
        assert (await node.get(path)).status_code in (404, 422)
    big = await node.post("/v1/certificates", content=b'{"csr": "' + b"A" * 200_000 + b'"}')
    assert big.status_code in (413, 422)
    secret = await node.post("/v1/certificates", json={"csr": "x", "token": "short", "other": "tell-nobody"})
    assert secret.status_code == 422
    assert "tell-nobody" not in secret.text
    injected = await node.get("/v1/elements", headers={"Chart-Client-Address": "1.2.3.4", "Authorization": "Bearer x"})
    assert injected.status_code == 200
    reader, writer = await asyncio.open_connection(
        *place.settings.authority_listen.split(":"), ssl=place.context(None), server_hostname="127.0.0.1"
    )
    writer.write(b"GET /v1/elements HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    await writer.drain()
    async with asyncio.timeout(place.settings.authority_head_limit_s + 5):
        assert await reader.read() == b""
    writer.close()


def modes(folder: Path) -> set[int]:
    return {file.stat().st_mode & 0o777 for file in folder.iterdir() if file.name != "lock"}


def test_the_key_store_refuses_files_that_others_may_read(tmp_path: Path) -> None:
    from chart.authority.keystore import KeyStoreError

    async def check() -> None:
        first = EmbeddedKeyStore(tmp_path, DOMAIN)
        await first.open()
        assert modes(tmp_path) == {0o600}
        made = await first.generate("pair:a:b:1")
        second = EmbeddedKeyStore(tmp_path, DOMAIN)
        await second.open()
        assert await second.unwrap("pair:a:b:1", made.wrapped) == made.plain
        with pytest.raises(KeyStoreError):
            await second.unwrap("pair:a:c:1", made.wrapped)
        (tmp_path / "master.key").chmod(0o640)
        with pytest.raises(KeyStoreError, match="chmod 600"):
            await EmbeddedKeyStore(tmp_path, DOMAIN).open()
        pem = (await second.authority()).public_bytes(serialization.Encoding.PEM)
        assert pem.startswith(b"-----BEGIN CERTIFICATE")

    asyncio.run(check())
