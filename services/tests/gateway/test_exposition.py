"""Measurements as Prometheus reads them."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from chart.gateway import exposition
from chart.v1.measurement_pb2 import Measurement
from support.gateway import NOW_US, World


def measurement(source: str, metric: str, value: float, sensor: str = "ping") -> Measurement:
    return Measurement(
        source_node=source,
        destination_node="charlie",
        metric=metric,
        sensor=sensor,
        value=value,
        unit="us",
        measured_at_us=NOW_US - 1_000_000,
    )


def test_each_metric_is_a_gauge_with_its_pairs() -> None:
    odd = 'a "tool\\"'
    shown = exposition.text(
        [
            measurement("alpha", "rtt_us", 1234.5),
            measurement("alpha", "loss_ratio", 0.0),
            measurement("bravo", "rtt_us", 7, odd),
        ]
    )
    families = {family.name: family for family in text_string_to_metric_families(shown)}
    assert set(families) == {"chart_measured_rtt_us", "chart_measured_loss_ratio"}
    samples = families["chart_measured_rtt_us"].samples
    assert families["chart_measured_rtt_us"].type == "gauge"
    assert [(one.labels["source_node"], one.labels["sensor"], one.value) for one in samples] == [
        ("alpha", "ping", 1234.5),
        ("bravo", odd, 7.0),
    ]
    assert str(samples[0].timestamp) == str((NOW_US - 1_000_000) // 1000 / 1000)


async def test_the_gateway_answers_scrapes_without_failed_and_stale_results(place: World) -> None:
    live, now_us = place.gateway.live, place.gateway.clock.now_us()
    for source, error, age_us in (("good", "", 0), ("failed", "lost", 0), ("old", "", 10**13)):
        one = measurement(source, "odd_metric", 5.0)
        one.error, one.measured_at_us = error, now_us - age_us
        live.note_measurement(one)
    answer = await place.client.get("/v1/measurements/prometheus?metric=odd_metric", headers=place.headers("viewer"))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    (family,) = text_string_to_metric_families(answer.text)
    assert [one.labels["source_node"] for one in family.samples] == ["good"]
    assert (await place.client.get("/v1/measurements/prometheus")).status_code == 401
