"""What the experiments of link control make of their measurements; nothing is measured here."""

from __future__ import annotations

from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import closed_loop, fairness, rate_control, two_path_grid, user_sharing
from chart_lab.experiments.closed_loop import Flow, LinkSecond, LoopRun, Watch
from chart_lab.experiments.fairness import SetRun
from chart_lab.experiments.framework import Settings
from chart_lab.experiments.traffic import Account

S = 1_000_000_000
BIN = 10_000_000
MBIT = 1_000_000


def account(syn_s: float, rates_mbit: list[tuple[float, float]], rtt_ms: float = 26.0) -> Account:
    """A transfer whose goodput is piecewise constant: (seconds, Mb/s)."""
    bins = [int(rate * MBIT / 8 * BIN / S) for seconds, rate in rates_mbit for _ in range(round(seconds * S / BIN))]
    syn_ns = round(syn_s * S)
    at = tuple(syn_ns + number * BIN for number in range(len(bins)))
    rtt_us = tuple(round(rtt_ms * 1000) for _ in at)
    return Account(syn_ns, syn_ns, "trinity", syn_ns, BIN, tuple(bins), at, rtt_us, 0)


def joined_run(apart_s: float) -> LoopRun:
    """One flow has a link of 100 Mb/s; after 4 s a second one joins, and `apart_s` later both have half."""
    share = 93.6
    first = account(10, [(4 + apart_s, share), (4 - apart_s, share / 2)])
    second = account(14, [(apart_s, 5.0), (4 - apart_s, share / 2)])
    loads = [
        LinkSecond(round((10 + tenth / 10) * S), 0.1, int(0.97 * 100e6 / 80), 0, 0, 1 if tenth == 30 else 0, 1)
        for tenth in range(1, 80)
    ]
    flows = [Flow("source1", "sink1", 5001, end_s=8), Flow("source2", "sink2", 5001, start_s=4, end_s=8)]
    watch = Watch(rate_control.BOTTLENECK, loads)
    return LoopRun(list(zip(flows, (first, second), strict=True)), watch, 10 * S)


def test_convergence_counts_from_the_join_to_equal_and_full() -> None:
    judged = rate_control.judge(joined_run(1.0), topology.load("dumbbell"))
    first, second = judged.convergence_s
    assert first == 0
    assert second == pytest.approx(1.0, abs=0.1)
    assert judged.utilisation == pytest.approx(0.97, rel=0.001)
    assert judged.p99_queue_ms == pytest.approx(2.0)
    assert judged.drops == 1


def test_flows_that_never_share_are_as_late_as_the_next_change() -> None:
    assert rate_control.judge(joined_run(4.0), topology.load("dumbbell")).convergence_s[1] == pytest.approx(4.0)


def test_without_loads_there_is_no_judgement() -> None:
    silent = joined_run(1.0)
    silent.watch.loads.clear()
    with pytest.raises(LabError, match="no load of west:to-east"):
        rate_control.judge(silent, topology.load("dumbbell"))


def test_each_controller_has_its_figures_and_the_other_for_a_peer() -> None:
    base = topology.load("dumbbell")
    found = {name: rate_control.judge(joined_run(apart), base) for name, apart in (("nec", 0.3), ("rcp", 1.0))}
    figures = {figure.name: figure for figure in rate_control.figures(found, 0.5)}
    assert figures["convergence_s"].value == figures["convergence_s/controller=nec"].value
    assert figures["convergence_s"].met()
    assert not figures["convergence_s/controller=rcp"].met()
    assert figures["utilisation"].peer == figures["utilisation/controller=rcp"].value
    assert figures["drops"].met() is False


def test_the_path_of_a_flow_is_that_of_the_routes() -> None:
    links = closed_loop.path_links(topology.load("dumbbell"), "source1", "sink1")
    assert links == ["source1:to-west", "west:to-east", "east:to-sink1"]
    north = closed_loop.path_links(topology.load("two-path"), "source", "destination")
    assert north == ["source:to-ingress", "ingress:to-north", "north:to-egress", "egress:to-destination"]


def pair(first: str, second: str, one: float, two: float, **point: float) -> SetRun:
    return SetRun(
        point.get("loss", 0.0), point.get("delay_ms", 10.0), first, second, (one * MBIT,), (two * MBIT,), 100.0
    )


def test_fairness_of_pairs() -> None:
    runs = [
        pair("cubic", "cubic", 50, 44),
        pair("cubic", "chart", 46, 47),
        pair("chart", "chart", 46, 46.5),
    ]
    figures = {figure.name: figure for figure in fairness.evaluate_pairs(runs)}
    assert figures["legacy_share_ratio"].value == pytest.approx(46 / 47)
    assert figures["jain_chart_chart"].met()
    assert figures["total_share"].value == pytest.approx(92.5 / (100 * 1448 / 1500))
    assert figures["total_share"].peer == pytest.approx(94 / (100 * 1448 / 1500))


