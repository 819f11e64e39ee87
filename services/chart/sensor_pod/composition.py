"""Sensors made of others' results by fixed functions (The CHART System, section 6: services over sensing).

A composition is a configuration of the sensor ``composition``: its parameters name a function and the results that go
into it, as ``metric`` (towards the configuration's destination) or ``node:metric``. It sends nothing. Pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chart.common import names

SENSOR = "composition"
MOST_INPUTS = 16
_METRIC = re.compile(r"^[a-z][a-z0-9_]{0,63}$")
_KNOWN = frozenset({"function", "inputs", "metric", "max_age_ms", "good_rtt_us", "good_bandwidth_bps"})
# What is good enough for health 1 when a configuration does not say it.
GOOD_RTT_US = 100_000.0
GOOD_BANDWIDTH_BPS = 10_000_000.0


class CompositionError(ValueError):
    """Parameters that make no composition; the words say which would."""


@dataclass(frozen=True)
class Input:
    """A result that goes in; an empty node is the configuration's destination."""

    node: str
    metric: str

    def text(self) -> str:
        """As a configuration writes it."""
        return f"{self.node}:{self.metric}" if self.node else self.metric


@dataclass(frozen=True)
class Value:
    """The newest result of an input."""

    value: float
    unit: str
    at_us: int
    error: str = ""


@dataclass(frozen=True)
class Composition:
    """What a configuration asks for. ``max_age_us`` 0: three periods."""

    function: str
    inputs: tuple[Input, ...]
    metric: str
    max_age_us: int
    good_rtt_us: float = GOOD_RTT_US
    good_bandwidth_bps: float = GOOD_BANDWIDTH_BPS


def parse(parameters: Mapping[str, str]) -> Composition:
    """Read the parameters.

    Raises:
        CompositionError: saying what would be accepted.
    """
    unknown = sorted(set(parameters) - _KNOWN)
    if unknown:
        raise CompositionError(f"{unknown[0]!r} is not one of {', '.join(sorted(_KNOWN))}")
    function = parameters.get("function", "")
    if function not in _FUNCTIONS:
        raise CompositionError(f"function {function!r} is not one of {', '.join(_FUNCTIONS)}")
    inputs = tuple(_input(text.strip()) for text in parameters.get("inputs", "").split(",") if text.strip())
    least, most, metric = _FUNCTIONS[function].least, _FUNCTIONS[function].most, _FUNCTIONS[function].metric
    if not least <= len(inputs) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise CompositionError(f"{function} takes {wanted} inputs such as rtt_us or charlie:rtt_us, not {len(inputs)}")
    metric = parameters.get("metric", metric)
    if not _METRIC.match(metric):
        raise CompositionError(f"metric {metric!r} is no name for the result, such as path_rtt_us")
    return Composition(
        function,
        inputs,
        metric,
        round(_number(parameters, "max_age_ms", 0.0) * 1000),
        _number(parameters, "good_rtt_us", GOOD_RTT_US),
        _number(parameters, "good_bandwidth_bps", GOOD_BANDWIDTH_BPS),
    )


def _input(text: str) -> Input:
    node, colon, metric = text.rpartition(":")
    if not _METRIC.match(metric) or (colon and not names.is_node(node)):
        raise CompositionError(f"input {text!r} is not metric or node:metric, such as rtt_us or charlie:rtt_us")
    return Input(node, metric)


def _number(parameters: Mapping[str, str], name: str, default: float) -> float:
    try:
        value = float(parameters.get(name, default))
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and default > 0):
        raise CompositionError(f"{name} {parameters.get(name)!r} is not a positive number")
    return value


