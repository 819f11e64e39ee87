"""What one run of a sensor sends at most, and what comes back: so that probes can be planned before a sensor is asked.

The figures are those that the programs declare (``--declare``); a test compares them. Bytes include IP headers. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# The metric that each is run for, and its unit.
MAIN_METRIC = {
    "ping": ("rtt_us", "us"),
    "traceroute": ("rtt_us", "us"),
    "tulip": ("loss_ratio", "ratio"),
    "pathchirp": ("available_bandwidth_bps", "bps"),
    "pathrate": ("capacity_bps", "bps"),
    "spruce": ("available_bandwidth_bps", "bps"),
}
# Sensors that send probes from one node to another.
BETWEEN_NODES = tuple(MAIN_METRIC)
# Their trains of packets fill a queue on purpose.
TRAINS = ("pathchirp", "pathrate", "spruce")

# Trains of fewer bytes measure nothing; below the second figure only those of smaller packets do.
_LEAST_TRAIN_BYTES = 30_000
_SHORT_TRAINS_BYTES = 200_000
# Default of `limit_bytes`.
_TRAIN_LIMIT_BYTES = {"pathchirp": 1_000_000, "pathrate": 1_500_000, "spruce": 3_000_000}
# IP and ICMP header around what an answer of a router quotes.
_QUOTING_BYTES = 28
_SMALL_BYTES = 60
# Of tulip, which first finds the hops.
_TRACE_QUERIES = 2
# A responder answers with six bytes for each packet, in reply to requests that are as long as its answers and that are
# counted with the probes: never more than a tenth of what the train took.
_REPORT_SHARE = 0.1


@dataclass(frozen=True)
class ProbeCost:
    """Bytes of one run: sent, and received in answer."""

    probe_bytes: int
    answer_bytes: int


def cost_of(sensor: str, parameters: Mapping[str, str]) -> ProbeCost:
    """The most that one run takes of the path forward and of the path back.

    Raises:
        ValueError: no sensor between two nodes, or a parameter is no number.
    """
    if sensor == "ping":
        size = _number(parameters, "count", 10) * _number(parameters, "packet_bytes", 100)
        # UDP probes ask the responder for a session first.
        size += 448 if parameters.get("protocol") == "udp" else 0
        return ProbeCost(size, size)
    if sensor == "traceroute":
        hops, packet = _number(parameters, "max_hops", 30), _number(parameters, "packet_bytes", _SMALL_BYTES)
        probes = hops * _number(parameters, "queries", 3)
        return ProbeCost(probes * packet, probes * (packet + _QUOTING_BYTES))
    if sensor == "tulip":
        hops, packet = _number(parameters, "max_hops", 30), _number(parameters, "packet_bytes", 500)
        rounds = _number(parameters, "rounds", 20)
        size = hops * (_TRACE_QUERIES * _SMALL_BYTES + rounds * (2 * _SMALL_BYTES + packet))
        return ProbeCost(size, size + hops * (_TRACE_QUERIES + 3 * rounds) * _QUOTING_BYTES)
    if sensor in _TRAIN_LIMIT_BYTES:
        size = _number(parameters, "limit_bytes", _TRAIN_LIMIT_BYTES[sensor])
        return ProbeCost(size, int(size * _REPORT_SHARE))
    msg = f"{sensor!r} is not one of {', '.join(BETWEEN_NODES)}"
    raise ValueError(msg)


def fitted(
    sensor: str, parameters: Mapping[str, str], capacity_bps: int | None, minute_bytes: int | None
) -> dict[str, str]:
    """The parameters with trains that suit a path, of its least capacity (None: unknown) and of the bytes that may be
    sent over it in a minute. What is stated stays.

    On slow paths the default trains are more than a minute's budget: they are cut to half of it, those of pathrate and
    spruce to smaller packets too, and chirps search around the capacity instead of up to 1 Gb/s.
    """
    made = dict(parameters)
    default_bytes = _TRAIN_LIMIT_BYTES.get(sensor)
    if default_bytes is None or minute_bytes is None or "limit_bytes" in made or minute_bytes // 2 >= default_bytes:
        return made
    limit_bytes = max(_LEAST_TRAIN_BYTES, minute_bytes // 2)
    made["limit_bytes"] = str(limit_bytes)
    if sensor == "pathchirp" and capacity_bps:
        made.setdefault("low_bps", str(max(10_000, capacity_bps // 20)))
        made.setdefault("high_bps", str(max(20_000, 2 * capacity_bps)))
    if sensor == "pathrate" and limit_bytes < _SHORT_TRAINS_BYTES:
        for name, value in (("packet_bytes", "600"), ("long_length", "10"), ("long_trains", "1"), ("trains", "10")):
            made.setdefault(name, value)
    if sensor == "spruce" and limit_bytes < _SHORT_TRAINS_BYTES // 2:
        made.setdefault("packet_bytes", "600")
    return made


def _number(parameters: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(float(parameters.get(name, default)))
    except ValueError:
        msg = f"{name} must be a number, not {parameters[name]!r}"
        raise ValueError(msg) from None
