"""What every experiment shares: its settings, its result, the order of runs, and the files it leaves."""

from __future__ import annotations

import json
import secrets
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chart_lab.network import Lab
from chart_lab.topology import Topology

Report = Callable[[str, float], None]


@dataclass(frozen=True)
class Settings:
    """What `chart lab run` was asked for; None is the experiment's own choice."""

    out: Path
    rate_mbit: tuple[float, ...] | None = None
    loss: tuple[float, ...] | None = None
    delay_ms: tuple[float, ...] | None = None
    duration_s: float | None = None
    congestion: tuple[str, ...] | None = None
    direction: tuple[str, ...] | None = None
    seed: int = 1
    repeat: int | None = None
    judge_noise: bool = True
    # Go on with what an earlier run in the same folder finished, where the experiment can.
    resume: bool = False
    # itm-*: begin no run that would not be over within so many seconds of the start.
    slice_s: float | None = None
    # throughput-grid: chart's rate is agreed in band instead of stated by a file.
    in_band: bool = False
    # On the platform as it is installed instead of agents with rates from files (chart_lab.experiments.installed).
    installed: bool = False
    # inference-accuracy: matrices to hide, and the shares of their pairs that are measured.
    rtt_file: Path | None = None
    throughput_file: Path | None = None
    fraction: float | None = None
    throughput_fraction: float | None = None
    # itm-step: the tunnel's target before and after (packets/s), and cross connections likewise.
    target_pps: tuple[float, ...] | None = None
    cross: tuple[int, int] | None = None
    # sensing-accuracy: kinds of other traffic, the share of the link it takes, and which sensors.
    cross_kinds: tuple[str, ...] | None = None
    load: tuple[float, ...] | None = None
    sensor: tuple[str, ...] | None = None
    # er-overlay: what the ends of the virtual link are, "hosts" or "routers".
    elements: str | None = None
    # middleboxes: how many through all of them.
    connections: int | None = None
    # signal-cells: how much passes through each cell, and which cells.
    octets: int | None = None
    cells: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Figure:
    """One number of a result; peer is the best other's in the same minutes, goal a comparison such as `>= 0.92`."""

    name: str
    value: float | None
    unit: str
    goal: str | None = None
    peer: float | None = None

    def met(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.goal is None:
            return None
        if self.value is None:
            return False
        comparison, limit = self.goal.split()
        return self.value >= float(limit) if comparison == ">=" else self.value <= float(limit)


@dataclass
class Outcome:
    """What an experiment found: figures for result.json, a table, details for whoever wants to look closer."""

    figures: list[Figure] = field(default_factory=list)
    table: str = ""
    details: Any = None
    plot: Callable[[Path], None] | None = None


@dataclass(frozen=True)
class Experiment:
    """An entry of the registry. ``installed``: it can run on the platform as it is installed (`--installed`)."""

    name: str
    description: str
    run: Callable[[Settings, Report], Outcome]
    installed: bool = False


def interleaved(choices: Sequence[str], repeat: int) -> Iterator[tuple[int, str]]:
    """Order of runs: A B, then B A, and so on, so that slow changes of the machine hit all alike."""
    for number in range(repeat):
        for choice in choices if number % 2 == 0 else reversed(choices):
            yield number, choice


def dimensions(**values: float | str) -> str:
    """What a figure of one cell appends to its name: `/cc=chart/rate_mbit=60/loss=0.03/delay_ms=35`."""
    return "".join(f"/{key}={value if isinstance(value, str) else format(value, 'g')}" for key, value in values.items())


def quantile(values: Sequence[float], share: float) -> float:
    """Quantile by nearest rank; the values need not be sorted. Raises ValueError when there are none."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values")
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def geometric_mean(values: Sequence[float]) -> float | None:
    """Geometric mean of positive values; None when there are none."""
    positive = [value for value in values if value > 0]
    return statistics.geometric_mean(positive) if positive else None


@contextmanager
def temporary_lab(topology: Topology, seed: int) -> Iterator[Lab]:
    """A lab of the experiment's own, with a state directory of its own, gone afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="chart-lab-"))
    try:
        with Lab(topology, f"x{secrets.token_hex(3)}", state_dir=directory, seed=seed) as lab:
            yield lab
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write(outcome: Outcome, command: str, out: Path, *, installed: bool = False) -> None:
    """Writes result.json, details.json, table.md and plot.png; ``installed``: what was measured was the platform as it
    is installed, and the result says so.
    """
    out.mkdir(parents=True, exist_ok=True)
    figures = [
        {"name": f.name, "value": f.value, "unit": f.unit, "goal": f.goal, "peer": f.peer} for f in outcome.figures
    ]
    result: dict[str, Any] = {"command": command, "figures": figures}
    if installed:
        result["details"] = {"installed": True}
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "details.json").write_text(json.dumps(outcome.details) + "\n")
    (out / "table.md").write_text(outcome.table)
    if outcome.plot is not None:
        outcome.plot(out / "plot.png")