def test_fairness_of_sets_is_told_per_point() -> None:
    point = {"loss": 0.01, "delay_ms": 50.0}
    runs = [pair("cubic", "cubic", 3, 5, **point), pair("cubic", "chart", 4.4, 80, **point)]
    figures = {figure.name: figure.value for figure in fairness.evaluate_sets(runs)}
    assert figures["legacy_share_ratio/loss=0.01/delay_ms=50"] == pytest.approx(1.1)
    assert figures["chart_over_legacy/loss=0.01/delay_ms=50"] == pytest.approx(80 / 4.4)
    assert fairness.deviation([4.0, 4.0]) == 0
    assert fairness.deviation([1.0, 3.0]) == pytest.approx(0.5)


def test_fairness_has_six_points_or_those_asked_for() -> None:
    assert len(fairness.points(Settings(Path("out")))) == 6
    assert fairness.points(Settings(Path("out"), loss=(0.02,), delay_ms=(5, 7))) == [(0.02, 5), (0.02, 7)]
    flows = fairness.flows_of("cubic", "chart", 2, 10.0)
    assert [(flow.control, flow.source, flow.port) for flow in flows] == [
        ("cubic", "source1", 5001),
        ("chart", "source2", 5001),
        ("cubic", "source1", 5002),
        ("chart", "source2", 5002),
    ]


def test_two_paths_lose_on_the_way_out_and_delay_both_ways() -> None:
    point = two_path_grid.Point(64, 0.05, 20.0)
    changed = two_path_grid.grid_topology(topology.load("two-path"), point, 60.0)
    for link in changed.links:
        wide = link.name in two_path_grid.WIDE_AREA
        assert link.direction("forward")["rate_bps"] == 60 * MBIT
        assert link.direction("forward").get("loss", 0) == (0.05 if wide else 0)
        assert link.direction("reverse").get("loss", 0) == 0
        assert link.direction("reverse").get("delay_us", 0) == (20_000 if wide else 0)


def test_two_path_figures() -> None:
    points = [two_path_grid.Point(64, 0.0, 10.0), two_path_grid.Point(64, 0.05, 10.0)]
    speeds = {"cubic": (20.0, 2.0), "bbr": (20.0, 18.0), "chart": (94.0, 88.0)}
    runs = [
        two_path_grid.Run(point, control, speeds[control][number] * MBIT, 1.0)
        for number, point in enumerate(points)
        for control in speeds
    ]
    figures = {figure.name: figure for figure in two_path_grid.evaluate(runs)}
    assert figures["gain/window_kb=64/loss=0.05/delay_ms=10"].value == pytest.approx(44)
    assert figures["gain/window_kb=64/loss=0.05/delay_ms=10"].peer == pytest.approx(88 / 18)
    assert figures["goodput_bps/cc=chart/window_kb=64/loss=0/delay_ms=10"].value == 94 * MBIT
    # Only cells with loss count.
    assert figures["geometric_mean_gain/window_kb=64"].value == pytest.approx(44)
    assert "| 64 | 0.05 | 10 | 2.00 | 18.00 | 88.00 |" in two_path_grid.table(runs)


def users_run(ann: list[float], bob: float) -> LoopRun:
    """Five flows of constant rates, Mb/s, after a warm-up in which everybody had nothing."""
    flows = user_sharing.flows_of("chart", 8.0)
    rates = [*ann, bob]
    found = [
        (flow, account(10, [(user_sharing.WARM_UP_S, 0), (5, rate)])) for flow, rate in zip(flows, rates, strict=True)
    ]
    return LoopRun(found, Watch(user_sharing.BOTTLENECK), 10 * S)


def test_users_are_judged_by_all_their_flows() -> None:
    fair = user_sharing.judge(users_run([12, 12, 12, 12], 46))
    assert fair.totals() == pytest.approx({"ann": 48 * MBIT, "bob": 46 * MBIT}, rel=0.01)
    assert fair.deviation() == pytest.approx(1 / 47, rel=0.05)
    by_flow = user_sharing.judge(users_run([19, 19, 19, 19], 19))
    assert by_flow.deviation() == pytest.approx(0.6, rel=0.02)
    figures = {figure.name: figure for figure in user_sharing.figures({"chart": fair, "cubic": by_flow}, 100e6)}
    assert figures["user_share_deviation"].met()
    assert figures["user_share_deviation"].peer == pytest.approx(0.6, rel=0.02)
    assert figures["jain_within_user"].met()
    assert figures["total_share"].value == pytest.approx(94 / (100 * 1448 / 1500), rel=0.01)
    swapped = {figure.name: figure for figure in user_sharing.figures({"chart": by_flow, "cubic": fair}, 100e6)}
    assert not swapped["user_share_deviation"].met()
    assert "| chart | ann | 12.00, 12.00, 12.00, 12.00 | 48.00 |" in user_sharing.table({"chart": fair})
