"""Enrolments, revocations, identities, next hops and policies as operators see them, over a real PostgreSQL."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.x509.oid import NameOID
from prometheus_client import REGISTRY

from chart.authority import main, service, streams, tls
from chart.authority.keystore_embedded import EmbeddedKeyStore
from support.authority import Place, csr, empty, new_key, running, settings_of, sign_certificate, store
from support.postgres import PostgresServer

pytestmark = pytest.mark.contract

DOMAIN = "chart.local"
REASONS = ("token-of-another", "token-used", "token-expired", "token-unknown")


@pytest_asyncio.fixture
async def embedded(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Place]:
    """An authority with the key store of one machine: what is tested here is the same with every store."""
    empty(postgres)
    settings = settings_of(postgres.role_url("authority"), tmp_path / "state")
    async with running(settings, tmp_path) as made:
        yield made


async def token_for(place: Place, identity: str, **more: Any) -> dict[str, Any]:
    answer = await place.operator.post("/v1/enrolments", json={"identity": identity, **more})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def come(place: Place, token: str, **more: Any) -> httpx.Response:
    """Somebody comes with a token."""
    return await place.client().post("/v1/certificates", json={"csr": csr(new_key()), "token": token, **more})


def told(answer: httpx.Response) -> tuple[int, str, str]:
    problem = answer.json()
    return answer.status_code, problem["type"].rsplit(":", 1)[1], problem["detail"]


def refused(reason: str) -> float:
    """Tokens that this process refused for a reason; what alerts look at."""
    return REGISTRY.get_sample_value("chart_authority_refused_enrolments_total", {"reason": reason}) or 0.0


def actions(place: Place) -> list[str]:
    with psycopg.connect(place.settings.database_url) as connection:
        return [row[0] for row in connection.execute("SELECT action FROM audit ORDER BY id")]


async def test_each_token_that_is_refused_is_told_why(embedded: Place) -> None:
    before = {reason: refused(reason) for reason in REASONS}
    made = await token_for(embedded, "node/alpha")
    other = await come(embedded, made["token"], identity="node/bravo")
    assert told(other)[:2] == (403, "token-of-another")
    assert "is for node/alpha, and node/bravo came with it" in told(other)[2]
    # It was not used up by that.
    assert (await come(embedded, made["token"], identity="node/alpha")).status_code == 201
    status, kind, words = told(await come(embedded, made["token"]))
    assert (status, kind) == (403, "token-used")
    assert words.startswith("This one-time token enrolled node/alpha before, at 20")
    short = await token_for(embedded, "node/charlie", life_s=3600)
    with psycopg.connect(embedded.settings.database_url, autocommit=True) as connection:
        connection.execute("UPDATE enrolment SET expires_at_us = 1 WHERE id = %s", (short["id"],))
    status, kind, words = told(await come(embedded, short["token"]))
    assert (status, kind) == (403, "token-expired")
    assert "of node/charlie expired at 1970-01-01T00:00:00Z" in words
    assert told(await come(embedded, "x" * 43))[:2] == (403, "token-unknown")
    for reason in REASONS:
        assert refused(reason) == before[reason] + 1, reason
    wrong = await come(embedded, short["token"], identity="robot/x")
    assert (wrong.status_code, wrong.json()["field"]) == (422, "identity")


async def test_who_did_not_hear_the_answer_asks_again_with_the_same_key(embedded: Place) -> None:
    made, key = await token_for(embedded, "node/alpha"), new_key()

    async def ask(request: str) -> httpx.Response:
        return await embedded.client().post("/v1/certificates", json={"csr": request, "token": made["token"]})

    first, second = (await ask(csr(key))).json(), (await ask(csr(key))).json()
    assert second["identity"] == first["identity"]
    assert second["element_id"] == first["element_id"]
    assert second["serial"] != first["serial"]
    public = x509.load_pem_x509_certificate(second["certificate"].encode()).public_key()
    assert public == key.public_key()
    answer = await embedded.operator.get("/v1/enrolments")
    (listed,) = [one for one in answer.json() if one["identity"] == "node/alpha"]
    assert (listed["state"], listed["serial"]) == ("used", second["serial"])
    # Somebody else with the token, and who was revoked since.
    assert told(await ask(csr(new_key())))[:2] == (403, "token-used")
    body = {"identity": "node/alpha", "reason": "lost"}
    assert (await embedded.operator.post("/v1/revocations", json=body)).status_code < 300
    assert told(await ask(csr(key)))[:2] == (403, "token-used")
    # Nor when a new token let it return meanwhile.
    assert (await come(embedded, (await token_for(embedded, "node/alpha"))["token"])).status_code == 201
    assert told(await ask(csr(key)))[:2] == (403, "token-used")


async def test_the_same_key_is_too_late_when_the_token_is_over(embedded: Place) -> None:
    made, key = await token_for(embedded, "node/alpha"), new_key()
    body = {"csr": csr(key), "token": made["token"]}
    assert (await embedded.client().post("/v1/certificates", json=body)).status_code == 201
    with psycopg.connect(embedded.settings.database_url, autocommit=True) as connection:
        connection.execute("UPDATE enrolment SET expires_at_us = 1 WHERE id = %s", (made["id"],))
    assert told(await embedded.client().post("/v1/certificates", json=body))[:2] == (403, "token-used")


async def test_enrolments_are_listed_and_withdrawn(embedded: Place) -> None:
    used, left, withdrawn = [await token_for(embedded, f"node/{name}") for name in ("alpha", "bravo", "charlie")]
    issued = (await come(embedded, used["token"])).json()
    path = "/v1/enrolments"
    assert (await embedded.operator.delete(f"{path}/{withdrawn['id']}")).status_code == 204
    assert told(await come(embedded, withdrawn["token"]))[:2] == (403, "token-withdrawn")
    late = await embedded.operator.delete(f"{path}/{used['id']}")
    assert told(late)[:2] == (409, "token-used")
    assert (await embedded.operator.delete(f"{path}/nothing")).status_code == 404
    answer = await embedded.operator.get(path)
    found = {one["identity"]: one for one in answer.json()}
    states = {name: found[f"node/{name}"]["state"] for name in ("alpha", "bravo", "charlie")}
    assert states == {"alpha": "used", "bravo": "open", "charlie": "withdrawn"}
    assert found["node/alpha"]["created_by"] == "user/operator"
    assert found["node/alpha"]["serial"] == issued["serial"]
    assert found["node/alpha"]["not_after_us"] == issued["not_after_us"]
    for made in (used, left, withdrawn):
        assert made["token"] not in answer.text
    assert {"enrolment.create", "enrolment.withdraw"} <= set(actions(embedded))
    node = await embedded.node("delta")
    for method, place in (("GET", path), ("DELETE", f"{path}/{left['id']}"), ("GET", "/v1/identities"),
                          ("GET", "/v1/revocations"), ("GET", "/v1/next-hop-entries"),
                          ("GET", "/v1/authorisation-policies")):  # fmt: skip
        assert (await node.request(method, place)).status_code == 403, place


async def test_a_repeated_call_makes_one_enrolment(embedded: Place) -> None:
    first, second = [await token_for(embedded, "node/alpha", repetition_key="k") for _ in range(2)]
    assert (first["id"], first["expires_at_us"]) == (second["id"], second["expires_at_us"])
    # The token is kept nowhere: the second answer has another one, and the first is worth nothing.
    assert told(await come(embedded, first["token"]))[:2] == (403, "token-unknown")
    assert (await come(embedded, second["token"])).status_code == 201
    body = {"identity": "node/alpha", "repetition_key": "k"}
    assert told(await embedded.operator.post("/v1/enrolments", json=body))[:2] == (409, "enrolment-over")
    body["identity"] = "node/bravo"
    assert told(await embedded.operator.post("/v1/enrolments", json=body))[:2] == (409, "idempotency-key-reused")


async def test_who_has_a_certificate_and_what_was_revoked(embedded: Place) -> None:
    await embedded.node("alpha")
    unknown = await embedded.operator.post("/v1/revocations", json={"identity": "node/zulu"})
    assert told(unknown) == (404, "unknown-identity", "No certificate was ever issued to node/zulu.")
    body = {"identity": "node/alpha", "reason": "stolen"}
    assert (await embedded.operator.post("/v1/revocations", json=body)).status_code == 204
    (alpha,) = [one for one in (await embedded.operator.get("/v1/identities")).json() if one["element_id"]]
    assert (alpha["identity"], alpha["active"], alpha["revoked_because"]) == ("node/alpha", False, "stolen")
    (revoked,) = (await embedded.operator.get("/v1/revocations")).json()
    assert (revoked["identity"], revoked["serial"], revoked["reason"]) == ("node/alpha", alpha["serial"], "stolen")
    await embedded.node("alpha")
    (again,) = [one for one in (await embedded.operator.get("/v1/identities")).json() if one["element_id"]]
    assert (again["active"], again["certificate_revoked_at_us"]) == (True, 0)
    assert (await embedded.operator.get("/v1/revocations")).json()[0]["active"]


async def test_a_certificate_of_another_time_is_told_so(embedded: Place, tmp_path: Path) -> None:
    keys = EmbeddedKeyStore(embedded.settings.home / "store", DOMAIN)
    await keys.open()
    assert isinstance(keys._authority_key, EllipticCurvePrivateKey)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clock")])
    issuer = (await keys.authority()).subject
    hour = datetime.timedelta(hours=1)
    for begins, kind, words in (
        (hour, "certificate-not-yet-valid", "is not valid before"),
        (-3 * hour, "certificate-expired", "expired at"),
    ):
        key = new_key()
        uri = f"spiffe://{DOMAIN}/node/clock"
        made = sign_certificate(keys._authority_key, issuer, subject, key, uri, begins + hour, begins=begins)
        answer = await embedded.client(store(tmp_path, kind, key, made)).get("/v1/elements")
        assert told(answer)[:2] == (401, kind)
        assert f"The certificate of node/clock {words} 20" in told(answer)[2]
        # Nor is it renewed.
        body = {"csr": csr(new_key())}
        renewed = await embedded.client(store(tmp_path, kind, key, made)).post("/v1/certificates", json=body)
        assert told(renewed)[:2] == (401, kind)


async def test_next_hops_are_asked_for_and_listed(embedded: Place) -> None:
    alpha = await embedded.node("alpha")
    entries = [
        {"element": "alpha", "prefix": "10.9.0.0/16", "next_element": "bravo", "shim_address": "10.0.0.2"},
        {"element": "alpha", "prefix": "10.9.1.0/24", "next_element": "charlie"},
        {"element": "bravo", "prefix": "2001:db8::/32", "next_element": "charlie"},
    ]
    for entry in entries:
        assert (await embedded.operator.put("/v1/next-hops", json=entry)).status_code == 204
    own = {"source": "operator"}
    assert (await alpha.get("/v1/next-hops/10.9.1.7")).json() == {
        "prefix": "10.9.1.0/24", "next_element": "charlie", "shim_address": None, **own
    }  # fmt: skip
    assert (await alpha.get("/v1/next-hops/10.9.2.7")).json()["shim_address"] == "10.0.0.2"
    none = await alpha.get("/v1/next-hops/192.0.2.1")
    assert told(none) == (404, "no-next-hop", "alpha has no next hop towards 192.0.2.1.")
    assert (await alpha.get("/v1/next-hops/here")).status_code == 422
    assert (await alpha.get("/v1/next-hops/2001:db8::1?element=bravo")).status_code == 403
    asked = await embedded.operator.get("/v1/next-hops/2001:db8::1?element=bravo")
    assert asked.json()["next_element"] == "charlie"
    assert (await embedded.operator.get("/v1/next-hops/10.9.1.7")).json()["field"] == "element"
    listed = (await embedded.operator.get("/v1/next-hop-entries?element=alpha")).json()
    assert [(one["prefix"], one["next_element"], one["source"]) for one in listed] == [
        ("10.9.0.0/16", "bravo", "operator"), ("10.9.1.0/24", "charlie", "operator")
    ]  # fmt: skip
    assert len((await embedded.operator.get("/v1/next-hop-entries")).json()) == 3
    polled = (await alpha.get("/v1/next-hops")).json()["next_hops"]
    assert {one["shim_address"] for one in polled} == {"10.0.0.2", None}
    gone = {"element": "alpha", "prefix": "10.9.1.0/24", "next_element": None}
    assert (await embedded.operator.put("/v1/next-hops", json=gone)).status_code == 204
    assert (await alpha.get("/v1/next-hops/10.9.1.7")).json()["next_element"] == "bravo"


async def test_next_hops_of_the_topology_carry_the_address_of_the_shim(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    empty(postgres)
    settings = settings_of(postgres.role_url("authority"), tmp_path / "state")
    addresses = {name: ipaddress.ip_interface(f"10.0.0.{n}/32") for n, name in enumerate(("alpha", "bravo"), start=1)}
    topology = service.Topology(
        prefixes={name: (one.network,) for name, one in addresses.items()},
        neighbours={"alpha": {"bravo"}, "bravo": {"alpha"}},
        addresses={name: (one.ip,) for name, one in addresses.items()},
    )
    async with main.running(settings, tls.server_context()) as (authority, _):
        assert await streams.write_next_hops(authority.pool, topology, authority.clock) == 2
        # Nothing new, nothing written.
        assert await streams.write_next_hops(authority.pool, topology, authority.clock) == 0
        topology.addresses["bravo"] = (ipaddress.ip_address("10.0.0.9"),)
        assert await streams.write_next_hops(authority.pool, topology, authority.clock) == 1
    with psycopg.connect(settings.database_url) as connection:
        rows = connection.execute("SELECT element, next_element, source, host(shim_address) FROM next_hop ORDER BY 1")
        assert rows.fetchall() == [
            ("alpha", "bravo", "topology", "10.0.0.9"), ("bravo", "alpha", "topology", "10.0.0.1")
        ]  # fmt: skip


async def test_authorisation_policies_are_listed_and_removed(embedded: Place) -> None:
    policy = {
        "subjects": ["role/application"], "services": ["guaranteed"], "max_guaranteed_bps": 7, "max_priority": 1,
        "max_delay_class": 3, "charging": 0, "max_duration_s": 60, "any_address": False,
    }  # fmt: skip
    path = "/v1/authorisation-policies"
    assert (await embedded.operator.put(f"{path}/apps", json=policy)).status_code == 204
    assert (await embedded.operator.get(path)).json() == [{"id": "apps", **policy}]
    assert (await embedded.operator.delete(f"{path}/apps")).status_code == 204
    assert (await embedded.operator.get(path)).json() == []
    gone = await embedded.operator.delete(f"{path}/apps")
    assert told(gone)[2] == "There is no authorisation policy apps."
    assert {"authorisation-policy.put", "authorisation-policy.delete"} <= set(actions(embedded))


async def test_nodes_with_long_host_names_enrol_and_get_their_keys(embedded: Place) -> None:
    ends = [".".join([f"node-{number}" + "a" * 50, "b" * 60, "c" * 60, "lab.example.net"]) for number in (1, 2)]
    subjects = set()
    for name in ends:
        made = await token_for(embedded, f"node/{name}")
        issued = (await come(embedded, made["token"], identity=f"node/{name}")).json()
        assert issued["identity"].endswith(f"/node/{name}")
        subjects.add(x509.load_pem_x509_certificate(issued["certificate"].encode()).subject.rfc4514_string())
    # Principals of the broker are made of subjects: no two nodes have the same.
    assert len(subjects) == 2
    here = await embedded.node(ends[0])
    keys = await here.get(f"/v1/keys/{ends[0]}/{ends[1]}?start=true")
    assert keys.status_code == 200, keys.text
    assert (keys.json()["sender"], keys.json()["receiver"]) == tuple(ends)
    assert (await here.get(f"/v1/stream-keys/{ends[0]}")).status_code == 200
    listed = {one["identity"] for one in (await embedded.operator.get("/v1/enrolments")).json()}
    assert {f"node/{name}" for name in ends} <= listed
