"""The limit that tests wait to: time that the hypervisor took does not count, to a bound."""

from __future__ import annotations

import os

import pytest

from chart_lab.steal import Steal
from support.waiting import STRETCHED_MOST, Limit

CORES = os.cpu_count() or 1


@pytest.mark.parametrize(
    ("elapsed_s", "stolen_share", "over"),
    [(9, 0, False), (11, 0, True), (11, 0.5, False), (21, 0.5, True), (39, 0.99, False), (41, 0.99, True)],
)
def test_only_time_that_the_machine_was_there_counts(
    monkeypatch: pytest.MonkeyPatch, elapsed_s: float, stolen_share: float, over: bool
) -> None:
    moments = [Steal(100.0, 5.0), Steal(100.0 + elapsed_s, 5.0 + stolen_share * CORES * elapsed_s)]
    monkeypatch.setattr(Steal, "now", classmethod(lambda _: moments.pop(0)))
    monkeypatch.setattr("support.waiting.time.monotonic", lambda: 100.0 + elapsed_s)
    assert STRETCHED_MOST == 4.0
    assert Limit(10).over is over
