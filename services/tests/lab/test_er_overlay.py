"""What `er-overlay` makes of its measurements; nothing is measured here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chart.lab.errors import LabError
from chart.lab.experiments import closed_loop, er_overlay
from chart.lab.experiments.er_overlay import Run
from chart.lab.experiments.framework import Settings
from chart.lab.experiments.traffic import PAYLOAD_SHARE, Account

MBIT = 1_000_000


def runs(chart: Run) -> dict[str, Run]:
    """Alone 12 Mb/s of a link of 30; CUBIC takes from the legacy flow and fills the queue."""
    return {
        "none": Run("none", 12 * MBIT),
        "chart": chart,
        "cubic": Run("cubic", 9 * MBIT, 19.9 * MBIT, 80.0),
        "bbr": Run("bbr", 8 * MBIT, 20.5 * MBIT, 20.0),
    }


def test_what_is_spare_is_what_the_legacy_flow_leaves_alone() -> None:
    spare = 30 * MBIT * PAYLOAD_SHARE - 12 * MBIT
    found = runs(Run("chart", 11.9 * MBIT, 0.93 * spare, 2.5))
    figures = {figure.name: figure for figure in er_overlay.figures(found, 30 * MBIT)}
    assert figures["spare_share"].value == pytest.approx(0.93)
    assert figures["legacy_share_ratio"].value == pytest.approx(11.9 / 12)
    assert all(figures[name].met() for name in ("spare_share", "legacy_share_ratio", "rtt_rise_ms"))
    assert figures["rtt_rise_ms"].peer == 20.0
    assert figures["legacy_share_ratio"].peer == pytest.approx(0.75)
    assert figures["legacy_share_ratio/cc=bbr"].value == pytest.approx(8 / 12)
    assert "| chart | 11.90 |" in er_overlay.table(found)


def test_an_overlay_that_takes_too_much_or_too_little_misses() -> None:
    greedy = {one.name: one for one in er_overlay.figures(runs(Run("chart", 10 * MBIT, 20 * MBIT, 9.0)), 30 * MBIT)}
    assert not greedy["legacy_share_ratio"].met()
    assert not greedy["rtt_rise_ms"].met()
    shy = {one.name: one for one in er_overlay.figures(runs(Run("chart", 12 * MBIT, 8 * MBIT, 0.1)), 30 * MBIT)}
    assert not shy["spare_share"].met()
    with pytest.raises(LabError, match="told no goodput"):
        er_overlay.figures(runs(Run("chart", 12 * MBIT)), 30 * MBIT)


def test_the_legacy_flow_is_judged_in_its_window() -> None:
    parts = [
        {
            "sum": {
                "start": tenth / 2,
                "end": (tenth + 1) / 2,
                "seconds": 0.5,
                "bytes": 125_000 if tenth < 20 else 62_500,
            }
        }
        for tenth in range(40)
    ]
    told = json.dumps({"intervals": parts})
    assert er_overlay.legacy_bps(told, 0, 10) == pytest.approx(2 * MBIT)
    assert er_overlay.legacy_bps(told, 10, 20) == pytest.approx(MBIT)
    with pytest.raises(LabError, match="seconds 30 to 40"):
        er_overlay.legacy_bps(told, 30, 40)
    with pytest.raises(LabError, match="told nothing"):
        er_overlay.legacy_bps("", 0, 10)


def test_the_rise_is_the_p99_above_the_path_after_the_warm_up() -> None:
    second = 1_000_000_000
    at = tuple(number * second // 100 for number in range(1000))
    rtt = tuple(90_000 if number < 300 else 26_000 if number < 985 else 29_000 for number in range(1000))
    account = Account(0, 0, "trinity", 0, second, (1,), at, rtt, 0)
    assert account.rtt_inflation_ms(24.0, after_s=3.0) == pytest.approx(5.0)
    assert account.rtt_inflation_ms(24.0) == pytest.approx(66.0)
    assert account.rtt_inflation_ms(24.0, after_s=11.0) is None


def test_the_bottleneck_is_not_theirs() -> None:
    base = er_overlay.overlay_topology(Settings(Path("out"), rate_mbit=(20.0,)))
    assert er_overlay.link_bps_of(base) == 20 * MBIT
    assert er_overlay.base_rtt_ms(base) == pytest.approx(24.0)
    stated = er_overlay.stated_link(20 * MBIT).link
    assert (stated.from_node, stated.to_node, stated.tags["virtual"]) == ("source1", "sink1", "true")
    # Gaps that sensors read are not spoilt by packets that pass in groups.
    assert {link.coalesce_us for link in base.links} == {0}


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.timed
def test_an_overlay_uses_most_of_what_is_spare_and_takes_nothing() -> None:
    """Shorter than the experiment and judged less strictly: that the parts work together."""
    base = er_overlay.overlay_topology(Settings(Path("out")))
    with closed_loop.control_plane() as plane:
        plane.state_policy("nec")
        alone = er_overlay.measure(plane, base, "none", 8.0, er_overlay.LEGACY_LOAD, 1)
        beside = er_overlay.measure(plane, base, "chart", 15.0, er_overlay.LEGACY_LOAD, 1)
    assert beside.goodput_bps is not None
    spare_bps = er_overlay.link_bps_of(base) * PAYLOAD_SHARE - alone.legacy_bps
    noisy = beside.complaint
    if noisy is None:
        assert beside.goodput_bps >= 0.6 * spare_bps
    else:
        print(f"{beside.goodput_bps / spare_bps:.2f} of what is spare not judged: {noisy}")
    assert beside.goodput_bps >= 0.2 * spare_bps
    assert beside.legacy_bps >= 0.9 * alone.legacy_bps
    assert {one.metric for one in beside.readings} == {"available_bandwidth_bps", "rtt_us"}
    # The least share until something was sensed, then what is there.
    assert beside.rates[0][1] <= 0.1 * er_overlay.link_bps_of(base)
    assert max(rate for _, rate in beside.rates) > 0.3 * er_overlay.link_bps_of(base)
