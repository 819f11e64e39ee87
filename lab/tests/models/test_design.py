"""The gains of the link controllers: stable at every delay, close to the best, and what the whole loop makes of joins,
leaves and flows that do not take their rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from chart.allocator.controller import TARGET_UTILISATION, LinkController
from chart.allocator.laws import LAWS
from chart_lab.models import design
from chart_lab.models.link import ControlledLink, FlowGroup, LinkSimulator, jain_index, run_together

DELAYS = range(design.MAXIMUM_DELAY + 1)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("delay", DELAYS)
def test_the_loop_is_stable_also_when_the_flows_are_miscounted(name: str, delay: int) -> None:
    used = design.gains(name, delay)
    assert design.spectral_radius(delay, used) < 1
    # Twice as many flows that answer as were counted are twice the gain.
    assert design.gain_margin(delay, used) > 2
    half = design.Gains(used.derivative / 2, used.proportional / 2)
    assert design.spectral_radius(delay, half) < 1


def test_a_known_loop_has_its_known_roots() -> None:
    """Without delay the loop is of second order: (z - 1)^2 + A1 (z - 1) + A0 z."""
    used = design.Gains(0.3, 0.1)
    middle, inside = (2 - 0.4) / 2, 0.8**2 - 0.7
    assert inside < 0
    assert design.spectral_radius(0, used) == pytest.approx(math.hypot(middle, math.sqrt(-inside)))
    assert design.spectral_radius(0, design.Gains(2.1, 0.1)) > 1


@pytest.mark.parametrize("delay", [4, 8, 16])
def test_nec_is_close_to_the_best_gains_at_long_delays(delay: int) -> None:
    """An error takes at most 1.6 times as long to die out as with the best gains, which have less margin."""
    best, found = design.best_gains(delay)
    own = design.gains("nec", delay)
    assert math.log(best) / math.log(design.spectral_radius(delay, own)) < 1.6
    assert design.gain_margin(delay, own) >= design.gain_margin(delay, found)


@dataclass(frozen=True)
class Crowd:
    """Flows that join a link one group after the other; of more than two groups the oldest leaves."""

    law: str
    delay: int
    counts: tuple[int, ...]


@given(
    st.lists(
        st.builds(
            Crowd,
            law=st.sampled_from(LAWS),
            delay=st.integers(0, 16),
            counts=st.lists(st.integers(1, 10_000), min_size=1, max_size=4).map(tuple),
        ),
        min_size=20,
        max_size=20,
    )
)
@settings(max_examples=5, deadline=None)
def test_any_joins_and_leaves_end_in_equal_rates_and_a_full_link(crowds: list[Crowd]) -> None:
    """The crowd changes every few delays; once it stays as it is, the link is full, fair and without a queue."""
    controller = LinkController()
    links = [
        LinkSimulator(
            ControlledLink(crowd.law, controller=controller),
            1e9 * max(1, max(crowd.counts) / 1000),
            delay_periods=crowd.delay,
        )
        for crowd in crowds
    ]
    for change in range(max(len(crowd.counts) for crowd in crowds)):
        joining = [number for number, crowd in enumerate(crowds) if change < len(crowd.counts)]
        for number in joining:
            links[number].groups.append(FlowGroup(crowds[number].counts[change]))
        run_together([links[number] for number in joining], [3 + 2 * crowds[number].delay for number in joining])
        for number in joining:
            if len(links[number].groups) > 2:
                del links[number].groups[0]
    run_together(links, [60 + 30 * (crowd.delay + 2) for crowd in crowds])
    for crowd, tail in zip(crowds, run_together(links, [20] * len(links)), strict=True):
        note(f"{crowd} {[step.utilisation for step in tail]} {[step.queue_us for step in tail]}")
        assert min(step.utilisation for step in tail) >= 0.95
        assert max(step.queue_us for step in tail) <= 5_000
        assert jain_index(tail[-1].rates_bps) >= 0.99


@dataclass(frozen=True)
class IdleCrowd:
    """Flows that take only a part of their rate for a time."""

    law: str
    delay: int
    flows: int
    idle_share: float
    idle_periods: int


@given(
    st.lists(
        st.builds(
            IdleCrowd,
            law=st.sampled_from(LAWS),
            delay=st.integers(0, 16),
            flows=st.integers(1, 10_000),
            idle_share=st.floats(0.01, 0.9),
            idle_periods=st.integers(1, 600),
        ),
        min_size=20,
        max_size=20,
    )
)
@settings(max_examples=4, deadline=None)
def test_time_below_the_rate_is_not_saved_up(crowds: list[IdleCrowd]) -> None:
    """However long the flows took less than their rate, they may not send more than the link carries afterwards."""
    controller = LinkController()
    links = []
    for crowd in crowds:
        capacity = 1e6 * crowd.flows
        link = LinkSimulator(ControlledLink(crowd.law, controller=controller), capacity, delay_periods=crowd.delay)
        link.groups = [FlowGroup(crowd.flows, crowd.idle_share * TARGET_UTILISATION * capacity / crowd.flows)]
        links.append(link)
    run_together(links, [30 + crowd.idle_periods for crowd in crowds])
    for link in links:
        link.groups[0].limit_bps = math.inf
    steps = run_together(links, [60 + 30 * (crowd.delay + 2) for crowd in crowds])
    for crowd, after in zip(crowds, steps, strict=True):
        # The whole crowd wakes at once: what it sends above the link lasts for the feedback delay, not for the idle
        # time.
        over = [step for step in after if step.queue_us > 5_000]
        note(f"{crowd} {len(over)} periods with a queue, {[round(step.queue_us) for step in after[:60]]}")
        assert len(over) <= 30 + 8 * (crowd.delay + 2)
        assert all(step.queue_us <= 5_000 for step in after[-10:])
        assert min(step.utilisation for step in after[-10:]) >= 0.95


def test_the_table_and_the_picture_are_written(tmp_path: Path) -> None:
    assert design.table().count("\n") == 2 + design.MAXIMUM_DELAY + 1
    design.plot(tmp_path / "gains.png")
    assert (tmp_path / "gains.png").read_bytes().startswith(b"\x89PNG")
