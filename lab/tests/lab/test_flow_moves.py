"""What `flow-moves` and `spread` make of what they saw."""

from __future__ import annotations

import pytest

from chart_lab import topology
from chart_lab.experiments import flow_moves, spread
from chart_lab.experiments.flow_moves import Brownout, Cut, Found, broken, evaluate, left_s, moved_ms

SPACING_S = 0.1


def flow(number: int, lost: tuple[float, float] = (0, 0)) -> list[tuple[int, float]]:
    """A datagram every tenth of a second from 0 to 4, without those of a time."""
    times = [round(step * SPACING_S + number * 0.001, 6) for step in range(40)]
    return [(number, at_s) for at_s in times if not lost[0] <= at_s < lost[1]]


def test_a_flow_moved_when_what_it_sends_arrives_again() -> None:
    arrivals = flow(1) + flow(2, (2.0, 2.15)) + flow(3, (2.0, 2.35)) + flow(4, (2.0, 9.0))
    assert sorted(moved_ms(arrivals, 2.0, 4.0, SPACING_S)) == pytest.approx([202, 403])
    assert broken(arrivals, 4, 2.5, 4.0) == 1


def test_flows_have_left_when_little_is_carried_for_good() -> None:
    step_s, octets_per_s = 0.02, 1_000_000

    def samples(left_at_s: float, back_at_s: float = 99.0) -> list[tuple[float, int]]:
        octets, found = 0, []
        for step in range(400):
            at_s = step * step_s
            octets += round(octets_per_s * step_s) if at_s < left_at_s or at_s >= back_at_s else 0
            found.append((at_s, octets))
        return found

    left = left_s(samples(1.5), 8e6)
    assert left is not None
    # Later by a window at most, never too early.
    assert 1.5 - step_s <= left <= 1.5 + flow_moves.RATE_WINDOW_S
    assert left_s(samples(99.0), 8e6) is None
    assert left_s(samples(1.0, 7.5), 8e6) is None
    # What is left are probes.
    assert left_s([(at_s, round(at_s * 50_000)) for at_s, _ in samples(99.0)], 8e6) == 0
    assert left_s([], 8e6) is None


def test_figures_are_the_worst_of_what_was_seen() -> None:
    found = Found(
        cuts=[Cut("both", "a-b", [50.0, 70.0], 1), Cut("deaf", "b", [90.0], 0)],
        brownouts=[Brownout("data", "loss", "north", 1.0), Brownout("voice", "slower", "south", 0.5)],
        connections=10,
        calm_flows=200,
        calm_s=600.0,
    )
    figures = {one.name: one.value for one in evaluate(found)}
    assert figures["moved_ms"] == 90
    assert figures["moved_ms/kind=both"] == 70
    assert figures["moved_ms/kind=forward"] is None
    assert (figures["broken_flows"], figures["broken_flows_tried"]) == (1, 2010)
    assert figures["brownout_moved_s"] == 1
    assert figures["changes_tried"] == pytest.approx(200 * 300 / 3600)
    assert figures["brownout_moved_s/direction=one"] is None
    found.brownouts.append(Brownout("data", "loss-forward", "north", 3.0))
    figures = {one.name: one.value for one in evaluate(found)}
    assert (figures["brownout_moved_s"], figures["brownout_moved_s/direction=one"]) == (1, 3)
    found.brownouts.append(Brownout("data", "loss", "north", None))
    assert {one.name: one.value for one in evaluate(found)}["brownout_moved_s"] is None


def test_the_paths_are_within_a_tenth_of_each_other_or_one_is_twice_as_fast() -> None:
    delays = {link.delay_ms for link in flow_moves.network(topology.load("two-path")).links if link.delay_ms}
    assert max(delays) / min(delays) <= 1.1
    rates = [link.rate_mbit for link in spread.network(topology.load("two-path")).links if link.delay_ms]
    assert sorted(rate or 0 for rate in rates) == [30, 60]


def test_the_share_of_both_is_of_what_the_headers_leave() -> None:
    runs = [spread.Run(spread.SPREAD, 90e6 * (1500 - 102) / 1500), spread.Run(spread.ONE_PATH, 50e6)]
    figure = spread.figures(runs)[0]
    assert figure.value == pytest.approx(1.0)
    assert figure.peer is not None
    assert figure.peer < 0.7
