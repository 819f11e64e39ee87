"""Chimera in simulated time: every message arrives before some die and after the repair, and a seed gives one run."""

from __future__ import annotations

import subprocess

import pytest

from chart_lab.experiments import overlay_scale
from chart_lab.programs import program


def test_a_tenth_dies_and_every_message_arrives_again() -> None:
    found = overlay_scale.simulate(96, 1)
    assert found.died == 10
    assert found.undelivered_before == 0
    assert found.tried_before == 96 * 95
    assert found.undelivered == 0
    assert found.tried == 86 * 85
    # Some were on their way by those that died.
    assert 0 < found.lost_in_first_second < 0.1
    assert 0.25 < found.repair_s < 1
    assert 1 < found.hops_mean < 2
    assert overlay_scale.simulate(96, 1) == found
    assert overlay_scale.simulate(96, 2) != found


def test_messages_that_get_lost_hinder_nobody_for_long() -> None:
    found = overlay_scale.simulate(64, 3, loss=0.1, dying=0.3)
    assert found.undelivered_before == 0
    assert found.undelivered == 0
    assert found.undelivered_after_1s == 0


@pytest.mark.parametrize("words", [["--nodes", "1"], ["--loss", "x"], ["--die", "1"], ["--size", "3"]])
def test_what_cannot_be_meant_is_refused(words: list[str]) -> None:
    answer = subprocess.run([str(program("dataplane/chimera-simulate")), *words], capture_output=True, text=True)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "must be a number from" in answer.stderr or "unrecognized option" in answer.stderr
