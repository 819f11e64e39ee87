"""Settling, overshoot, steady error and changes on responses that were computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.tunnels import metrics

TARGET = 1000.0


def test_settling_counts_to_the_first_mean_of_three_that_stays_within() -> None:
    #         means:      ..600, 800, 960, 1000, 1000
    rates = [400, 600, 800, 1000, 1080, 920, 1000]
    assert metrics.running_means(rates) == pytest.approx([600, 800, 960, 1000, 1000])
    assert metrics.settling_periods(rates, TARGET) == 5
    assert metrics.settling_periods(rates[:6], TARGET) is None
    assert metrics.settling_periods([1000.0] * 5, TARGET) == 3


def test_a_mean_that_leaves_again_has_not_settled() -> None:
    assert metrics.settling_periods([1000, 1000, 1000, 1000, 2000, 1000, 1000, 1000], TARGET) is None


def test_overshoot_is_on_the_far_side_of_the_step() -> None:
    up = [500, 900, 1200, 1200, 1200, 1000]
    assert metrics.overshoot(up, TARGET) == pytest.approx(0.2)
    assert metrics.overshoot([1500, 900, 900, 800], TARGET) == pytest.approx((1000 - 2600 / 3) / 1000)
    assert metrics.overshoot([900.0], TARGET) == 0


def test_steady_error_looks_at_the_last_thirty() -> None:
    rates = [0.0] * 50 + [990.0] * 15 + [1030.0] * 15
    assert metrics.steady_error(rates, TARGET, None) == pytest.approx(0.01)
    assert metrics.steady_error([500, 1000, 1000, 1000, 1000, 1000], TARGET, 4) == 0


def test_step_response_joins_them() -> None:
    rates, connections = [500, 1000, 1000, 1000, 1000, 1000], [5, 12, 9, 10, 10, 10]
    response = metrics.step_response(rates, connections, TARGET)
    assert response == metrics.StepResponse(4, 0.0, 0.0, 12, 10.0, 11)
    with pytest.raises(ValueError, match="as many rates"):
        metrics.step_response(rates, connections[:-1], TARGET)


@given(st.lists(st.floats(960, 1040), min_size=5, max_size=40))
def test_what_never_leaves_the_band_settles_at_once(rates: list[float]) -> None:
    assert metrics.settling_periods(rates, TARGET) == metrics.MEAN_PERIODS
    assert metrics.overshoot(rates, TARGET) <= 0.05


@given(st.lists(st.tuples(st.floats(0, 3000), st.integers(1, 40)), min_size=1, max_size=120))
def test_period_by_period_the_figures_are_the_same(periods: list[tuple[float, int]]) -> None:
    meter = metrics.StepMeter(TARGET)
    for rate, connections in periods:
        meter.add(rate, connections)
    rates, connections_open = [rate for rate, _ in periods], [number for _, number in periods]
    expected = metrics.step_response(rates, connections_open, TARGET)
    found = meter.response()
    assert found.settling_periods == expected.settling_periods
    assert (found.connections_peak, found.changes) == (expected.connections_peak, expected.changes)
    assert found.overshoot == pytest.approx(expected.overshoot)
    assert found.steady_error == pytest.approx(expected.steady_error)
    assert found.connections_final == pytest.approx(expected.connections_final)


def test_a_step_without_periods_has_no_figures() -> None:
    with pytest.raises(ValueError, match="first period"):
        metrics.StepMeter(TARGET).response()
