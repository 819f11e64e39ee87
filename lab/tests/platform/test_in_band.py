"""The figure of flows that ask inside their own packets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from chart_lab import demo_in_band as in_band
from chart_lab import topology
from chart_lab.network import Lab


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float | None]], None]:
    """What the flows of the figure learn, one after the other."""

    def tell(answers: list[float | None]) -> None:
        left = list(answers)
        monkeypatch.setattr(in_band, "first_rate_s", lambda *_: left.pop(0))

    return tell


def test_the_figure_is_the_median_in_round_trips(tmp_path: Path, told: Callable[[list[float | None]], None]) -> None:
    lab = Lab(topology.load("demo"), state_dir=tmp_path)
    told([0.11, 0.11, 0.12, 0.12, 0.3, None, None])
    found = in_band.figure(lab, "alpha", "delta", 0.1)
    assert found.value == pytest.approx(1.2)
    assert found.met()
    told([0.11, 0.11, 0.12, None, None, None, None])
    assert in_band.figure(lab, "alpha", "delta", 0.1).met() is False
