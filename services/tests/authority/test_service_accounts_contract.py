"""Enrolment by service account tokens over HTTPS and PostgreSQL: nodes, services, and who was revoked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from chart.common.service_identity import ServiceIdentity
from chart.common.settings import BaseServiceSettings
from support.authority import Place, csr, empty, new_key, running, settings_of
from support.kubernetes import FakeApiServer, fake_api_server, token
from support.postgres import PostgresServer

pytestmark = pytest.mark.contract

SITE = token("chart/agent", pod="agent-x", node="site-1")


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api_server() as made:
        yield made


@pytest_asyncio.fixture
async def cluster(postgres: PostgresServer, tmp_path: Path, api: FakeApiServer) -> AsyncIterator[Place]:
    """An authority in a cluster; it keeps no identities ready but the operator's, for the test."""
    empty(postgres)
    given = api.settings(tmp_path, agent=("node",), gateway=("service/gateway", "service/records"))
    local = ("user/operator",)
    settings = settings_of(
        postgres.role_url("authority"), tmp_path / "state", authority_local_identities=local, **given
    )
    async with running(settings, tmp_path) as made:
        yield made


async def come(place: Place, presented: str, identity: str) -> httpx.Response:
    body = {"csr": csr(new_key()), "token": presented, "identity": identity}
    return await place.client().post("/v1/certificates", json=body)


async def test_a_node_comes_as_often_as_its_pod_starts(cluster: Place, api: FakeApiServer) -> None:
    first, again = [await come(cluster, SITE, "node/site-1") for _ in range(2)]
    assert [first.status_code, again.status_code] == [201, 201]
    assert first.json()["element_id"] == again.json()["element_id"] == 1
    assert first.json()["identity"] == "spiffe://chart.local/node/site-1"
    other = await come(cluster, SITE, "node/site-2")
    assert (other.status_code, other.json()["type"]) == (403, "urn:chart:problem:token-of-another")
    assert api.published["ca.pem"] == cluster.ca_file.read_text()
    # No one-time token was made for it.
    assert {one["identity"] for one in (await cluster.operator.get("/v1/enrolments")).json()} == {"user/operator"}


async def test_who_was_revoked_comes_back_only_when_an_operator_lets_it(cluster: Place) -> None:
    assert (await come(cluster, SITE, "node/site-1")).status_code == 201
    early = await cluster.operator.post("/v1/enrolments", json={"identity": "node/site-1"})
    assert early.status_code == 201
    assert (await cluster.operator.post("/v1/revocations", json={"identity": "node/site-1"})).status_code == 204
    # The enrolment from before the revocation does not count.
    gone = await come(cluster, SITE, "node/site-1")
    assert (gone.status_code, gone.json()["type"]) == (403, "urn:chart:problem:identity-revoked")
    assert "node/site-1 was revoked at 20" in gone.json()["detail"]
    made = (await cluster.operator.post("/v1/enrolments", json={"identity": "node/site-1"})).json()
    assert (await come(cluster, SITE, "node/site-1")).status_code == 201
    listed = {one["id"]: one["state"] for one in (await cluster.operator.get("/v1/enrolments")).json()}
    assert (listed[made["id"]], listed[early.json()["id"]]) == ("used", "open")


async def test_a_service_gets_its_certificate_and_renews_it(cluster: Place, tmp_path: Path) -> None:
    file = tmp_path / "projected"
    file.write_text(token("chart/gateway", audience="wrong"))
    settings = BaseServiceSettings(
        state_dir=tmp_path / "pod", authority_url=cluster.url, authority_ca=cluster.ca_file,
        service_account_token_file=file,
    )  # fmt: skip
    identity = ServiceIdentity(settings, "service/records")
    with pytest.raises(httpx.HTTPStatusError):
        await identity.ready()
    # The token is read again at each attempt.
    file.write_text(token("chart/gateway", pod="gateway-x", node="site-1") + "\n")
    await identity.ready()
    assert identity.key.stat().st_mode & 0o777 == 0o600
    client = cluster.client((str(identity.certificate), str(identity.key)))
    assert (await client.get("/v1/elements")).status_code == 200
    before = identity.certificate.read_bytes()
    await ServiceIdentity(settings, "service/records").ready()
    assert identity.certificate.read_bytes() == before
    identity.certificate.write_text("half a file")
    await ServiceIdentity(settings, "service/records").ready()
    assert identity.certificate.read_bytes() != before
