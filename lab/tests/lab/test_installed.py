"""Experiments on the platform as it is installed: which can, what their results say, when a node takes part."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from chart_lab import cli, experiments
from chart_lab.experiments import framework, installed
from chart_lab.experiments.framework import Outcome

READY: dict[str, Any] = {
    "enforcement": "enforce",
    "signalling": {"running": True, "element": 2},
    "authority": {"next_hops": 3, "authorisations": 2},
}


def run(*words: str) -> str:
    result = CliRunner().invoke(cli.app, ["run", *words])
    assert result.exit_code == 1
    return " ".join(result.output.split())


def test_an_experiment_that_cannot_refuses_and_names_those_that_can(tmp_path: Path) -> None:
    told = run("signal-cells", "--installed", "--out", str(tmp_path))
    assert "signal-cells does not run on the platform as it is installed" in told
    assert "throughput-grid" in told


def test_rates_are_in_band_already(tmp_path: Path) -> None:
    assert "--in-band" in run("throughput-grid", "--installed", "--in-band", "--out", str(tmp_path))


def test_the_headline_experiments_can() -> None:
    able = {name for name, one in experiments.REGISTRY.items() if one.installed}
    assert able >= {"throughput-grid", "two-path-grid", "fairness", "impairments"}


def test_the_result_says_so(tmp_path: Path) -> None:
    framework.write(Outcome(), "chart lab run x --installed", tmp_path, installed=True)
    assert json.loads((tmp_path / "result.json").read_text())["details"] == {"installed": True}


@pytest.mark.parametrize(
    "missing",
    [
        {},
        {**READY, "enforcement": "observe"},
        {**READY, "signalling": {"running": True, "element": 0}},
        {**READY, "authority": {"next_hops": 0, "authorisations": 2}},
    ],
)
def test_a_node_takes_part_when_it_enforces_and_knows_its_neighbours(missing: dict[str, Any]) -> None:
    assert installed.signals(READY)
    assert not installed.signals(missing)


def test_the_processor_time_of_a_tree_is_more_than_none() -> None:
    own_s = sum(os.times()[:4])
    assert installed.tree_cpu_s(os.getpid()) >= own_s - 0.1
    assert installed.tree_cpu_s(2**22 + 1) == 0