def compose(composition: Composition, values: Sequence[Value | None], now_us: int, max_age_us: int) -> dict[str, Any]:
    """The result as a sensor would answer it; an error record when an input is missing, failed or too old."""
    known: list[Value] = []
    for wanted, value in zip(composition.inputs, values, strict=True):
        name = wanted.text()
        if value is None:
            return _failure("no-data", f"{name} was never measured here")
        if value.error:
            return _failure("input", f"{name} failed: {value.error}")
        if now_us - value.at_us > max_age_us:
            age_s, most_s = (now_us - value.at_us) / 1e6, max_age_us / 1e6
            return _failure("stale", f"{name} is {age_s:.0f} s old, more than {most_s:.0f} s")
        known.append(value)
    try:
        result, unit = _FUNCTIONS[composition.function].compute(composition, known)
    except (ValueError, ZeroDivisionError) as error:
        return _failure("input", str(error))
    if not math.isfinite(result):
        return _failure("input", f"{composition.function} of these values is not a number")
    return {
        "metrics": [{"metric": composition.metric, "value": result, "unit": unit}],
        "probe_bytes": 0,
        # As old as the oldest input: it knows nothing newer.
        "ended_at_us": min(one.at_us for one in known),
    }


def _failure(kind: str, message: str) -> dict[str, Any]:
    return {"error": {"kind": kind, "message": message}, "probe_bytes": 0}


def _same_unit(values: Sequence[Value]) -> str:
    units = sorted({one.unit for one in values})
    if len(units) > 1:
        msg = f"the inputs have different units: {', '.join(units)}"
        raise ValueError(msg)
    return units[0]


def _least(_: Composition, values: Sequence[Value]) -> tuple[float, str]:
    return min(one.value for one in values), _same_unit(values)


def _sum(_: Composition, values: Sequence[Value]) -> tuple[float, str]:
    return math.fsum(one.value for one in values), _same_unit(values)


def _product(_: Composition, values: Sequence[Value]) -> tuple[float, str]:
    units = [one.unit for one in values if one.unit not in ("", "ratio")]
    return math.prod(one.value for one in values), "*".join(units) or "ratio"


def _ratio(_: Composition, values: Sequence[Value]) -> tuple[float, str]:
    above, below = values
    if below.value == 0:
        raise ZeroDivisionError("the second input is 0")
    return above.value / below.value, "ratio" if above.unit == below.unit else f"{above.unit}/{below.unit}"


def _pick(values: Sequence[Value], unit: str) -> Value:
    found = [one for one in values if one.unit == unit]
    if len(found) != 1:
        msg = f"needs one input in {unit}, has {len(found)}"
        raise ValueError(msg)
    return found[0]


def _loss_adjusted_bandwidth(_: Composition, values: Sequence[Value]) -> tuple[float, str]:
    loss = _pick(values, "ratio").value
    return _pick(values, "bps").value * (1 - min(max(loss, 0.0), 1.0)), "bps"


def _bandwidth_delay_product(_: Composition, values: Sequence[Value]) -> tuple[float, str]:
    return _pick(values, "bps").value * _pick(values, "us").value / 8e6, "bytes"


def _health(composition: Composition, values: Sequence[Value]) -> tuple[float, str]:
    """1: as good as asked for in everything that goes in; each input multiplies by how far it misses its target."""
    health = 1.0
    for one in values:
        if one.unit == "ratio":
            health *= 1 - min(max(one.value, 0.0), 1.0)
        elif one.unit == "us":
            health *= min(1.0, composition.good_rtt_us / max(one.value, 1e-9))
        elif one.unit == "bps":
            health *= min(1.0, max(one.value, 0.0) / composition.good_bandwidth_bps)
        else:
            msg = f"health knows no good value of {one.unit or 'a result without unit'}; it takes us, bps and ratio"
            raise ValueError(msg)
    return health, "ratio"


@dataclass(frozen=True)
class _Function:
    least: int
    most: int
    # Name of the result; empty: the configuration must give one.
    metric: str
    compute: Callable[[Composition, Sequence[Value]], tuple[float, str]]


_FUNCTIONS: dict[str, _Function] = {
    "min": _Function(1, MOST_INPUTS, "", _least),
    "sum": _Function(1, MOST_INPUTS, "", _sum),
    "product": _Function(1, MOST_INPUTS, "", _product),
    "ratio": _Function(2, 2, "", _ratio),
    "loss_adjusted_bandwidth": _Function(2, 2, "loss_adjusted_bandwidth_bps", _loss_adjusted_bandwidth),
    "bandwidth_delay_product": _Function(2, 2, "bandwidth_delay_product_bytes", _bandwidth_delay_product),
    "health": _Function(1, MOST_INPUTS, "health_ratio", _health),
}
