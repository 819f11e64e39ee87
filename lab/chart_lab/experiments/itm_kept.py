"""Finished runs of the elastic-tunnel experiments (`kept.py`); runs are the same measurement with the same scenario,
controller, seed, duration and congestion control.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from chart_lab.experiments import noise
from chart_lab.experiments.framework import Settings
from chart_lab.experiments.itm_run import Bottleneck, Run, Scenario, run_once
from chart_lab.experiments.kept import Kept

ATTEMPTS = 2


def quiet_run(settings: Settings, scenario: Scenario, name: str, seed: int) -> Run:
    """A run, again when the machine was too noisy to judge.

    Raises NoisyMachineError when it stays so.
    """
    return noise.undisturbed(
        lambda: run_once(settings, scenario, name, seed),
        lambda run: run.noise.complaint() if run.noise else None,
        f"{scenario.part}, {name}",
        attempts=ATTEMPTS,
        judge_noise=settings.judge_noise,
    )


class KeptRuns(Kept[Run]):
    """The runs of one experiment in its folder."""

    def __init__(self, settings: Settings) -> None:
        """Begins anew unless it shall go on.

        Raises LabError when the file is not ours.
        """
        congestion = (settings.congestion or ("reno",))[0]
        conditions = {"duration_s": settings.duration_s, "congestion": congestion}
        super().__init__(settings, conditions, write=asdict, read=_read)

    def run(self, scenario: Scenario, name: str, seed: int) -> Run:
        """A run that was kept, or a new one, which is on disk when this returns.

        Raises UnfinishedError when the slice has no time for it, NoisyMachineError when the machine is too busy.
        """
        takes_s = self.settings.duration_s or scenario.duration_s
        return self.measured(of(scenario, name, seed), lambda: quiet_run(self.settings, scenario, name, seed), takes_s)


def of(scenario: Scenario, name: str, seed: int) -> list[Any]:
    """What makes a run under the same conditions another measurement."""
    return [asdict(scenario), name, seed]


def _read(record: dict[str, Any]) -> Run:
    disturbed, told = record["noise"], record["scenario"]
    steps = {name: tuple((at, value) for at, value in told[name]) for name in ("targets", "cross")}
    scenario = Scenario(**{**told, **steps, "path": Bottleneck(**told["path"])})
    return Run(**{**record, "scenario": scenario, "noise": noise.Noise(**disturbed) if disturbed else None})
