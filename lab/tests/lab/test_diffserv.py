"""What the diffserv experiments make of their settings and of what they measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.errors import LateError
from chart_lab.experiments import REGISTRY, diffserv
from chart_lab.experiments import diffserv_classes as classes
from chart_lab.experiments import diffserv_policing as policing
from chart_lab.experiments import diffserv_premium as premium
from chart_lab.experiments.traffic import PAYLOAD_SHARE, Account

FULL_BPS = policing.RESERVED_BPS * PAYLOAD_SHARE


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


def test_the_experiments_can_be_asked_for() -> None:
    for one in (policing, premium, classes):
        assert REGISTRY[one.EXPERIMENT.name] is one.EXPERIMENT


def test_the_round_trip_of_garnet_is_the_papers() -> None:
    links = {link.name: link for link in topology.load("garnet").links}
    path = [f"{diffserv.PREMIUM}-{diffserv.EDGE}", diffserv.NARROW_LINK, f"{diffserv.CORE}-{diffserv.SINK}"]
    assert 2 * sum(links[name].delay_ms or 0 for name in path) == diffserv.BASE_RTT_MS
    assert links[diffserv.NARROW_LINK].rate_mbit == diffserv.NARROW_BPS / 1e6


def premium_run(share: float, congested: bool, rtt_ms: float, part: float) -> premium.Run:
    goodput_bps = part * share * diffserv.NARROW_BPS * PAYLOAD_SHARE
    return premium.Run(share, congested, goodput_bps, rtt_ms - 0.1, rtt_ms, 55e6 if congested else 0.0)


def test_what_congestion_does_to_a_premium_flow() -> None:
    runs = [
        premium_run(0.15, False, 3.2, 1.0),
        premium_run(0.15, True, 3.6, 0.998),
        premium_run(0.45, False, 3.3, 1.0),
        premium_run(0.45, True, 4.5, 0.97),
        premium.Run(0.0, False, 90e6, 3.0, 8.0, 0.0),
        premium.Run(0.0, True, 9e6, 50.0, 58.0, 90e6),
    ]
    figures = {figure.name: figure for figure in premium.evaluate(runs)}
    assert figures["premium_rtt_rise_ms"].value == pytest.approx(1.2)
    assert figures["premium_rtt_rise_ms"].peer == pytest.approx(50.0)
    assert not figures["premium_rtt_rise_ms"].met()
    assert figures["premium_rtt_rise_ms/share=0.15"].met()
    assert figures["premium_goodput_change"].value == pytest.approx(0.03)
    assert figures["premium_goodput_change"].peer == pytest.approx(0.9)
    assert figures["premium_goodput_change/share=0.15"].met()
    assert figures["premium_goodput_share/share=0.45"].value == pytest.approx(0.97)
    assert "| none (bbr) | 1.5 times the link | 9.00 |" in premium.table(runs)


def test_only_what_was_sent_after_the_beginning_counts_for_the_round_trip() -> None:
    account = Account(0, 20_000_000, "trinity", 0, 10_000_000, (), (500_000_000, 1_500_000_000), (9000, 3100), 0)
    assert premium.round_trips_ms(account, 1.0) == [3.1]


def test_the_background_is_left_what_the_foreground_does_not_take() -> None:
    found = classes.spans(20.0)
    assert found[0].rates == {classes.BACKGROUND_PORT: classes.CHANNEL_BPS}
    assert [span.rates[classes.BACKGROUND_PORT] / 1e6 for span in found] == [45, 35, 15, 7, 17, 37, 45]
    assert all(sum(span.rates.values()) == classes.CHANNEL_BPS for span in found)
    assert (found[0].start_s, found[-1].end_s) == (0, 20)


def test_figures_of_the_classes() -> None:
    found = classes.spans(20.0)
    half = classes.Foreground(5002, 10_000_000, 0.15, 0.6)
    account = steady(half.rate_bps * PAYLOAD_SHARE * 0.99, 20.0)
    told = classes.shares_of(half.port, account, 0, found)
    assert told == pytest.approx((0.99,) * 3, rel=1e-3)
    late = Account(int(3.9e9), int(3.92e9), "trinity", int(3.9e9), 10_000_000, account.bins, (), (), 0)
    assert classes.shares_of(half.port, late, 0, found) == pytest.approx((0.99,) * 3, rel=1e-3)
    # Two of the span's three seconds had passed: what is left says nothing.
    later = Account(int(5.0e9), int(5.02e9), "trinity", int(5.0e9), 10_000_000, account.bins, (), (), 0)
    with pytest.raises(LateError, match=r"began 2\.0 s after its time"):
        classes.shares_of(half.port, later, 0, found)
    run = classes.Run({half.port: told}, (1.0, 0.9), 53e6, {"5001": [1e6]})
    figures = {figure.name: figure for figure in classes.evaluate(run)}
    assert figures["foreground_share"].met()
    assert figures["background_use"].value == 0.9
    assert figures["best_effort_bps"].met()


def test_plots_of_premium_and_classes_are_drawn(tmp_path: Path) -> None:
    premium.plot([premium_run(0.45, True, 4.0, 1.0)], tmp_path / "premium.png")
    classes.plot(classes.Run({}, (1.0,), 1e6, {"5001": [1e6, 2e6]}), tmp_path / "classes.png")
    assert min((tmp_path / name).stat().st_size for name in ("premium.png", "classes.png")) > 1000
