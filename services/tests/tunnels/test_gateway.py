"""/v1/tunnels: settings in, figures out, refusals as problem documents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest_asyncio

from chart.v1.tunnel_report_pb2 import TunnelReport
from support.gateway import World, world

MEGA = 1_000_000


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


def report(number: int) -> TunnelReport:
    made = TunnelReport(
        tunnel="gold",
        origin_node="alpha",
        destination_node="delta",
        session=1,
        period_number=number,
        period_us=2 * MEGA,
        period_end_us=1_780_000_000_000_000 + number * 2 * MEGA,
        received_bytes=2_000_000,
        connections_wanted=4,
        connections_established=4,
        backlogged_us=2 * MEGA,
        congestion="reno",
    )
    for _ in range(4):
        made.windows.add(cwnd_segments=10, rtt_us=50_000, mss_bytes=948)
    made.classes.add(name="vip", weight=3, rate_bps=5 * MEGA)
    return made


async def test_state_follow_release(place: World) -> None:
    client, operator = place.client, place.headers("operator")
    body = {"controller": "pi", "target_bps": 10 * MEGA, "capacity_bps": 16 * MEGA, "weights": {"vip": 3}}
    made = await client.put("/v1/tunnels/gold", json=body, headers=operator)
    assert (made.status_code, made.headers["location"]) == (201, "/v1/tunnels/gold")
    assert "has not reported" in made.json()["reason"]
    for number in range(1, 5):
        place.tunnels.report(report(number))
    shown = (await client.get("/v1/tunnels/gold", headers=operator)).json()
    assert (shown["target_bps"], shown["target_source"], shown["reason"]) == (10 * MEGA, "operator", "")
    assert shown["rate_bps"] == round(8 * MEGA * 1000 / 948)
    assert shown["state"]["connections_established"] == 4
    assert shown["state"]["rtt_mean_us"] == 50_000
    assert shown["state"]["customers"][0]["name"] == "vip"
    assert shown["settings"]["kp"] is None
    step = shown["steps"][0]
    assert (step["periods"], step["settling_periods"], step["controller"]) == (4, None, "pi")
    assert step["steady_error"] > 0.1
    assert [one["connections_before"] for one in shown["history"]] == [4, 4, 4, 4]
    assert shown["decision"]["connections"] > 4
    assert 0 < shown["decision"]["spectral_radius"] < 1
    listed = (await client.get("/v1/tunnels", headers=operator)).json()
    assert [one["id"] for one in listed["items"]] == ["gold"]
    assert "history" not in listed["items"][0]
    assert (await client.delete("/v1/tunnels/gold", headers=operator)).status_code == 204
    after = (await client.get("/v1/tunnels/gold", headers=operator)).json()
    assert after["settings"] is None
    assert (await client.delete("/v1/tunnels/gold", headers=operator)).status_code == 404


async def test_a_schedule_and_its_revision(place: World) -> None:
    client, operator = place.client, place.headers("operator")
    entry = {"start": "2026-03-01T09:00:00+01:00", "end": "2026-03-01T10:00:00Z", "target_bps": MEGA}
    made = await client.put("/v1/tunnels/silver", json={"schedule": [entry]}, headers=operator)
    assert made.json()["settings"]["schedule"] == [
        {"start": "2026-03-01T08:00:00.000000Z", "end": "2026-03-01T10:00:00.000000Z", "target_bps": MEGA}
    ]
    stale = {**operator, "If-Match": '"99"'}
    refused = await client.put("/v1/tunnels/silver", json={"target_bps": MEGA}, headers=stale)
    assert (refused.status_code, refused.json()["field"]) == (412, "If-Match")
    current = {**operator, "If-Match": made.headers["etag"]}
    assert (await client.put("/v1/tunnels/silver", json={"target_bps": MEGA}, headers=current)).status_code == 200
    anything = {**operator, "If-Match": "*"}
    assert (await client.put("/v1/tunnels/silver", json={}, headers=anything)).status_code == 200
    assert (await client.put("/v1/tunnels/other", json={}, headers=anything)).status_code == 412


async def test_refusals_name_field_and_bounds(place: World) -> None:
    client, operator = place.client, place.headers("operator")
    cases = [
        ({"target_bps": 20 * MEGA, "capacity_bps": 16 * MEGA}, "target_bps"),
        ({"controller": "fuzzy"}, "controller"),
        ({"controller": "p"}, "kp"),
        ({"target_bps": -1}, "target_bps"),
        ({"weights": {"vip": 0}}, "weights.vip"),
        ({"targets": 1}, "targets"),
        ({"schedule": [{"start": "2026-03-01T09:00:00Z", "end": "2026-03-01T08:00:00Z", "target_bps": 1}]}, "schedule"),
    ]
    for body, field in cases:
        answer = await client.put("/v1/tunnels/gold", json=body, headers=operator)
        assert answer.status_code == 422, answer.text
        assert answer.json()["field"].startswith(field), answer.text
        assert answer.json()["detail"]
    above = await client.put("/v1/tunnels/gold", json=cases[0][0], headers=operator)
    assert above.json()["ceiling"] == 16 * MEGA - 1
    missing = await client.get("/v1/tunnels/nobody", headers=operator)
    assert (missing.status_code, missing.json()["field"]) == (404, "id")
    assert (await client.put("/v1/tunnels/gold", json={}, headers=place.headers("viewer"))).status_code == 403
    assert (await client.get("/v1/tunnels", headers=place.headers("viewer"))).status_code == 200
    assert (await client.get("/v1/tunnels")).status_code == 401
