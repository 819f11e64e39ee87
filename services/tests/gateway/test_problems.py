"""Every refusal is a problem document that names the field and what would do (RFC 9457)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.gateway import CAPACITY_BPS, World, listening, world

REQUESTS = "/v1/rate-requests"
GOOD: dict[str, Any] = {"source": "alpha", "destination": "delta", "guaranteed_bps": 1_000_000}


def assert_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["status"] == status
    assert document["type"].startswith("urn:chart:problem:")
    assert document["title"]
    assert document["detail"]
    assert document["instance"] == answer.request.url.path
    assert document["request_id"] == answer.headers["x-request-id"]
    return document


@pytest.mark.parametrize(
    ("change", "status", "field", "bounds"),
    [
        ({"guaranteed_bps": -5}, 422, "guaranteed_bps", {"floor": 0}),
        ({"guaranteed_bps": 10**16}, 422, "guaranteed_bps", {"ceiling": 10**15}),
        ({"guaranteed_bps": "60M"}, 422, "guaranteed_bps", {}),
        ({"guaranteed_bps": 0}, 422, "guaranteed_bps", {"floor": 1}),
        ({"guaranteed_bps": True}, 422, "guaranteed_bps", {}),
        ({"priority": 256}, 422, "priority", {"ceiling": 255}),
        ({"destination_port": 0}, 422, "destination_port", {"floor": 1}),
        ({"protocol": "sctp"}, 422, "protocol", {}),
        ({"service": "best"}, 422, "service", {}),
        ({"service": "available"}, 422, "guaranteed_bps", {"ceiling": 0}),
        ({"minimum_bps": 2_000_000}, 422, "minimum_bps", {"ceiling": 1_000_000}),
        ({"maximum_bps": 10}, 422, "maximum_bps", {"floor": 1_000_000}),
        ({"source": "no such node!"}, 422, "source", {}),
        ({"source": "999.1.1.1"}, 422, "source", {}),
        ({"source": "zulu"}, 422, "source", {}),
        ({"start": "2026-12-01T00:00:00Z", "end": "2026-11-01T00:00:00Z"}, 422, "end", {}),
        ({"start": "2026-12-01T00:00:00"}, 422, "start", {}),
        ({"end": "2126-12-01T00:00:00Z", "duration_s": 5}, 422, "duration_s", {}),
        ({"colour": "red"}, 422, "colour", {}),
        ({"tags": {"a": 5}}, 422, "tags.a", {}),
        ({"guaranteed_bps": CAPACITY_BPS + 1}, 409, "guaranteed_bps", {"ceiling": CAPACITY_BPS}),
    ],
)
async def test_wrong_rate_request(
    place: World, change: dict[str, Any], status: int, field: str, bounds: dict[str, int]
) -> None:
    answer = await place.client.post(REQUESTS, json={**GOOD, **change}, headers=place.headers())
    problem = assert_problem(answer, status)
    assert problem["field"] == field
    assert {name: problem.get(name) for name in bounds} == bounds
    assert not place.reservations.requests


async def test_a_contradiction_is_no_preview(place: World) -> None:
    wrong = {**GOOD, "service": "available"}
    answer = await place.client.post(f"{REQUESTS}:preview", json=wrong, headers=place.headers())
    problem = assert_problem(answer, 422)
    assert (problem["field"], problem["ceiling"]) == ("guaranteed_bps", 0)


async def test_missing_field_and_body(place: World) -> None:
    answer = await place.client.post(REQUESTS, json={"source": "alpha"}, headers=place.headers())
    assert assert_problem(answer, 422)["field"] == "destination"
    answer = await place.client.post(REQUESTS, headers=place.headers())
    assert assert_problem(answer, 422)["field"] == "body"
    answer = await place.client.post(REQUESTS, json=[], headers=place.headers())
    assert assert_problem(answer, 422)["field"] == "body"


async def test_not_json(place: World) -> None:
    headers = {**place.headers(), "Content-Type": "application/json"}
    assert assert_problem(await place.client.post(REQUESTS, content="{", headers=headers), 400)["field"] == "body"
    assert assert_problem(await place.client.post(REQUESTS, content=b"\xff\xfe", headers=headers), 400)
    answer = await place.client.post(REQUESTS, content="{}", headers={**headers, "Content-Type": "text/plain"})
    assert assert_problem(answer, 415)["field"] == "Content-Type"


async def test_unknown_paths_and_methods(place: World) -> None:
    for path in ("/v1/nothing", "/v1", "/auth/nothing", "/v1/rate-requests:nothing"):
        assert_problem(await place.client.get(path), 404)
    assert_problem(await place.client.post("/elsewhere"), 404)
    answer = await place.client.patch("/v1/nodes/alpha")
    assert_problem(answer, 405)
    assert answer.headers["allow"] == "DELETE, GET, PUT"
    assert_problem(await place.client.get("/v1/rate-requests/nothing", headers=place.headers()), 404)
    assert_problem(await place.client.delete("/v1/nodes/nothing", headers=place.headers()), 404)


async def test_revisions(place: World) -> None:
    path, headers = "/v1/nodes/alpha", place.headers()
    body = {"addresses": ["10.1.0.1/32"]}
    answer = await place.client.put(path, json=body, headers={**headers, "If-Match": "*"})
    assert assert_problem(answer, 412)["field"] == "If-Match"
    created = await place.client.put(path, json=body, headers=headers)
    assert (created.status_code, created.headers["location"]) == (201, path)
    changed = await place.client.put(path, json=body, headers={**headers, "If-Match": created.headers["etag"]})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    answer = await place.client.put(path, json=body, headers={**headers, "If-Match": created.headers["etag"]})
    assert assert_problem(answer, 412)["field"] == "If-Match"
    answer = await place.client.put(path, json=body, headers={**headers, "If-Match": "W/x"})
    assert_problem(answer, 422)
    assert (await place.client.delete(path, headers=headers)).status_code == 204


async def test_waiting_for_another_revision(place: World) -> None:
    headers = place.headers()
    created = await place.client.post(REQUESTS, json=GOOD, headers=headers)
    assert created.status_code == 201
    path, known = f"{REQUESTS}/{created.json()['id']}", {"If-None-Match": created.headers["etag"]}
    answer = await place.client.get(path, params={"wait_s": 10}, headers={**headers, **known})
    asked = place.reservations.looked
    assert (asked.wait_us, f'"{asked.known_revision}"') == (10_000_000, created.headers["etag"])
    assert answer.status_code in (200, 304)
    # Without a revision that is known, or without a time, there is nothing to wait for.
    for parameters, more in (({"wait_s": 10}, {}), ({}, known), ({"wait_s": 10}, {"If-None-Match": '"x"'})):
        await place.client.get(path, params=parameters, headers={**headers, **more})
        assert place.reservations.looked.wait_us == 0
    refused = await place.client.get(path, params={"wait_s": 11}, headers=headers)
    assert assert_problem(refused, 422)["ceiling"] == 10


async def test_idempotency(place: World) -> None:
    headers = {**place.headers(), "Idempotency-Key": "key-1"}
    body = {**GOOD, "duration_s": 60}
    first = await place.client.post(REQUESTS, json=body, headers=headers)
    again = await place.client.post(REQUESTS, json=body, headers=headers)
    assert first.status_code == again.status_code == 201
    assert first.json() == again.json()
    assert again.headers["idempotency-replayed"] == "true"
    other = await place.client.post(REQUESTS, json=GOOD, headers=headers)
    assert assert_problem(other, 409)["field"] == "Idempotency-Key"
    assert len(place.reservations.requests) == 1


@pytest.mark.parametrize("declared", [True, False])
async def test_big_body_is_refused_before_it_has_come(place: World, declared: bool) -> None:
    async with listening(place) as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = [f"POST {REQUESTS} HTTP/1.1", "Host: gateway", "Content-Type: application/json"]
        head += [f"{name}: {value}" for name, value in place.headers().items()]
        head.append("Content-Length: 10000000" if declared else "Transfer-Encoding: chunked")
        writer.write("\r\n".join([*head, "", ""]).encode())
        if not declared:
            # A little more than the limit, and then nothing: the answer comes all the same.
            writer.write(b"".join(b"186a0\r\n" + b"x" * 100_000 + b"\r\n" for _ in range(11)))
        answer = await asyncio.wait_for(reader.readuntil(b"}"), 10)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"application/problem+json" in answer
        assert b'"ceiling":1000000' in answer
        writer.close()
        await writer.wait_closed()


async def test_clients_that_send_everything_first_see_the_refusal(place: World) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 100_000

    async with listening(place) as url, httpx.AsyncClient(base_url=url) as client:
        headers = {**place.headers(), "Content-Type": "application/json"}
        assert_problem(await client.post(REQUESTS, content=body(), headers=headers), 413)
        assert_problem(await client.post(REQUESTS, content=b"x" * 10_000_000, headers=headers), 413)
        # The gateway goes on.
        assert (await client.get("/healthz")).status_code == 200


async def test_services_away(tmp_path: Path) -> None:
    dead = "127.0.0.1:1"
    targets = {"registry_target": dead, "reservations_target": dead, "archiver_target": dead}
    async with world(tmp_path, **targets, backend_deadline_s=0.3) as place:
        for path in ("/v1/rate-requests", "/v1/sensing-configurations", "/v1/measurements"):
            answer = await place.client.get(path, headers=place.headers())
            problem = assert_problem(answer, 503)
            assert problem["type"] == "urn:chart:problem:backend-unavailable"
            assert int(answer.headers["retry-after"]) > 0
        # What the streams tell is still shown.
        assert (await place.client.get("/v1/nodes", headers=place.headers())).json()["items"] == []
        ready = await place.client.get("/readyz")
        assert ready.status_code == 503
        checks = ready.json()["checks"]
        assert checks["streams"] == "ok"
        assert all(checks[name] != "ok" for name in ("registry", "reservations", "archiver"))


async def test_too_many_requests(tmp_path: Path) -> None:
    async with world(tmp_path, rate_limit_burst=3, rate_limit_per_s=0.001) as place:
        headers = place.headers("viewer")
        answers = await asyncio.gather(*(place.client.get("/v1/nodes", headers=headers) for _ in range(4)))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 429]
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert_problem(refused, 429)
        assert refused.headers["ratelimit-remaining"] == "0"
        assert int(refused.headers["retry-after"]) > 0
        # Another subject has a bucket of its own.
        other = await place.client.get("/v1/nodes", headers=place.headers("viewer", subject="other"))
        assert other.headers["ratelimit-limit"] == "3"


async def test_inner_failure_shows_nothing(place: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr(place.gateway.live, "node", explode)
    await place.client.put("/v1/nodes/alpha", json={}, headers=place.headers())
    answer = await place.client.get("/v1/nodes", headers=place.headers())
    assert "secret" not in answer.text
    assert_problem(answer, 500)
