"""Costs that probes are planned with are those that the programs declare."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from chart.common import probe_costs
from chart.common.places import repository_root

SENSORS = Path(os.environ.get("CHART_BUILD_DIR") or repository_root() / "build") / "sensors"


@pytest.mark.parametrize(
    ("sensor", "parameters"),
    [
        ("ping", {}),
        ("ping", {"count": "3", "packet_bytes": "64"}),
        ("ping", {"protocol": "udp"}),
        ("traceroute", {}),
        ("traceroute", {"max_hops": "8", "queries": "1"}),
        ("tulip", {}),
        ("tulip", {"rounds": "4", "max_hops": "6", "packet_bytes": "300"}),
        ("pathchirp", {}),
        ("pathchirp", {"limit_bytes": "200000"}),
        ("pathrate", {}),
        ("spruce", {"capacity_bps": "1000000000"}),
        ("spruce", {"capacity_bps": "10000000", "limit_bytes": "50000"}),
    ],
)
def test_a_run_costs_what_its_program_declares(sensor: str, parameters: dict[str, str]) -> None:
    options = [word for name, value in parameters.items() for word in (f"--{name.replace('_', '-')}", value)]
    command = [str(SENSORS / sensor), "--declare", "--json", "--destination", "10.0.0.1", *options]
    declared = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout)
    assert probe_costs.cost_of(sensor, parameters).probe_bytes == declared["probe_bytes"]


def test_trains_are_cut_to_half_of_a_minutes_budget_and_what_is_stated_stays() -> None:
    fast = probe_costs.fitted("pathchirp", {}, 10**9, 75_000_000)
    assert fast == {}
    slow = probe_costs.fitted("pathchirp", {}, 10**6, 75_000)
    assert slow == {"limit_bytes": "37500", "low_bps": "50000", "high_bps": "2000000"}
    assert probe_costs.fitted("pathchirp", {"limit_bytes": "9"}, 10**6, 75_000) == {"limit_bytes": "9"}
    assert probe_costs.fitted("ping", {}, 10**6, 75_000) == {}
    assert probe_costs.fitted("spruce", {"packet_bytes": "900"}, 10**6, 75_000)["packet_bytes"] == "900"


@pytest.mark.parametrize("sensor", probe_costs.TRAINS)
@pytest.mark.parametrize("capacity_bps", [500_000, 1_000_000, 10_000_000])
def test_programs_take_the_fitted_parameters(sensor: str, capacity_bps: int) -> None:
    stated = {"capacity_bps": str(capacity_bps)} if sensor == "spruce" else {}
    made = probe_costs.fitted(sensor, stated, capacity_bps, capacity_bps // 800 * 60)
    options = [word for name, value in made.items() for word in (f"--{name.replace('_', '-')}", value)]
    command = [str(SENSORS / sensor), "--declare", "--json", "--destination", "10.0.0.1", *options]
    declared = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout)
    assert declared["probe_bytes"] <= max(30_000, capacity_bps // 800 * 30)


def test_what_is_no_sensor_between_nodes_has_no_cost() -> None:
    with pytest.raises(ValueError, match="'snmp' is not one of ping"):
        probe_costs.cost_of("snmp", {})
