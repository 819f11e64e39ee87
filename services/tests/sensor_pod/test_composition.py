"""Compositions: fixed functions of stored results, and parameters that make none."""

from __future__ import annotations

import pytest

from chart.sensor_pod.composition import Composition, CompositionError, Input, Value, compose, parse
from chart.sensor_pod.model import InvalidConfigurationError, from_proto
from chart.v1 import sensing_configuration_pb2

NOW = 1_000_000_000


def value(number: float, unit: str, age_us: int = 0, error: str = "") -> Value:
    return Value(number, unit, NOW - age_us, error)


def result(parameters: dict[str, str], *values: Value | None) -> tuple[float, str, str]:
    answer = compose(parse(parameters), values, NOW, 10_000_000)
    assert "error" not in answer, answer
    entry = answer["metrics"][0]
    return entry["value"], entry["unit"], entry["metric"]


@pytest.mark.parametrize(
    ("parameters", "values", "expected"),
    [
        (
            {"function": "min", "inputs": "charlie:capacity_bps, capacity_bps", "metric": "b_bps"},
            (value(7e6, "bps"), value(5e6, "bps")),
            (5e6, "bps", "b_bps"),
        ),
        (
            {"function": "sum", "inputs": "a:rtt_us,b:rtt_us", "metric": "path_us"},
            (value(2, "us"), value(3, "us")),
            (5, "us", "path_us"),
        ),
        (
            {"function": "product", "inputs": "rtt_us,loss_ratio", "metric": "m"},
            (value(8, "us"), value(0.5, "ratio")),
            (4, "us", "m"),
        ),
        (
            {"function": "ratio", "inputs": "rtt_p95_us,rtt_us", "metric": "m_ratio"},
            (value(6, "us"), value(4, "us")),
            (1.5, "ratio", "m_ratio"),
        ),
        (
            {"function": "loss_adjusted_bandwidth", "inputs": "available_bandwidth_bps,loss_ratio"},
            (value(1e7, "bps"), value(0.1, "ratio")),
            (9e6, "bps", "loss_adjusted_bandwidth_bps"),
        ),
        (
            {"function": "bandwidth_delay_product", "inputs": "rtt_us,available_bandwidth_bps"},
            (value(100_000, "us"), value(8e6, "bps")),
            (100_000, "bytes", "bandwidth_delay_product_bytes"),
        ),
        (
            {"function": "health", "inputs": "rtt_us,loss_ratio,available_bandwidth_bps", "good_rtt_us": "50000"},
            (value(100_000, "us"), value(0.1, "ratio"), value(2e7, "bps")),
            (0.45, "ratio", "health_ratio"),
        ),
    ],
)
def test_functions(parameters: dict[str, str], values: tuple[Value, ...], expected: tuple[float, str, str]) -> None:
    number, unit, metric = result(parameters, *values)
    assert number == pytest.approx(expected[0])
    assert (unit, metric) == expected[1:]


def test_it_is_as_old_as_its_oldest_input() -> None:
    wanted = parse({"function": "sum", "inputs": "a:rtt_us,b:rtt_us", "metric": "m"})
    answer = compose(wanted, [value(1, "us", 5_000_000), value(1, "us")], NOW, 10_000_000)
    assert answer["ended_at_us"] == NOW - 5_000_000


@pytest.mark.parametrize(
    ("values", "kind", "words"),
    [
        ((None, value(1, "us")), "no-data", "a:rtt_us was never measured"),
        ((value(1, "us", 11_000_000), value(1, "us")), "stale", "11 s old, more than 10 s"),
        ((value(1, "us", error="timeout: no reply"), value(1, "us")), "input", "timeout: no reply"),
        ((value(1, "us"), value(1, "bps")), "input", "different units: bps, us"),
    ],
)
def test_what_is_missing_or_old_is_an_error_with_the_reason(
    values: tuple[Value | None, ...], kind: str, words: str
) -> None:
    wanted = parse({"function": "min", "inputs": "a:rtt_us,b:rtt_us", "metric": "m"})
    answer = compose(wanted, values, NOW, 10_000_000)
    assert answer["error"]["kind"] == kind
    assert words in answer["error"]["message"]


def test_a_ratio_of_nothing_is_no_number() -> None:
    wanted = parse({"function": "ratio", "inputs": "a:rtt_us,b:rtt_us", "metric": "m"})
    assert "second input is 0" in compose(wanted, [value(1, "us"), value(0, "us")], NOW, 10**7)["error"]["message"]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, "is not one of min, sum"),
        ({"function": "eval", "inputs": "rtt_us", "metric": "m"}, "'eval' is not one of"),
        ({"function": "ratio", "inputs": "rtt_us", "metric": "m"}, "takes 2 inputs"),
        ({"function": "min", "inputs": "Rtt!", "metric": "m"}, "such as rtt_us or charlie:rtt_us"),
        ({"function": "min", "inputs": "rtt_us"}, "no name for the result"),
        ({"function": "health", "inputs": "rtt_us", "good_rtt_us": "0"}, "not a positive number"),
        ({"function": "min", "inputs": "rtt_us", "metric": "m", "count": "3"}, "'count' is not one of"),
        ({"function": "min", "inputs": ",".join(["rtt_us"] * 17), "metric": "m"}, "1 to 16 inputs"),
    ],
)
def test_other_parameters_are_refused(parameters: dict[str, str], words: str) -> None:
    with pytest.raises(CompositionError, match=words):
        parse(parameters)
    message = sensing_configuration_pb2.SensingConfiguration(
        id="c", destination_address="10.0.0.2", sensor="composition", parameters=parameters, period_ms=1000
    )
    with pytest.raises(InvalidConfigurationError):
        from_proto(message)


def test_parameters_are_read() -> None:
    read = parse({"function": "min", "inputs": "a:rtt_us, rtt_us", "metric": "m", "max_age_ms": "500"})
    assert read == Composition("min", (Input("a", "rtt_us"), Input("", "rtt_us")), "m", 500_000)
