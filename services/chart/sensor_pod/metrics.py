"""Metrics of a pod (those of publisher, drivers and watchers stand beside what they count)."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

MEASUREMENTS = Counter(
    "chart_sensor_pod_measurements_total", "Results stored, failed runs included", ["sensor", "metric", "outcome"]
)
SKIPS = Counter("chart_sensor_pod_skips_total", "Runs that were not made", ["sensor", "reason"])
PROBE_BYTES = Counter("chart_sensor_pod_probe_bytes_total", "Bytes sent by sensors, IP headers included", ["sensor"])
START_LATENESS = Histogram(
    "chart_sensor_pod_start_lateness_seconds",
    "From a run's due time to its start",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1, 5, 30),
)
PLANNED = Gauge("chart_sensor_pod_planned_timestamp_seconds", "When the pod began to plan its runs, Unix time")
CONFIGURATIONS = Gauge("chart_sensor_pod_configurations_count", "Configurations that are followed")
GROUPS = Gauge("chart_sensor_pod_groups_count", "Groups of configurations that one run serves")
RUNNING = Gauge("chart_sensor_pod_runs_count", "Runs under way")
BUDGET_USED = Gauge("chart_sensor_pod_budget_used_ratio", "Part of a link's probing budget used in a minute", ["link"])
