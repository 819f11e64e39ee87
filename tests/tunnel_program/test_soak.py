"""A soak: m changes every second under users' packets, then ends die and a lease runs out; short, and for an hour."""

from __future__ import annotations

from pathlib import Path

import pytest

from chart_lab.experiments import tunnel_soak
from chart_lab.experiments.framework import Settings

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.mark.parametrize("duration_s", [12.0, 3600.0])
def test_nothing_is_lost_or_left_over(tmp_path: Path, duration_s: float) -> None:
    seen = tunnel_soak.soak(Settings(out=tmp_path, duration_s=duration_s), lambda *_: None)
    figures = {figure.name: figure for figure in tunnel_soak.figures(seen)}
    assert seen.sent > duration_s * 2 * tunnel_soak.PACKETS_PER_S * 0.8
    assert figures["connection_changes"].value
    missed = {name: figure.value for name, figure in figures.items() if figure.met() is False}
    assert not missed
    assert seen.recovery_s["destination"] < 10
    assert seen.recovery_s["lease_to_one"] < 5 * tunnel_soak.PERIOD_MS / 1000
