"""A POST that is repeated with its Idempotency-Key gets the first answer again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from chart.gateway import once, openapi
from chart.v1 import reservations_pb2
from support.gateway import World

ASK = {"source": "alpha", "destination": "delta", "guaranteed_bps": 1_000_000}
# They change nothing: a repetition is told what holds then.
PREVIEWS = {"/v1/rate-requests:preview", "/v1/rate-requests/{id}/preview"}


def test_every_post_that_changes_something_takes_a_key() -> None:
    document = json.loads(openapi.text())
    without = {
        path
        for path, methods in document["paths"].items()
        if path.startswith("/v1") and "post" in methods
        if "Idempotency-Key" not in {one["name"] for one in methods["post"].get("parameters", ())}
    }
    assert without == PREVIEWS


async def made(place: World, headers: dict[str, str]) -> str:
    answer = await place.client.post("/v1/rate-requests", json=ASK, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_the_first_answer_comes_again(place: World) -> None:
    headers = place.headers("application")
    path = f"/v1/rate-requests/{await made(place, headers)}/release"
    first = await place.client.post(path, headers={**headers, "Idempotency-Key": "k"})
    again = await place.client.post(path, headers={**headers, "Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (200, 200)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert (again.content, again.headers["etag"]) == (first.content, first.headers["etag"])
    # Without it, or with another one, it is a call of its own: the revision grows.
    other = await place.client.post(path, headers={**headers, "Idempotency-Key": "l"})
    assert other.json()["revision"] == first.json()["revision"] + 1
    assert place.reservations.kept.keys() == {("tester", f"POST {path}", "k"), ("tester", f"POST {path}", "l")}


async def test_keys_are_of_one_caller(place: World) -> None:
    path = f"/v1/rate-requests/{await made(place, place.headers())}/release"
    keyed = [{**place.headers(subject=name), "Idempotency-Key": "k"} for name in ("one", "two")]
    answers = [await place.client.post(path, headers=headers) for headers in keyed]
    assert not any("idempotency-replayed" in one.headers for one in answers)


async def test_another_body_is_refused(place: World) -> None:
    headers = {**place.headers(), "Idempotency-Key": "k"}
    bodies = [{"client_address": f"10.0.0.{number}", "service": "guaranteed"} for number in (1, 2)]
    answers = [await place.client.post("/v1/authorisations", json=body, headers=headers) for body in bodies]
    assert [one.status_code for one in answers] == [201, 409], [one.text for one in answers]
    problem = answers[1].json()
    assert (problem["type"], problem["field"]) == ("urn:chart:problem:idempotency-key-reused", "Idempotency-Key")


async def test_a_refusal_is_not_kept(place: World) -> None:
    headers = {**place.headers(), "Idempotency-Key": "k"}
    answers = [await place.client.post("/v1/callbacks/nowhere/retry", headers=headers) for _ in range(2)]
    assert [one.status_code for one in answers] == [404, 404]
    wrong = await place.client.post("/v1/authorisations", json={"service": "fast"}, headers=headers)
    assert wrong.status_code == 422
    assert place.reservations.kept == {}


async def test_a_key_that_is_not_one_is_refused(place: World) -> None:
    answer = await place.client.post("/v1/snapshots", headers={**place.headers(), "Idempotency-Key": "x" * 200})
    assert (answer.status_code, answer.json()["field"]) == (422, "Idempotency-Key")


async def test_a_repetition_waits_for_the_first_call(place: World, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = {**place.headers(), "Idempotency-Key": "k"}
    path = f"/v1/rate-requests/{await made(place, place.headers())}/release"
    kept = reservations_pb2.KeptAnswer(status=200, headers={"content-type": "application/json"}, body=b'{"first": 1}')
    answers = [reservations_pb2.ClaimAnswerResponse(), reservations_pb2.ClaimAnswerResponse(answer=kept)]

    async def claim(*_: Any) -> Any:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    monkeypatch.setattr(place.reservations, "ClaimAnswer", claim)
    monkeypatch.setattr(place.gateway.backends.reservations, "ClaimAnswer", claim)
    assert (await place.client.post(path, headers=headers)).json() == {"first": 1}
    answers[:] = [reservations_pb2.ClaimAnswerResponse()]
    monkeypatch.setattr(once, "WAIT_S", 0.2)
    began = asyncio.get_running_loop().time()
    late = await place.client.post(path, headers=headers)
    assert asyncio.get_running_loop().time() - began < 2
    assert (late.status_code, late.headers["retry-after"]) == (409, "1")
    assert late.json()["type"] == "urn:chart:problem:idempotency-key-in-use"
