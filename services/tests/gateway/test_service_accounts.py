"""Service account tokens of the gateway's cluster, and what a controller may state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from support.gateway import World, world
from support.kubernetes import OWN_TOKEN, FakeApiServer, fake_api_server, token

BODY = {"source": "alpha", "destination": "delta", "guaranteed_bps": 1_000_000}
CONTROLLER = "chart-system/chart-rate-controller"


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with fake_api_server() as made:
        yield made


@pytest_asyncio.fixture
async def place(tmp_path: Path, api: FakeApiServer) -> AsyncIterator[World]:
    own = tmp_path / "api-token"
    own.write_text(OWN_TOKEN)
    given = {"kubernetes_url": api.url, "kubernetes_token_file": own, "kubernetes_controllers": (CONTROLLER,)}
    async with world(tmp_path, **given) as made:
        yield made


def bearer(account: str, **more: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(account, **{'audience': 'chart-gateway', **more})}"}


async def test_an_account_is_an_application(place: World) -> None:
    mine = bearer("batch/copier")
    made = await place.client.post("/v1/rate-requests", json=BODY, headers=mine)
    assert made.status_code == 201
    assert made.json()["owner"] == "system:serviceaccount:batch:copier"
    assert (await place.client.put("/v1/nodes/x", json={}, headers=mine)).status_code == 403
    others = await place.client.get("/v1/rate-requests", headers=bearer("shop/web"))
    assert others.json()["items"] == []


async def test_a_controller_sees_all_and_asks_for_a_namespace_only(place: World) -> None:
    await place.client.post("/v1/rate-requests", json=BODY, headers=bearer("batch/copier"))
    mine = bearer(CONTROLLER)
    assert len((await place.client.get("/v1/rate-requests", headers=mine)).json()["items"]) == 1
    assert (await place.client.post("/v1/rate-requests", json=BODY, headers=mine)).status_code == 403
    stated = {**mine, "Chart-Namespace": "shop", "Chart-Pod-Addresses": "10.1.0.5, 2001:db8::5"}
    made = await place.client.post("/v1/rate-requests", json=BODY, headers=stated)
    assert made.json()["owner"] == "system:serviceaccount:shop:chart-rates"
    assert list(place.reservations.callers[made.json()["id"]].addresses) == ["10.1.0.5", "2001:db8::5"]
    # In the name of another namespace it is not even there.
    path = f"/v1/rate-requests/{made.json()['id']}/release"
    gone = await place.client.post(path, headers={**mine, "Chart-Namespace": "x"})
    assert gone.status_code == 404


@pytest.mark.parametrize(
    ("headers", "status", "word"),
    [
        ({**bearer("batch/copier"), "Chart-Namespace": "shop"}, 403, "may not state Chart-Namespace"),
        ({**bearer("batch/copier"), "Chart-Pod-Addresses": "10.0.0.1"}, 403, "may not state Chart-Pod-Addresses"),
        ({**bearer(CONTROLLER), "Chart-Namespace": "Not A Name"}, 422, "must be the name of a namespace"),
        ({**bearer(CONTROLLER), "Chart-Pod-Addresses": "10.0.0.1"}, 422, "must be the name of a namespace"),
        ({**bearer(CONTROLLER), "Chart-Namespace": "a", "Chart-Pod-Addresses": "x"}, 422, "must be addresses"),
        ({**bearer(CONTROLLER), "Chart-Namespace": "a", "Chart-Pod-Addresses": "::1," * 17}, 422, "at most 16"),
        (bearer("batch/copier", audience="chart-authority"), 401, "audiences are invalid"),
        (bearer("batch/copier", life_s=-5), 401, "token is invalid"),
    ],
)
async def test_each_fault_has_its_words(place: World, headers: dict[str, str], status: int, word: str) -> None:
    found = await place.client.post("/v1/rate-requests", json=BODY, headers=headers)
    assert found.status_code == status
    assert word in found.json()["detail"]


async def test_an_operator_may_not_state_a_namespace(place: World) -> None:
    headers = {**place.headers("admin"), "Chart-Namespace": "shop"}
    assert (await place.client.get("/v1/rate-requests", headers=headers)).status_code == 403


async def test_an_api_server_that_is_away_is_no_fault_of_the_token(place: World, api: FakeApiServer) -> None:
    api.away = True
    found = await place.client.get("/v1/rate-requests", headers=bearer("batch/copier"))
    assert found.status_code == 503


async def test_the_cluster_s_word_is_kept_for_a_while(place: World, api: FakeApiServer) -> None:
    mine = bearer("batch/copier")
    assert (await place.client.get("/v1/rate-requests", headers=mine)).status_code == 200
    api.away = True
    assert (await place.client.get("/v1/rate-requests", headers=mine)).status_code == 200
