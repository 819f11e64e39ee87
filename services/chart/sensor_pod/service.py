"""What the pod makes of a sensor's answer. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from chart.common import probe_costs
from chart.sensor_pod.group import Cost
from chart.sensor_pod.model import GroupKey
from chart.v1 import measurement_pb2

# The metric that a failed run did not give.
_MAIN_METRIC = {
    **probe_costs.MAIN_METRIC,
    "tcp-rtt": ("rtt_us", "us"),
    "snmp": ("in_rate_bps", "bps"),
    "host": ("cpu_busy_ratio", "ratio"),
    "pathchirp-original": ("reverse_available_bandwidth_bps", "bps"),
    "pathrate-original": ("reverse_capacity_bps", "bps"),
    "spruce-original": ("available_bandwidth_bps", "bps"),
}

# More routers than a time-to-live can reach are none.
HOPS_MAX = 255


class SensorAnswerError(ValueError):
    """A sensor answered something that is not its protocol."""


def cost_of(answer: Mapping[str, Any], key: GroupKey) -> Cost:
    """Read the answer to ``declare``, and add what comes back in answer to the probes.

    Raises:
        SensorAnswerError: it is not one.
    """
    try:
        probe_bytes, duration_us = int(answer["probe_bytes"]), int(answer["duration_ms"]) * 1000
    except (KeyError, TypeError, ValueError) as error:
        msg = f"declared neither bytes nor time: {answer!r:.200}"
        raise SensorAnswerError(msg) from error
    if key.sensor not in probe_costs.BETWEEN_NODES:
        return Cost(probe_bytes, duration_us)
    planned = probe_costs.cost_of(key.sensor, dict(key.parameters))
    return Cost(probe_bytes, duration_us, -(-planned.answer_bytes * probe_bytes // max(1, planned.probe_bytes)))


def failure_of(answer: Mapping[str, Any]) -> str:
    """ "kind: message" of an error record; empty when it is none."""
    error = answer.get("error")
    if not error:
        return ""
    if isinstance(error, Mapping):
        return f"{error.get('kind', 'other')}: {error.get('message', 'no reason given')}"
    return f"other: {error}"


def spoilt(answer: Mapping[str, Any]) -> str:
    """Why a sensor does not believe what it measured (failure kind "spoilt"); empty for any other answer."""
    error = answer.get("error")
    if not isinstance(error, Mapping) or error.get("kind") != "spoilt":
        return ""
    return str(error.get("message") or "no reason given")


def measurements_of(
    node: str,
    key: GroupKey,
    answer: Mapping[str, Any],
    configuration_ids: Sequence[str],
    now_us: int,
    new_id: Callable[[], str],
) -> tuple[measurement_pb2.Measurement, ...]:
    """The results of one run, one per metric; an error record becomes one measurement with the error.

    A run whose every probe was lost has an error and yet one true result: a loss ratio of 1.
    """
    try:
        sent, lost = int(answer.get("probes_sent", 0)), int(answer.get("probes_lost", 0))
        size_bytes, ended_us = int(answer.get("probe_bytes", 0)), int(answer.get("ended_at_us", 0)) or now_us
        failure = failure_of(answer)
        results = [
            (str(entry["metric"]), float(entry["value"]), str(entry["unit"]), "")
            for entry in (answer.get("metrics") or () if not failure else ())
        ]
        hops = _hops(answer) if not failure else []
    except (KeyError, TypeError, ValueError, AttributeError):
        failure, results = f"other: the sensor's answer cannot be read: {answer!r:.200}", []
        sent, lost, size_bytes, ended_us, hops = 0, 0, 0, now_us, []
    if not results:
        metric, unit = _MAIN_METRIC.get(key.sensor, (key.sensor, ""))
        results.append((metric, 0.0, unit, failure or "other: the sensor gave no result"))
        if sent > 0 and lost >= sent:
            results.append(("loss_ratio", 1.0, "ratio", ""))
    return tuple(
        measurement_pb2.Measurement(
            id=new_id(),
            source_node=node,
            destination_node=key.destination_node or key.destination_address,
            sensor=key.sensor,
            metric=metric,
            value=value,
            unit=unit,
            measured_at_us=ended_us,
            probes_sent=max(0, sent),
            probes_lost=max(0, lost),
            probe_bytes=max(0, size_bytes),
            configuration_ids=configuration_ids,
            error=error,
            hops=hops,
        )
        for metric, value, unit, error in results
    )


def _hops(answer: Mapping[str, Any]) -> list[measurement_pb2.Hop]:
    """Routers that answered, of a sensor that finds them (traceroute)."""
    return [
        measurement_pb2.Hop(distance=int(hop["distance"]), address=str(hop["address"]), rtt_us=float(hop["rtt_us"]))
        for hop in (answer.get("hops") or ())[:HOPS_MAX]
        if hop.get("address") and hop.get("rtt_us") is not None
    ]
