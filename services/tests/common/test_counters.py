"""Counters whose first event an alert has to see."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter

from chart.common.counters import from_zero


def test_every_series_is_there_before_its_first_event() -> None:
    registry = CollectorRegistry()
    counter = Counter("refused_total", "Refused", ["topic", "reason"], registry=registry)
    from_zero(counter, ("loads", "grants"), ("unsigned", "unknown-key"))
    counter.labels("loads", "unsigned").inc()
    values = [
        registry.get_sample_value("refused_total", {"topic": topic, "reason": reason})
        for topic in ("loads", "grants")
        for reason in ("unsigned", "unknown-key")
    ]
    assert values == [1.0, 0.0, 0.0, 0.0]
