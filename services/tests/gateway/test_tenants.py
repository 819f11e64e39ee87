"""Tenants over REST, and what reservations learn of who asks."""

from __future__ import annotations

import time
from typing import Any

import jwt
import pytest

from chart.common.tokens import TokenError
from support.gateway import World

BODY: dict[str, Any] = {
    "members": ["frontend"],
    "ends": [{"prefix": "10.4.0.0/16"}, {"node": "alpha", "protocol": "tcp", "ports": "8000-8099"}],
}


async def put(place: World, body: dict[str, Any], tenant: str = "shop", **headers: str) -> Any:
    return await place.client.put(f"/v1/tenants/{tenant}", json=body, headers={**place.headers("operator"), **headers})


async def test_a_tenant_is_stated_changed_listed_and_removed(place: World) -> None:
    made = await put(place, BODY)
    assert made.status_code == 201
    assert made.headers["Location"] == "/v1/tenants/shop"
    assert made.json()["ends"][1] == {
        **{"node": "alpha", "prefix": None, "protocol": "tcp", "ports": "8000-8099", "cgroup_id": None},
    }
    changed = await put(place, {**BODY, "ends": []}, **{"If-Match": made.headers["ETag"]})
    assert (changed.status_code, changed.json()["ends"]) == (200, [])
    assert (await put(place, BODY, **{"If-Match": made.headers["ETag"]})).status_code == 412
    listed = await place.client.get("/v1/tenants", headers=place.headers("viewer"))
    assert [one["id"] for one in listed.json()["items"]] == ["shop"]
    for role, status in (("application", 403), ("viewer", 403), ("operator", 204)):
        gone = await place.client.delete("/v1/tenants/shop", headers=place.headers(role))
        assert gone.status_code == status
    assert (await place.client.get("/v1/tenants/shop", headers=place.headers("viewer"))).status_code == 404


@pytest.mark.parametrize("path", ["/v1/tenants", "/v1/tenants/shop"])
async def test_applications_do_not_read_them(place: World, path: str) -> None:
    await put(place, BODY)
    assert (await place.client.get(path, headers=place.headers("application"))).status_code == 403


@pytest.mark.parametrize(
    ("fields", "at_fault"),
    [
        ({"ends": [{}]}, "ends[0]"),
        ({"ends": [{"prefix": "ten"}]}, "ends"),
        ({"ends": [{"node": "alpha", "ports": "9-5"}]}, "ends"),
        ({"ends": [{"prefix": "10.0.0.0/8", "cgroup_id": 9}]}, "ends[0].node"),
        ({"namespaces": ["Not"]}, "namespaces"),
    ],
)
async def test_a_wrong_tenant_is_refused_by_field(place: World, fields: dict[str, Any], at_fault: str) -> None:
    answer = await put(place, {**BODY, **fields})
    assert answer.status_code == 422
    assert str(answer.json()["field"]).startswith(at_fault)


def issued(place: World, **claims: Any) -> str:
    """A token of the development issuer with more claims."""
    issuer = place.gateway.issuer
    assert issuer is not None
    plain = place.token("application", subject="frontend")
    found = jwt.decode(plain, options={"verify_signature": False})
    kid = jwt.get_unverified_header(plain)["kid"]
    return jwt.encode(
        {**found, "exp": int(time.time()) + 60, **claims}, issuer._private, algorithm="EdDSA", headers={"kid": kid}
    )


async def test_claims_name_tenant_and_client(place: World) -> None:
    verify = place.gateway.verifier.verify
    found = await verify(issued(place, tenant="shop", azp="till", client_id="other"))
    assert (found.subject, found.tenant, found.client) == ("frontend", "shop", "till")
    assert (await verify(issued(place, client_id="till"))).client == "till"
    assert (await verify(issued(place, azp=7))).client == ""
    for strange in (["shop", "bulk"], 7, "x" * 129):
        with pytest.raises(TokenError, match="tenant must be the id of one tenant"):
            await verify(issued(place, tenant=strange))
