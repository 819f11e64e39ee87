"""A replica that has not heard yet what another did: it undoes no revocation and makes no key for a revoked node."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from chart.authority import certificates, enrolments, main, tls
from chart.authority.context import Authority
from chart.authority.identity import Identity, Proof
from chart.authority.schemas import EnrolmentBody
from chart.common.problems import ProblemError
from support.authority import Place, csr, empty, new_key, running, settings_of
from support.postgres import PostgresServer
from support.waiting import eventually

pytestmark = pytest.mark.contract


@pytest_asyncio.fixture
async def stale(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Authority]:
    """An authority that follows no changes."""
    empty(postgres)
    settings = settings_of(postgres.role_url("authority"), tmp_path / "state")
    async with main.running(settings, tls.server_context()) as (authority, _):
        yield authority


async def enrol(authority: Authority, name: str) -> Proof:
    made = await enrolments.make(authority, EnrolmentBody(identity=f"node/{name}", life_s=60), "test")
    issued = await certificates.issue(authority, csr(new_key()), token=made.token, holder=None)
    return Proof(Identity("chart.local", "node", name), issued.serial, issued.not_after_us)


def elsewhere(authority: Authority, statement: str) -> None:
    """What another replica did."""
    with psycopg.connect(authority.settings.database_url, autocommit=True) as connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE identity SET active = false WHERE name = 'node/alpha'",
        "UPDATE certificate SET revoked_at_us = 1 WHERE identity = 'node/alpha'",
    ],
)
async def test_a_renewal_undoes_no_revocation(stale: Authority, statement: str) -> None:
    alpha = await enrol(stale, "alpha")
    again = await certificates.issue(stale, csr(new_key()), token=None, holder=alpha)
    assert again.element_id == 1
    elsewhere(stale, statement)
    with pytest.raises(ProblemError, match="revoked") as refused:
        await certificates.issue(stale, csr(new_key()), token=None, holder=alpha)
    assert (refused.value.status, refused.value.kind) == (403, "certificate-revoked")
    # A new token is the operator's word that it may come back.
    assert (await enrol(stale, "alpha")).serial != alpha.serial


async def test_no_key_is_made_for_a_node_that_was_revoked(stale: Authority) -> None:
    for name in ("alpha", "bravo"):
        await enrol(stale, name)
    elsewhere(stale, "UPDATE identity SET active = false WHERE name = 'node/bravo'")
    for pair in (("alpha", "bravo"), ("bravo", "alpha"), ("bravo", "")):
        with pytest.raises(ProblemError, match="bravo is not enrolled here"):
            await stale.keys.of_pair(*pair)
    assert len(await stale.keys.of_pair("alpha", "")) == 1


async def test_a_new_epoch_is_known_at_every_replica_at_once(
    place: Place, postgres: PostgresServer, tmp_path: Path, store_settings: dict[str, Any]
) -> None:
    second = settings_of(postgres.role_url("authority"), place.settings.state_dir, **store_settings)
    async with running(second, tmp_path) as other:
        files = [await place.enrol(f"node/{name}") for name in ("alpha", "bravo")]
        alpha, bravo = place.client(files[0]), other.client(files[1])
        path = "/v1/keys/alpha/bravo"
        first = (await alpha.get(path)).json()["epochs"]
        assert (await bravo.get(path)).json()["epochs"] == first
        # Longer than a pair is held by a replica that is told nothing.
        began = time.monotonic()
        await eventually(lambda: time.monotonic() > began + 1.5)
        fresh = (await alpha.get(f"{path}?start=true")).json()["epochs"]
        assert len(fresh) == 2

        async def known() -> bool:
            return bool((await bravo.get(path)).json()["epochs"] == fresh)

        await eventually(known, 1)
        await asyncio.gather(*(client.get(path) for client in (alpha, bravo)))


async def test_replicas_of_one_machine_make_one_set_of_identities(postgres: PostgresServer, tmp_path: Path) -> None:
    empty(postgres)
    url = postgres.role_url("authority")
    both = [settings_of(url, tmp_path / "state") for _ in range(2)]
    async with running(both[0], tmp_path) as one, running(both[1], tmp_path) as other:
        for identity in ("service-gateway", "service-records", "user-operator"):
            for place in (one, other):
                # Certificate and key belong together, or this raises.
                assert (await place.client(one.local(identity)).get("/v1/elements")).status_code == 200
    with psycopg.connect(url) as connection:
        issued = connection.execute("SELECT count(*) FROM certificate").fetchone()
    assert issued == (3,)
