"""What `er-overlay` makes of its measurements; nothing is measured here."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from chart_lab.errors import LabError
from chart_lab.experiments import closed_loop, er_overlay
from chart_lab.experiments.er_overlay import Run
from chart_lab.experiments.framework import Settings
from chart_lab.experiments.overlay_sensing import Reading
from chart_lab.experiments.traffic import PAYLOAD_SHARE, Account
from support.figures import Figures

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
    (stated,) = er_overlay.stated_links(base, er_overlay.ELEMENTS["hosts"])
    assert (stated.from_node, stated.to_node, stated.tags["virtual"]) == ("source1", "sink1", "true")
    assert stated.capacity_bps == 20 * MBIT
    # Gaps that sensors read are not spoilt by packets that pass in groups.
    assert {link.coalesce_us for link in base.links} == {0}


def test_routers_as_elements_have_real_links_on_both_sides() -> None:
    settings = Settings(Path("out"), elements="routers")
    base, elements = er_overlay.overlay_topology(settings), er_overlay.elements_of(settings)
    stated = er_overlay.stated_links(base, elements)
    assert [link.id for link in stated] == ["source1:to-near", "near:to-west", "far:to-sink1"]
    assert [(link.from_node, link.to_node) for link in stated] == [
        ("source1", "near"),
        ("near", "far"),
        ("far", "sink1"),
    ]
    assert [link.tags.get("virtual") for link in stated] == [None, "true", None]
    assert [link.capacity_bps for link in stated] == [300 * MBIT, 30 * MBIT, 300 * MBIT]
    assert er_overlay.base_rtt_ms(base) == pytest.approx(28.0)


def test_repeats_are_merged_by_medians_and_come_back_as_they_were() -> None:
    readings = [Reading(5, "rtt_us", 24_000.0)]
    own = [
        Run("chart", 11 * MBIT, 15 * MBIT, 5.2, readings=readings, rates=[(0.5, 3)]),
        Run("chart", 12 * MBIT, 16 * MBIT, 4.1),
        Run("chart", 10 * MBIT, 17 * MBIT, 4.6),
    ]
    found = er_overlay.merged(own)
    assert (found.legacy_bps, found.goodput_bps, found.rtt_rise_ms) == (11 * MBIT, 16 * MBIT, 4.6)
    assert found.readings == readings
    assert er_overlay.merged([Run("none", 12 * MBIT)]).goodput_bps is None
    assert er_overlay.read_run(json.loads(json.dumps(asdict(own[0])))) == own[0]


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("ends", ["hosts", "routers"])
def test_an_overlay_uses_most_of_what_is_spare_and_takes_nothing(ends: str, figures: Figures) -> None:
    """Shorter than the experiment and judged less strictly: that the parts work together."""
    settings = Settings(Path("out"), elements=ends)
    base, elements = er_overlay.overlay_topology(settings), er_overlay.elements_of(settings)
    with closed_loop.control_plane() as plane:
        plane.state_policy("nec")
        alone = er_overlay.measure(plane, base, elements, "none", 8.0, er_overlay.LEGACY_LOAD, 1)
        beside = er_overlay.measure(plane, base, elements, "chart", 15.0, er_overlay.LEGACY_LOAD, 1)
    assert beside.goodput_bps is not None
    spare_bps = er_overlay.link_bps_of(base) * PAYLOAD_SHARE - alone.legacy_bps
    figures.disturbed(beside.complaint)
    figures.at_least("used", beside.goodput_bps / spare_bps, 0.6, "of what is spare", sound=0.2)
    figures.at_least("left to others", beside.legacy_bps / alone.legacy_bps, 0.9, "of theirs alone", sound=0.5)
    assert {one.metric for one in beside.readings} == {"available_bandwidth_bps", "rtt_us"}
    # The least share until something was sensed, then what is there.
    assert beside.rates[0][1] <= 0.1 * er_overlay.link_bps_of(base)
    assert max(rate for _, rate in beside.rates) > 0.3 * er_overlay.link_bps_of(base)
