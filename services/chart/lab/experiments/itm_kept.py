"""Finished runs of an elastic-tunnel experiment in a file, so that one that was broken off goes on with the next run.

With `--resume` runs under the same conditions (scenario, controller, seed, duration, congestion control) are taken from
there; with `--slice-s` no run begins that would not be over by then.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from chart.lab.errors import LabError, UnfinishedError
from chart.lab.experiments import noise
from chart.lab.experiments.framework import Settings
from chart.lab.experiments.itm_run import Run, Scenario, run_once

KEPT_FILE = "runs.jsonl"
ATTEMPTS = 2
# A lab comes up and goes, and the plots are drawn.
AROUND_A_RUN_S = 8.0


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


def earlier(path: Path) -> dict[str, dict[str, Any]]:
    """What is kept in a file, by conditions; nothing when there is no file.

    Raises LabError when the file is not ours.
    """
    kept = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines() if path.exists() else (), start=1):
        try:
            record = json.loads(line)
            kept[record["conditions"]] = record["run"]
        except (ValueError, TypeError, KeyError) as error:
            msg = f"{path}:{number} is no run of an experiment ({error}); without --resume it is replaced"
            raise LabError(msg) from error
    return kept


class KeptRuns:
    """The runs of one experiment in its folder."""

    def __init__(self, settings: Settings) -> None:
        """Begins anew unless it shall go on.

        Raises LabError when the file is not ours.
        """
        self.settings = settings
        self.path = settings.out / KEPT_FILE
        self.began_s = time.monotonic()
        self.made = 0
        self.kept: dict[str, dict[str, Any]] = {}
        if settings.resume:
            self.kept = earlier(self.path)
        else:
            self.path.unlink(missing_ok=True)

    def run(self, scenario: Scenario, name: str, seed: int) -> Run:
        """A run that was kept, or a new one, which is on disk when this returns.

        Raises UnfinishedError when the slice has no time for it, NoisyMachineError when the machine is too busy.
        """
        conditions = self.conditions(scenario, name, seed)
        if conditions in self.kept:
            return read(scenario, self.kept[conditions])
        duration_s = self.settings.duration_s or scenario.duration_s
        spent_s = time.monotonic() - self.began_s
        slice_s = self.settings.slice_s
        if slice_s is not None and self.made and spent_s + duration_s + AROUND_A_RUN_S > slice_s:
            raise UnfinishedError(
                f"{len(self.kept)} runs are in {self.path}; another of {duration_s:g} s does not fit into --slice-s"
                f" {slice_s:g}: go on with the same command and --resume"
            )
        made = quiet_run(self.settings, scenario, name, seed)
        self.made += 1
        self.keep(conditions, made)
        return made

    def keep(self, conditions: str, run: Run) -> None:
        """Keep a finished run."""
        record = asdict(run)
        del record["scenario"]
        self.kept[conditions] = record
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"conditions": conditions, "run": record}) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def conditions(self, scenario: Scenario, name: str, seed: int) -> str:
        """What makes two runs the same measurement."""
        congestion = (self.settings.congestion or ("reno",))[0]
        return json.dumps([asdict(scenario), name, seed, self.settings.duration_s, congestion])


def read(scenario: Scenario, record: dict[str, Any]) -> Run:
    """A run from what was kept of it."""
    disturbed = record["noise"]
    return Run(**{**record, "scenario": scenario, "noise": noise.Noise(**disturbed) if disturbed else None})
