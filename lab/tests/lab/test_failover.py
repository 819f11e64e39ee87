"""The pure parts of `failover`: how long an outage was, and what is made of many; what the overlay's files say."""

from __future__ import annotations

import math
import struct
from pathlib import Path

import pytest

from chart_lab import frr, numbered_datagrams, topology
from chart_lab.experiments import overlay_nodes
from chart_lab.experiments.failover import OWNED, schemes, table, ways
from chart_lab.experiments.failover_judge import BFD, CARRIER, OSPF, OVERLAY, Cut, evaluate, median, outage_s, worst
from chart_lab.experiments.overlay_calm import lossy
from chart_lab.experiments.overlay_throughput import Run, ceiling_bps, figures
from chart_lab.network import Lab

SPACING_S = 0.001


def arrivals(*pauses: tuple[float, float], until_s: float = 3.0) -> list[float]:
    """A stream from 0 s on with pauses, each from one time to another."""
    times = [number * SPACING_S for number in range(round(until_s / SPACING_S))]
    return [at_s for at_s in times if not any(begin < at_s < end for begin, end in pauses)]


def test_an_outage_is_the_longest_pause_after_the_cut() -> None:
    found = outage_s(arrivals((1.0, 1.07), (1.5, 1.52)), 1.0005, 2.5, SPACING_S)
    assert found == pytest.approx(0.07 - SPACING_S, abs=1e-9)


def test_what_was_over_before_the_cut_does_not_count() -> None:
    assert outage_s(arrivals((0.5, 0.9)), 1.0, 2.5, SPACING_S) == pytest.approx(0.0, abs=1e-9)


def test_a_pause_that_began_before_the_cut_and_lasts_counts() -> None:
    assert outage_s(arrivals((0.99, 1.1)), 1.0, 2.5, SPACING_S) == pytest.approx(0.109, abs=1e-3)


@pytest.mark.parametrize("stream", [[], [0.5], arrivals((1.0, 9.0))])
def test_an_outage_that_does_not_end_is_none(stream: list[float]) -> None:
    assert outage_s(stream, 1.0, 2.5, SPACING_S) is None


def cut(outage_ms: float | None, scheme: str = OVERLAY, kind: str = "both", loss: float = 0.005) -> Cut:
    return Cut(scheme, kind, "ingress-north", loss, outage_ms)


def test_of_few_cuts_the_greatest_outage_stands_for_the_99th_percentile() -> None:
    assert worst([cut(5), cut(9), cut(7)]) == 9
    assert worst([cut(float(number)) for number in range(1, 201)]) == 198
    assert worst([]) is None
    assert worst([cut(5), cut(None)]) == math.inf
    assert median([cut(5), cut(9), cut(7)]) == 7


def test_figures_compare_with_the_peers_of_the_same_run() -> None:
    cuts = [cut(60), cut(70), cut(20, kind=CARRIER), cut(900, OSPF), cut(140, BFD), cut(30, BFD, CARRIER)]
    cuts += [cut(110, loss=0.05)]
    found = {one.name: one for one in evaluate(cuts, 0, 20, 0.005)}
    assert (found["outage_median_ms"].value, found["outage_median_ms"].peer) == (65, 140)
    assert (found["outage_p99_ms"].value, found["carrier_outage_p99_ms"].value) == (70, 20)
    assert found["ratio_to_ospf"].value == pytest.approx(65 / 900)
    assert found["ratio_to_bfd"].value == pytest.approx(65 / 140)
    assert found["outage_p99_ms/loss=0.05"].value == 110
    assert all(one.met() for one in found.values() if one.goal)


def test_a_cut_that_was_not_survived_meets_no_goal() -> None:
    found = {one.name: one for one in evaluate([cut(60), cut(None)], 1, 20, 0.005)}
    assert found["outage_p99_ms"].value is None
    assert found["outage_p99_ms"].met() is False
    assert found["broken_flows"].met() is False
    assert found["ratio_to_ospf"].met() is False
    assert "not over" in table([cut(60), cut(None)])


def test_every_silent_kind_of_cut_has_its_share() -> None:
    plan = {one.name: one for one in schemes(10)}
    assert sum(plan[OVERLAY].cuts.values()) == 40
    assert plan[OSPF].cuts.keys() == plan[OVERLAY].cuts.keys()


def test_what_was_heard_is_read_up_to_the_last_whole_record(tmp_path: Path) -> None:
    file = tmp_path / "heard"
    file.write_bytes(struct.pack("<QQQQ", 1, 2_000_000_000, 2, 2_500_000_000) + b"half")
    assert list(numbered_datagrams.read(file)) == [(1, 2.0), (2, 2.5)]


def test_overlay_files_follow_the_topology(tmp_path: Path) -> None:
    lab = Lab(ways(topology.load("two-path"), 0.0), "files", state_dir=tmp_path)
    ingress = overlay_nodes.tables(lab, OWNED)["ingress"]
    assert [one["name"] for one in ingress["links"]] == ["north", "south"]
    owners = {one["node"]: one for one in ingress["owners"]}
    assert owners["egress"]["paths"] == [{"colour": 0, "next_hops": ["north", "south"]}]
    assert f"{lab.address('destination')}/32" in owners["egress"]["prefixes"]
    assert "paths" not in owners["ingress"]


def test_routers_are_configured_as_the_peer_is_named(tmp_path: Path) -> None:
    lab = Lab(ways(topology.load("two-path"), 0.0), "routers", state_dir=tmp_path)
    plain = frr.ospf_configuration(lab, "north", frr.Ospf())
    assert "interface to-ingress" in plain
    assert "dead-interval" not in plain
    quick = frr.ospf_configuration(lab, "north", frr.Ospf(dead_one_second=True, bfd=True, quick=True, costs=True))
    assert quick.count("ip ospf bfd profile quick") == 2
    assert "ip ospf cost 100" in quick
    assert "timers throttle spf 0 10 100" in quick


def test_the_ceiling_is_what_headers_leave() -> None:
    assert ceiling_bps(1500e6, "routed") == pytest.approx(1448e6)
    assert ceiling_bps(1500e6, "overlay") == pytest.approx(1398e6)
    runs = [Run("emulated", "overlay", 93.2e6), Run("emulated", "routed", 96.5e6)]
    runs += [Run("veth", "overlay", 8e9), Run("veth", "routed", 10e9)]
    found = {one.name: one.value for one in figures(runs, 100e6)}
    assert found["share_of_ceiling"] == pytest.approx(1.0, abs=1e-3)
    assert found["share_of_routing"] == pytest.approx(0.8)


def test_calm_links_lose_and_jitter_where_they_are_long() -> None:
    changed = {link.name: link for link in lossy(topology.load("two-path")).links}
    assert (changed["ingress-north"].loss, changed["ingress-north"].jitter_ms) == (0.1, 20.0)
    assert changed["north-egress"].loss == 0.0
