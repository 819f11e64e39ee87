"""Measurements in the text format that Prometheus reads (Prometheus documentation, exposition formats). Pure."""

from __future__ import annotations

from collections.abc import Iterable

from chart.gateway.live import AnyMeasurement

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# Values of one answer.
MOST = 100_000
PREFIX = "chart_measured_"


def text(measurements: Iterable[AnyMeasurement]) -> str:
    """One gauge for each metric, one value for each pair, with the time of the measurement."""
    by_metric: dict[str, list[str]] = {}
    for one in measurements:
        name = PREFIX + one.metric
        labels = ",".join(
            f'{label}="{_escaped(value)}"'
            for label, value in (
                ("source_node", one.source_node),
                ("destination_node", one.destination_node),
                ("sensor", one.sensor),
            )
        )
        by_metric.setdefault(name, []).append(f"{name}{{{labels}}} {one.value!r} {one.measured_at_us // 1000}\n")
    return "".join(
        f"# HELP {name} Latest measurement between two nodes.\n# TYPE {name} gauge\n{''.join(lines)}"
        for name, lines in sorted(by_metric.items())
    )


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
