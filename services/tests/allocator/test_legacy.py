"""Legacy traffic beside explicit-rate flows: it grows to its fair fraction, and what it does not use is given back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.allocator import legacy
from chart_lab.models.link import ControlledLink, FlowGroup, LinkSimulator

MEGA = 1e6


def simulator() -> LinkSimulator:
    return LinkSimulator(ControlledLink(), 100 * MEGA, delay_periods=1)


@pytest.mark.parametrize("explicit", [1, 2, 4])
@pytest.mark.parametrize("others", [1, 3])
def test_greedy_legacy_flows_grow_to_their_fair_fraction(explicit: int, others: int) -> None:
    link = simulator()
    link.groups = [FlowGroup(explicit)]
    link.run(30)
    link.legacy_flows, link.legacy_demand_bps = others, 1e12
    link.run(30)
    tail = link.run(30)
    fair = 97 * MEGA * others / (others + explicit)
    assert min(step.legacy_bps for step in tail) >= 0.97 * fair
    assert min(step.utilisation for step in tail) >= 0.95
    assert tail[-1].rates_bps[0] == pytest.approx(97 * MEGA / (others + explicit), rel=0.1)


def test_legacy_share_that_is_not_used_is_given_back() -> None:
    link = simulator()
    link.groups = [FlowGroup(1)]
    link.legacy_flows, link.legacy_demand_bps = 1, 1e12
    link.run(40)
    link.legacy_demand_bps = 5 * MEGA
    link.run(40)
    assert link.step().rates_bps[0] >= 85 * MEGA
    link.legacy_demand_bps = 0.0
    link.run(10)
    assert link.step().rates_bps[0] == pytest.approx(97 * MEGA, rel=0.01)


def test_trickle_of_probes_costs_next_to_nothing() -> None:
    recent, usable, nothing = np.zeros((legacy.PEAK_SAMPLES, 1)), np.array([97 * MEGA]), np.zeros(1)
    estimate = nothing
    for _ in range(100):
        recent = np.concatenate([recent[1:], [[0.3 * MEGA]]])
        estimate = legacy.demand_bps(estimate, recent, nothing, nothing, usable)
    assert estimate[0] <= 0.4 * MEGA


def test_new_flow_on_a_link_full_of_legacy_traffic_finds_its_fair_part() -> None:
    link = simulator()
    link.legacy_flows, link.legacy_demand_bps = 1, 1e12
    link.run(60)
    assert link.link.rate_bps >= 0.45 * 100 * MEGA


@given(st.floats(0, 1e9), st.floats(1e3, 1e9), st.integers(0, 100), st.integers(0, 100))
def test_legacy_share_is_never_more_than_demand_or_fair_fraction(
    demand: float, usable: float, flows: int, users: int
) -> None:
    columns = (np.array([float(one)]) for one in (demand, usable, flows, users))
    share = legacy.share_bps(*columns)[0]
    assert 0 <= share <= demand
    assert share <= usable * max(1, flows) / (max(1, flows) + max(1, users)) * 1.000001
