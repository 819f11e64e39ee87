"""`make netem-witness`: the grid, what counts as measured, and the figures of it; without a guest."""

from __future__ import annotations

import json
from pathlib import Path

import netem_witness as witness
import pytest
from guest import Outcome, understand

from report_file import replace_figures

ROUNDS = witness.ROUNDS


def outcome(linkem: float = 3.0, netem: float = 3.0, rounds: int = ROUNDS) -> Outcome:
    """What a guest said: every transfer as fast as its emulator."""
    lines = ["@@ check agents ok "]
    lines += [
        f"@@ sample goodput_mbit/emulator={emulator}/control={control} {mbit + 0.1 * number}"
        for control in witness.CONTROLS
        for emulator, mbit in (("linkem", linkem), ("netem", netem))
        for number in range(rounds)
    ]
    return understand("6.12", "\n".join([*lines, "@@ end"]))


def test_the_grid_has_loss_delay_jitter_and_rate_and_no_cell_twice() -> None:
    cells = witness.grid()
    assert len({cell.name for cell in cells}) == len(cells)
    for what in ("rate_mbit", "loss", "delay_ms", "jitter_ms"):
        assert len({getattr(cell, what) for cell in cells}) > 1, what
    # Jitter that could reorder packets would be more than the delay.
    assert all(cell.jitter_ms < cell.delay_ms for cell in cells)


def test_the_queue_holds_a_round_trip_and_32_packets_at_least() -> None:
    assert witness.Cell(12, 0, 40, 0).queue_packets == 80
    assert witness.Cell(4, 0, 10, 0).queue_packets == 32


def test_cubic_transfers_until_its_losses_are_many() -> None:
    assert witness.Cell(12, 0, 40, 0).cubic_seconds == witness.SECONDS
    # 1 % of at most 1000 packets a second, and of what a round trip of 20 ms lets pass: 612.
    assert witness.Cell(12, 0.01, 10, 0).cubic_seconds == round(250 / 0.01 / 612.37)
    assert witness.Cell(12, 0.01, 40, 0).cubic_seconds == witness.CUBIC_LIMIT_S


def test_a_difference_is_that_of_medians() -> None:
    samples = witness.samples_of(outcome(linkem=2.8, netem=3.0))
    assert witness.difference(samples["cubic"]) == pytest.approx(1 - 3.0 / 3.2)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (outcome(rounds=ROUNDS - 1), f"cubic over linkem: not {ROUNDS} transfers"),
        (outcome(netem=0.0), "over netem: not"),
        (understand("6.12", "@@ check linkem failed no TUN\n"), "linkem no TUN"),
    ],
)
def test_a_guest_that_did_not_measure_all_gives_no_cell(said: Outcome, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        witness.samples_of(said)


def test_the_figures_of_the_grid_need_the_whole_grid() -> None:
    cells = {str(number): witness.samples_of(outcome(3.0 + 0.01 * number)) for number in range(10)}
    names = {figure["name"]: figure["value"] for figure in witness.figures_of(cells, True)}
    assert names["linkem_netem_difference_p90"] > names["linkem_netem_difference"] > 0
    assert names["goodput_mbit/emulator=netem/control=bbr/4"] == 3.2
    part = {figure["name"] for figure in witness.figures_of(cells, False)}
    assert part == set(names) - {"linkem_netem_difference", "linkem_netem_difference_p90"}
    assert all(witness.is_own(name) for name in names)


def test_the_ninetieth_of_a_hundred() -> None:
    assert witness.percentile([float(number) for number in range(100, 0, -1)], 0.9) == 90
    assert witness.percentile([5.0], 0.9) == 5


def test_cells_of_other_programs_are_measured_again(tmp_path: Path) -> None:
    state = tmp_path / "witness.json"
    assert witness.remembered(state, "a") == {}
    state.write_text(json.dumps({"of": "a", "cells": {"one": 1}}))
    assert witness.remembered(state, "a") == {"one": 1}
    assert witness.remembered(state, "b") == {}


def test_a_report_keeps_the_figures_of_other_commands(tmp_path: Path) -> None:
    report = tmp_path / "kernels" / "report.json"
    kernel = {"name": "works/kernel=6.1", "value": 1}
    replace_figures(report, "make kernel-test", lambda name: "/kernel=" in name, {"figures": [kernel], "reasons": {}})
    for value in (1, 2):
        own = {"name": "linkem_netem_difference", "value": value}
        replace_figures(report, witness.COMMAND, witness.is_own, {"figures": [own]})
    told = json.loads(report.read_text())
    assert told["command"] == "make kernel-test; make netem-witness"
    assert told["figures"] == [kernel, {"name": "linkem_netem_difference", "value": 2}]
    assert told["reasons"] == {}
