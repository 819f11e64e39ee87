"""What the diffserv experiments make of their settings and of what they measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from chart.lab.experiments import REGISTRY
from chart.lab.experiments import diffserv_policing as policing
from chart.lab.experiments.traffic import Account

FULL_BPS = policing.RESERVED_BPS * policing.PAYLOAD_SHARE


def steady(rate_bps: float, seconds: float) -> Account:
    """A flow at one rate, in bins of 10 ms."""
    bins = (round(rate_bps / 800),) * round(seconds * 100)
    return Account(0, 20_000_000, "trinity", 0, 10_000_000, bins, (), (), 0)


def test_a_bucket_is_stated_to_the_agent_as_time() -> None:
    assert [policing.depth_ms(depth) for depth in policing.DEPTHS_BYTES] == [8, 40, 400]


def test_windows_are_whole_and_begin_when_judging_does() -> None:
    found = policing.windows(steady(8e6, 12.0), 3.0, 12.0)
    assert len(found) == 45
    assert found == pytest.approx([8e6] * 45, rel=1e-6)


def test_a_steady_flow_at_its_reservation_does_not_oscillate() -> None:
    run = policing.Run(40_000, "chart", (FULL_BPS,) * 10, 0)
    assert (run.goodput_share, run.oscillation) == pytest.approx((1.0, 0.0))
    swinging = policing.Run(40_000, "cubic", (0.0, FULL_BPS) * 5, 100)
    assert (swinging.goodput_share, swinging.oscillation) == pytest.approx((0.5, 0.5))


def test_the_worst_depth_is_told_with_cubic_at_that_depth_beside() -> None:
    runs = [
        policing.Run(40_000, "cubic", (0.0, FULL_BPS), 9),
        policing.Run(40_000, "chart", (0.9 * FULL_BPS, FULL_BPS), 1),
        policing.Run(200_000, "cubic", (FULL_BPS, FULL_BPS), 0),
        policing.Run(200_000, "chart", (FULL_BPS, FULL_BPS), 0),
    ]
    figures = {figure.name: figure for figure in policing.evaluate(runs)}
    assert figures["oscillation"].value == pytest.approx(0.05)
    assert figures["oscillation"].peer == pytest.approx(0.5)
    assert figures["goodput_share"].value == pytest.approx(0.95)
    assert figures["goodput_share"].peer == pytest.approx(0.5)
    assert figures["goodput_share/cc=cubic/depth_bytes=200000"].value == pytest.approx(1.0)
    assert "| 40 | cubic | 19.3 | 0.500 | 0.500 | 9 |" in policing.table(runs)


def test_a_plot_is_drawn(tmp_path: Path) -> None:
    policing.plot([policing.Run(40_000, "cubic", (1e6, 2e6), 9)], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_the_experiment_can_be_asked_for() -> None:
    assert REGISTRY["diffserv-policing"] is policing.EXPERIMENT
