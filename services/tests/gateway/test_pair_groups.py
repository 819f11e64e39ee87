"""Groups of pairs over REST: whose they are, their series, history as a file, and a subscription."""

from __future__ import annotations

from typing import Any

import pytest

from chart.common.problems import ProblemError
from chart.gateway.routes import pair_groups
from support.gateway import World

PATH = "/v1/pair-groups/branches"
BODY: dict[str, Any] = {"destination_nodes": ["delta"], "pairs": [{"source_node": "a", "destination_node": "b"}]}


async def test_a_group_belongs_to_whoever_set_it(place: World) -> None:
    owner = place.headers("application")
    made = await place.client.put(PATH, json=BODY, headers=owner)
    assert (made.status_code, made.headers["Location"]) == (201, PATH)
    assert made.json()["destination_nodes"] == ["delta"]
    operator, viewer = place.headers("operator"), place.headers("viewer")
    changed = await place.client.put(PATH, json={"description": "changed"}, headers=operator)
    assert (changed.status_code, changed.json()["owner"]) == (200, made.json()["owner"])
    stale = await place.client.put(PATH, json=BODY, headers={**owner, "If-Match": made.headers["ETag"]})
    assert stale.status_code == 412
    other = place.headers("application", subject="somebody-else")
    assert (await place.client.put(PATH, json=BODY, headers=other)).status_code == 403
    assert (await place.client.delete(PATH, headers=other)).status_code == 403
    assert (await place.client.put(PATH, json=BODY, headers=viewer)).status_code == 403
    assert [one["id"] for one in (await place.client.get("/v1/pair-groups", headers=viewer)).json()["items"]] == [
        "branches"
    ]
    assert (await place.client.delete(PATH, headers=owner)).status_code == 204
    for path in (PATH, f"{PATH}/series?metric=rtt_us", f"{PATH}/history?metric=rtt_us", f"{PATH}/events?metric=rtt_us"):
        assert (await place.client.get(path, headers=viewer)).status_code == 404


async def test_nothing_is_written_while_the_owner_cannot_be_asked_for(
    place: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, other = place.headers("application"), place.headers("application", subject="somebody-else")
    await place.client.put(PATH, json=BODY, headers=owner)

    async def away(_gateway: object, _identity: str) -> None:
        raise ProblemError(503, "Service unavailable", "The archiver is away.")

    with monkeypatch.context() as patch:
        patch.setattr(pair_groups, "_found", away)
        refused = await place.client.put(PATH, json={"description": "taken"}, headers=other)
    assert refused.status_code == 503
    assert (await place.client.get(PATH, headers=owner)).json()["description"] == ""


async def test_series_and_history_of_a_group(place: World) -> None:
    headers = place.headers("operator")
    await place.client.put(PATH, json=BODY, headers=headers)
    (together,) = (await place.client.get(f"{PATH}/series?metric=rtt_us", headers=headers)).json()["items"]
    assert (together["source_node"], together["mean"], together["pairs"]) == (None, [2.0], [1])
    answer = await place.client.get(f"{PATH}/series?metric=rtt_us&by_pair=true&step_ms=3600000", headers=headers)
    assert answer.json()["items"][0]["source_node"] == "alpha"
    file = await place.client.get(f"{PATH}/history?metric=rtt_us&format=csv&resolution=hour", headers=headers)
    assert file.headers["content-type"].startswith("text/csv")
    assert file.text.splitlines() == ["source,destination", "alpha,delta"]
    wrong = await place.client.get(f"{PATH}/history?metric=rtt_us&resolution=week", headers=headers)
    assert (wrong.status_code, wrong.json()["field"]) == (422, "resolution")


async def test_a_subscription_sends_minutes_and_ends_with_the_group(
    place: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = place.headers("operator")
    await place.client.put(PATH, json=BODY, headers=headers)
    monkeypatch.setattr(pair_groups, "LOOK_EVERY_S", 0.01)
    minutes = iter(range(0, 600_000_000, 60_000_000))
    monkeypatch.setattr(pair_groups, "_settled_us", lambda _gateway: 60_000_000 + next(minutes))
    token = headers["Authorization"].removeprefix("Bearer ")
    seen: list[str] = []
    async for text in pair_groups._minutes(place.gateway, "branches", "rtt_us", token):
        seen.append(text)
        if text.startswith("event: minute"):
            assert place.gateway.group_watchers == 1
            await place.client.delete(PATH, headers=headers)
    assert seen[0] == ": subscribed\n\n"
    assert '"mean":[2.0]' in seen[1]
    assert seen[2:] == ['event: closed\ndata: {"reason": "the group was removed"}\n\n']
    assert place.gateway.group_watchers == 0
