"""`impairments`: its weather, its figures, and a short round of the whole with real servers and clients."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from chart_lab import topology
from chart_lab.experiments import REGISTRY, closed_loop, impairments, impairments_report
from chart_lab.experiments.file_transfer import Fetched
from chart_lab.experiments.framework import Settings
from chart_lab.experiments.impairments_report import Run
from chart_lab.topology import Burst, Impairment, find_link

ROUND_S = 2.0


def files(ftp_s: float, http_s: float, *, complete: bool = True) -> tuple[Fetched, ...]:
    return (Fetched("ftp", ftp_s, 34_000_000, complete), Fetched("http", http_s, 13_600_000, complete))


def one(control: str, ftp_s: float, http_s: float, *, complete: bool = True) -> Run:
    held = {"ftp": 1.0, "http": 0.9} if control == "chart" else {"ftp": 0.0, "http": 0.0}
    progress = {"ftp": [(0.0, 0), (ftp_s, 34_000_000)], "http": [(0.0, 0), (http_s, 13_600_000)]}
    return Run(control, files(ftp_s, http_s, complete=complete), 12, held, progress)


def test_ten_defects_in_their_slots_and_round_after_round() -> None:
    base = topology.load("naval-fleet")
    found = list(itertools.islice(impairments.events(base, 20.0), 44))
    begins = [event for event in found if event.defect is not None]
    assert [event.defect for event in begins] == [*range(10), *range(10), 0, 1]
    assert [event.at_s for event in begins[:3]] == pytest.approx([0.2, 2.2, 4.2])
    assert begins[10].at_s == pytest.approx(20.2)
    assert [event.at_s for event in found] == sorted(event.at_s for event in found)
    # Never two at once, and every one of them ends.
    assert all((event.defect is None) == bool(place % 2) for place, event in enumerate(found))


@pytest.mark.parametrize("defect", impairments.DEFECTS, ids=lambda defect: defect.name)
def test_what_a_defect_changes_is_set_back(defect: impairments.Defect) -> None:
    link, _ = find_link(topology.load("naval-fleet"), defect.link)
    back = impairments.restored(link, defect.what, defect.direction)
    assert back.model_fields_set == defect.what.model_fields_set
    before = link.direction("reverse" if defect.direction == "reverse" else "forward")
    without = {"outage": False, "loss": 0.0, "duplicate": 0.0, "reorder": 0.0, "reorder_extra_us": 0, "burst": None}
    parameters = back.parameters()
    assert parameters.keys() == defect.what.parameters().keys()
    assert all(value == before.get(name, without.get(name)) for name, value in parameters.items())
    assert parameters != defect.what.parameters()


def test_what_has_no_value_in_the_topology_goes_back_to_none() -> None:
    link, _ = find_link(topology.load("naval-fleet"), "shore-leo")
    changed = Impairment(rate_mbit=1, burst=Burst(enter=0.1, leave=0.1), jitter_ms=3, outage=True)
    assert impairments.restored(link, changed, "both") == Impairment(
        rate_mbit=20, burst="none", jitter_ms=0, outage=False
    )


def test_each_client_has_a_satellite_of_its_own() -> None:
    base = topology.load("naval-fleet")
    low = closed_loop.path_links(base, "server", "frigate")
    high = closed_loop.path_links(base, "server", "cruiser")
    assert low == ["server:to-shore", "shore:to-leo", "leo:to-carrier", "carrier:to-frigate"]
    assert high == ["server:to-shore", "shore:to-geo", "geo:to-cruiser"]
    for path in (low, high):
        met = {
            defect.link
            for defect in impairments.DEFECTS
            if any(find_link(base, one)[0].name == defect.link for one in path)
        }
        assert len(met) >= 3, path
    assert impairments.file_bytes(base, "ftp", 16.0) == 34_000_000
    assert impairments.file_bytes(base, "http", 16.0) == 13_600_000


def test_gains_are_geometric_means_over_both_files() -> None:
    runs = [one("chart", 20, 25), one("bbr", 40, 25), one("cubic", 200, 400)]
    figures = {figure.name: figure for figure in impairments_report.evaluate(runs)}
    assert figures["gain_over_cubic"].value == pytest.approx((10 * 16) ** 0.5)
    assert figures["gain_over_cubic"].met()
    assert figures["gain_over_cubic"].peer == pytest.approx((5 * 16) ** 0.5)
    assert figures["gain_over_bbr"].value == pytest.approx(2**0.5)
    assert figures["gain_over_cubic/protocol=http"].value == pytest.approx(16)
    assert figures["transfer_s/cc=chart/protocol=ftp"].value == 20
    assert figures["transfer_s/cc=chart/protocol=ftp"].peer == 40
    assert figures["defects_met"].met()
    assert figures["explicit_rate_share"].value == pytest.approx(0.9)


def test_who_was_given_up_shows(tmp_path: Path) -> None:
    runs = [one("chart", 20, 25), one("cubic", 288, 288, complete=False)]
    sizes = {"ftp": 34_000_000, "http": 13_600_000}
    told = impairments_report.table(runs, sizes, [defect.name for defect in impairments.DEFECTS], 16.0)
    assert "| ftp, 34.0 MB | cubic | > 288.0 | 0.94 | > 14.4 |" in told
    assert "10. duplication" in told
    impairments_report.plot(runs, [(0.2, 1.4)], tmp_path / "plot.png")
    assert (tmp_path / "plot.png").stat().st_size > 1000


def test_finished_runs_are_used_again_under_the_same_conditions(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "out", resume=True)
    impairments_report.kept_runs(settings, 16.0).add([0, "chart"], one("chart", 20, 25))
    assert impairments_report.kept_runs(settings, 16.0).get([0, "chart"]) == one("chart", 20, 25)
    assert impairments_report.kept_runs(settings, 16.0).get([1, "chart"]) is None
    assert len(impairments_report.kept_runs(settings, 8.0)) == 0


@pytest.mark.lab
def test_a_short_round_by_ftp_and_http(tmp_path: Path) -> None:
    """Octets are compared inside: a file that differs, or a flow that never had a rate, raises."""
    settings = Settings(tmp_path, duration_s=ROUND_S, congestion=("chart",), judge_noise=False)
    outcome = REGISTRY["impairments"].run(settings, lambda *_: None)
    run = impairments_report.kept_runs(replace(settings, resume=True), ROUND_S).get([0, "chart"])
    assert run is not None
    base = topology.load("naval-fleet")
    assert all(file.complete for file in run.files), run
    assert {file.protocol: file.received_bytes for file in run.files} == {
        protocol: impairments.file_bytes(base, protocol, ROUND_S) for protocol in impairments.CLIENTS
    }
    assert run.defects >= 10
    figures = {figure.name: figure.value for figure in outcome.figures}
    assert (figures["explicit_rate_share"] or 0) > 0
    assert "gain_over_cubic" not in figures
