"""Sensing meshes over REST: what operators set, what they come to, and which pairs are fresh."""

from __future__ import annotations

from typing import Any

from chart.gateway import mesh_mapping
from chart.v1.measurement_pb2 import Measurement
from chart.v1.sensing_configuration_pb2 import SensingConfiguration
from support.gateway import NOW_US, World

BODY: dict[str, Any] = {
    "description": "Sites",
    "node_tags": {"role": "site"},
    "sensors": [{"sensor": "ping", "period_ms": 10_000, "parameters": {"count": "5"}}],
}


async def put(place: World, body: dict[str, Any], **headers: str) -> Any:
    return await place.client.put(
        "/v1/sensing-meshes/sites", json=body, headers={**place.headers("operator"), **headers}
    )


async def test_a_mesh_is_set_changed_listed_and_removed(place: World) -> None:
    made = await put(place, BODY)
    assert made.status_code == 201
    assert made.headers["Location"] == "/v1/sensing-meshes/sites"
    stored = made.json()
    assert (stored["budget_share"], stored["enabled"], stored["priority"]) == (0.005, True, 0)
    assert stored["sensors"] == [{"sensor": "ping", "period_ms": 10_000, "parameters": {"count": "5"}}]
    changed = await put(place, {**BODY, "enabled": False}, **{"If-Match": made.headers["ETag"]})
    assert (changed.status_code, changed.json()["enabled"]) == (200, False)
    assert (await put(place, BODY, **{"If-Match": made.headers["ETag"]})).status_code == 412
    headers = place.headers("viewer")
    listed = (await place.client.get("/v1/sensing-meshes", headers=headers)).json()["items"]
    assert [one["id"] for one in listed] == ["sites"]
    assert (await place.client.delete("/v1/sensing-meshes/sites", headers=headers)).status_code == 403
    assert (await place.client.delete("/v1/sensing-meshes/sites", headers=place.headers("operator"))).status_code == 204
    for path in ("/v1/sensing-meshes/sites", "/v1/sensing-meshes/sites/coverage"):
        assert (await place.client.get(path, headers=headers)).status_code == 404


async def test_a_sensor_that_measures_no_pair_is_refused(place: World) -> None:
    refused = await put(place, {**BODY, "sensors": [{"sensor": "host", "period_ms": 10_000}]})
    assert refused.status_code == 422
    assert refused.json()["field"] == "sensors.0.sensor"


def configuration(source: str, destination: str, sensor: str = "ping") -> SensingConfiguration:
    return SensingConfiguration(
        id=f"mesh:sites:{sensor}:{source}:{destination}",
        source_node=source,
        destination_node=destination,
        sensor=sensor,
        period_ms=10_000,
        mesh="sites",
    )


def test_a_pair_is_fresh_when_every_sensor_measured_it_less_than_two_periods_ago() -> None:
    def result(age_s: float, error: str = "") -> Measurement:
        return Measurement(value=7.0, measured_at_us=NOW_US - round(age_s * 1e6), error=error)

    results = {
        ("a", "b", "rtt_us"): result(19),
        ("b", "a", "rtt_us"): result(21),
        ("a", "c", "rtt_us"): result(1, "unreachable: no answer"),
        ("c", "a", "rtt_us"): result(1),
    }
    pairs = [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"), ("b", "c")]
    configurations = [*(configuration(*pair) for pair in pairs), configuration("c", "a", "pathchirp")]
    found = mesh_mapping.coverage("sites", configurations, lambda *identity: results.get(identity), NOW_US)
    assert (found.pairs, found.fresh) == (5, 1)
    shown = {(one.source_node, one.destination_node, one.sensor): one for one in found.items}
    assert [key for key, one in shown.items() if one.fresh] == [("a", "b", "ping"), ("c", "a", "ping")]
    failed = shown["a", "c", "ping"]
    assert (failed.value, failed.error) == (None, "unreachable: no answer")
    assert shown["b", "c", "ping"].measured_at is None
