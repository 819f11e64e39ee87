"""The dashboard's files, and what surrounds every answer."""

from __future__ import annotations

import gzip
import re

import pytest

from support.gateway import World


@pytest.fixture
def dashboard(place: World) -> World:
    folder = place.gateway.settings.web_dir
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<title>CHART</title>")
    (folder / "assets" / "index-abc.js").write_text("let x;")
    (folder.parent / "secret").write_text("secret")
    return place


async def test_files_and_page(dashboard: World) -> None:
    for path in ("/", "/links/alpha:to-delta", "/requests", "/index.html"):
        answer = await dashboard.client.get(path)
        assert (answer.status_code, answer.text) == (200, "<title>CHART</title>"), path
        assert answer.headers["cache-control"] == "no-cache"
        assert "script-src 'self'" in answer.headers["content-security-policy"]
    asset = await dashboard.client.get("/assets/index-abc.js")
    assert "immutable" in asset.headers["cache-control"]
    assert asset.headers["content-type"].startswith("text/javascript")
    for path in ("/assets/gone.js", "/picture.png"):
        assert (await dashboard.client.get(path)).status_code == 404


async def test_compressed_where_the_build_left_it_and_the_client_takes_it(dashboard: World) -> None:
    asset = dashboard.gateway.settings.web_dir / "assets" / "index-abc.js"
    asset.with_name("index-abc.js.gz").write_bytes(gzip.compress(b"let x;"))
    answer = await dashboard.client.get("/assets/index-abc.js", headers={"Accept-Encoding": "gzip, br"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers["content-type"].startswith("text/javascript")
    assert answer.text == "let x;"
    plain = await dashboard.client.get("/assets/index-abc.js", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.text == "let x;"


@pytest.mark.parametrize("path", ["/../secret", "/%2e%2e/secret", "/assets/..%2f..%2fsecret", "/..%5csecret", "/%00"])
async def test_nothing_outside_is_served(dashboard: World, path: str) -> None:
    answer = await dashboard.client.get(path)
    assert "secret" not in answer.text or answer.status_code == 404


async def test_dashboard_that_is_not_built(place: World) -> None:
    answer = await place.client.get("/")
    assert answer.status_code == 404
    assert answer.json()["suggestions"]


async def test_request_ids(place: World) -> None:
    answer = await place.client.get("/healthz", headers={"X-Request-ID": "my-request-1"})
    assert answer.headers["x-request-id"] == "my-request-1"
    answer = await place.client.get("/healthz", headers={"X-Request-ID": "x y\tz"})
    assert re.fullmatch(r"[0-9A-Z]{26}", answer.headers["x-request-id"])


async def test_metrics_count_by_route(place: World) -> None:
    for name in ("a", "b"):
        await place.client.get(f"/v1/nodes/{name}", headers=place.headers())
    text = (await place.client.get("/metrics")).text
    assert 'chart_gateway_requests_total{method="GET",route="/v1/nodes/{id}",status="404"}' in text
    assert "/v1/nodes/a" not in text


async def test_ready(place: World) -> None:
    answer = await place.client.get("/readyz")
    assert answer.status_code == 200
    assert set(answer.json()["checks"]) == {"registry", "reservations", "archiver", "streams"}
