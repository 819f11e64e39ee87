"""Enrolment, revocation, neighbours, next hops and policies over REST."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.gateway import World
from support.memory_authority import CA_PEM

POLICY = {
    "subjects": ["role/application"], "services": ["guaranteed"], "max_guaranteed_bps": 7, "max_priority": 1,
    "max_duration_s": 60,
}  # fmt: skip


async def call(place: World, method: str, path: str, body: Any = None, role: str = "operator") -> httpx.Response:
    return await place.client.request(method, f"/v1/{path}", json=body, headers=place.headers(role))


async def test_an_enrolment_from_token_to_revocation(place: World) -> None:
    made = await call(place, "POST", "enrolments", {"identity": "node/alpha", "life_s": 60})
    assert made.status_code == 201, made.text
    told = made.json()
    assert (told["token"], told["authority_ca_pem"]) == ("token-of-node/alpha", CA_PEM)
    assert told["authority_url"].startswith("https://")
    (listed,) = (await call(place, "GET", "enrolments")).json()["items"]
    assert (listed["state"], listed["expires_at"], listed["used_at"]) == ("open", told["expires_at"], None)
    assert "token-of" not in str(listed)
    place.authority.enrol("node/alpha")
    (alpha,) = (await call(place, "GET", "identities")).json()["items"]
    assert (alpha["identity"], alpha["state"], alpha["revoked_at"]) == ("node/alpha", "enrolled", None)
    revoked = await call(place, "POST", "revocations", {"identity": "node/alpha", "reason": "stolen"})
    assert revoked.status_code == 204, revoked.text
    (alpha,) = (await call(place, "GET", "identities")).json()["items"]
    assert (alpha["state"], alpha["reason"]) == ("revoked", "stolen")
    (gone,) = (await call(place, "GET", "revocations")).json()["items"]
    assert (gone["identity"], gone["enrolled_again"]) == ("node/alpha", False)
    assert (await call(place, "DELETE", f"enrolments/{told['id']}")).status_code == 204
    assert (await call(place, "GET", "enrolments")).json()["items"][0]["state"] == "withdrawn"


async def test_a_certificate_whose_time_is_over_is_expired(place: World) -> None:
    place.authority.enrol("node/alpha")
    place.authority.identities["node/alpha"]["not_after_us"] = 1
    assert (await call(place, "GET", "identities")).json()["items"][0]["state"] == "expired"


async def test_the_token_is_kept_nowhere_by_a_key(place: World) -> None:
    headers = {**place.headers(), "Idempotency-Key": "k"}
    made = await place.client.post("/v1/enrolments", json={"identity": "node/alpha"}, headers=headers)
    assert made.status_code == 201
    assert place.reservations.kept == {}
    # A revocation says nothing that is secret: its answer is kept as those of other calls are.
    place.authority.enrol("node/alpha")
    answers = [
        await place.client.post("/v1/revocations", json={"identity": "node/alpha"}, headers=headers) for _ in range(2)
    ]
    assert [one.status_code for one in answers] == [204, 204]
    assert answers[1].headers["idempotency-replayed"] == "true"
    assert len(place.authority.revocations) == 1


async def test_refusals_of_the_authority_come_through_in_its_words(place: World) -> None:
    answer = await call(place, "POST", "revocations", {"identity": "node/zulu"})
    problem = answer.json()
    assert (answer.status_code, problem["type"], problem["field"]) == (
        404, "urn:chart:problem:unknown-identity", "identity"
    )  # fmt: skip
    assert problem["detail"] == "No certificate was ever issued to node/zulu."
    for identity in ("user/alice", "alpha", "node/Alpha"):
        wrong = await call(place, "POST", "enrolments", {"identity": identity})
        assert (wrong.status_code, wrong.json()["field"]) == (422, "identity")


async def test_peers(place: World) -> None:
    body = {"url": "https://authority.b.example", "ca_pem": CA_PEM, "pairs": [["edge", "edge@b.example"]]}
    stated = await call(place, "PUT", "peers/b.example", body)
    assert (stated.status_code, stated.json()["pairs"]) == (200, [["edge", "edge@b.example"]])
    assert (await call(place, "GET", "peers")).json()["items"] == [stated.json()]
    assert (await call(place, "DELETE", "peers/b.example")).status_code == 204
    assert (await call(place, "DELETE", "peers/b.example")).status_code == 404


async def test_next_hops(place: World) -> None:
    body = {"next_element": "bravo", "shim_address": "10.0.0.2"}
    stated = await call(place, "PUT", "next-hops/alpha/10.9.0.0/16", body)
    assert stated.status_code == 200, stated.text
    assert stated.json() == {
        "element": "alpha", "prefix": "10.9.0.0/16", "source": "operator", "expires_at": None, **body
    }  # fmt: skip
    assert (await call(place, "GET", "next-hops?element=alpha")).json()["items"] == [stated.json()]
    assert (await call(place, "GET", "next-hops?element=bravo")).json()["items"] == []
    assert (await call(place, "GET", "next-hops/alpha/10.9.1.7")).json()["next_element"] == "bravo"
    none = await call(place, "GET", "next-hops/alpha/192.0.2.1")
    assert none.json()["detail"] == "alpha has no next hop towards 192.0.2.1."
    wrong = await call(place, "PUT", "next-hops/alpha/10.9.1.0/16", body)
    assert (wrong.status_code, wrong.json()["field"]) == (422, "network")
    six = await call(place, "PUT", "next-hops/alpha/2001:db8::/32", {"next_element": "charlie@b.example"})
    assert (six.json()["prefix"], six.json()["shim_address"]) == ("2001:db8::/32", None)
    assert (await call(place, "DELETE", "next-hops/alpha/10.9.0.0/16")).status_code == 204
    assert (await call(place, "DELETE", "next-hops/alpha/10.9.0.0/16")).status_code == 404


async def test_authorisation_policies(place: World) -> None:
    stated = await call(place, "PUT", "authorisation-policies/apps", POLICY)
    assert (stated.status_code, stated.json()["max_delay_class"], stated.json()["any_address"]) == (200, 3, False)
    assert (await call(place, "GET", "authorisation-policies")).json()["items"] == [stated.json()]
    assert (await call(place, "GET", "authorisation-policies/apps")).json() == stated.json()
    assert (await call(place, "GET", "authorisation-policies/none")).status_code == 404
    assert (await call(place, "DELETE", "authorisation-policies/apps")).status_code == 204
    assert (await call(place, "DELETE", "authorisation-policies/apps")).status_code == 404


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "enrolments", {"identity": "node/alpha"}),
        ("GET", "enrolments", None),
        ("DELETE", "enrolments/E0", None),
        ("GET", "identities", None),
        ("POST", "revocations", {"identity": "node/alpha"}),
        ("GET", "revocations", None),
        ("GET", "peers", None),
        ("DELETE", "peers/b.example", None),
        ("GET", "next-hops", None),
        ("GET", "next-hops/alpha/10.0.0.1", None),
        ("PUT", "next-hops/alpha/10.9.0.0/16", {"next_element": "bravo"}),
        ("DELETE", "next-hops/alpha/10.9.0.0/16", None),
        ("GET", "authorisation-policies", None),
        ("PUT", "authorisation-policies/apps", POLICY),
        ("DELETE", "authorisation-policies/apps", None),
    ],
)
async def test_operators_only(place: World, method: str, path: str, body: Any) -> None:
    for role in ("viewer", "application"):
        assert (await call(place, method, path, body, role)).status_code == 403
