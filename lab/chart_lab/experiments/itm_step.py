"""`itm-step`: how an elastic tunnel under PI by design takes one step of cross traffic or of its target.

Path, target and cross traffic are the caller's. The measurement period follows from them, as Guirguis et al., section
2.2, ask for it: a few congestion epochs of the connections, within what a control loop can wait for.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from chart.tunnels.controller import CONNECTIONS_MAX
from chart_lab.errors import LabError
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, dimensions
from chart_lab.experiments.itm_figures import median_settling, plot, responses, step_figures, table
from chart_lab.experiments.itm_kept import KeptRuns
from chart_lab.experiments.itm_run import Bottleneck, Run, Scenario

RATE_MBIT = (16.0,)
DELAY_MS = (2.0,)
TARGET_SHARE = 0.45
CROSS = (10, 30)
REPEAT = 5
CONTROLLER = "pi"
# Two access links each way, 1 ms each; and the queue that RED keeps on average.
ACCESS_RTT_S = 0.004
QUEUE_PACKETS = 85.0
EPOCHS = 2.0
PERIOD_BOUNDS_S = (2.0, 8.0)
WARM_UP_PERIODS = 10
BEFORE_PERIODS = 10
AFTER_PERIODS = 40


@dataclass(frozen=True)
class Point:
    """What the caller chooses: a bottleneck, the target before and after (packets/s), cross connections likewise."""

    rate_mbit: float
    delay_ms: float
    targets_pps: tuple[float, float]
    cross: tuple[int, int]

    @property
    def capacity_pps(self) -> float:
        """Packets of 1000 bytes per second."""
        return Bottleneck(self.rate_mbit, self.delay_ms, 1.0).capacity_pps

    def connections(self, after: bool) -> float:
        """m that gives the target where all connections get the same share (equation 3)."""
        target, cross = self.targets_pps[after], self.cross[after]
        return target * cross / (self.capacity_pps - target)

    def check(self) -> None:
        """Refuse what no number of connections would reach.

        Raises LabError that says what would do.
        """
        for after, target in enumerate(self.targets_pps):
            when = "after" if after else "before"
            if not 0 < target < 0.95 * self.capacity_pps:
                raise LabError(
                    f"--target-pps {target:g}: {self.rate_mbit:g} Mb/s carry {self.capacity_pps:.0f} packets/s of 1000"
                    f" bytes; the target must be above 0 and below {0.95 * self.capacity_pps:.0f}"
                )
            connections = self.connections(bool(after))
            if connections > CONNECTIONS_MAX:
                raise LabError(
                    f"--target-pps {target:g} {when} the step would take {connections:.0f} connections beside"
                    f" {self.cross[after]} others; a tunnel has at most {CONNECTIONS_MAX}: lower the target"
                )
        least = self.capacity_pps / (1 + self.cross[1])
        if self.cross[1] < 1 or self.targets_pps[1] < least:
            raise LabError(
                f"one connection beside {self.cross[1]} others gets {least:.0f} packets/s already: --target-pps must be"
                f" at least that, or more cross connections after the step (--cross BEFORE,AFTER)"
            )

    def period_s(self) -> float:
        """The measurement period: EPOCHS congestion epochs, in tenths of a second, within bounds."""
        rtt_s = 2 * self.delay_ms / 1000 + ACCESS_RTT_S + QUEUE_PACKETS / self.capacity_pps
        others = min(self.connections(bool(after)) + self.cross[after] for after in (0, 1))
        window = rtt_s * self.capacity_pps / max(others, 1.0)
        epochs_s = EPOCHS * rtt_s * window / 2
        return min(max(math.ceil(epochs_s * 10) / 10, PERIOD_BOUNDS_S[0]), PERIOD_BOUNDS_S[1])

    def scenario(self) -> Scenario:
        """The run: warm-up, steady state, the step, and what follows."""
        period_s = self.period_s()
        step_s = (WARM_UP_PERIODS + BEFORE_PERIODS) * period_s
        return Scenario(
            "step",
            ((0.0, self.targets_pps[0]), (step_s, self.targets_pps[1])),
            ((0.0, float(self.cross[0])), (step_s, float(self.cross[1]))),
            Bottleneck(self.rate_mbit, self.delay_ms, period_s),
            connections=min(max(round(self.connections(after=False)), 1), CONNECTIONS_MAX),
            duration_s=step_s + AFTER_PERIODS * period_s,
            warm_up_s=WARM_UP_PERIODS * period_s,
            aligned=True,
        )


def points(settings: Settings) -> list[Point]:
    """Every combination that was asked for, checked.

    Raises LabError for what cannot be reached.
    """
    cross = settings.cross or CROSS
    found = []
    for rate_mbit, delay_ms in itertools.product(settings.rate_mbit or RATE_MBIT, settings.delay_ms or DELAY_MS):
        default = round(TARGET_SHARE * Bottleneck(rate_mbit, delay_ms, 1.0).capacity_pps)
        stated = settings.target_pps or (float(default),)
        point = Point(rate_mbit, delay_ms, (stated[0], stated[-1]), cross)
        point.check()
        found.append(point)
    return found


def figures(point: Point, runs: Sequence[Run], cell: str) -> list[Figure]:
    """Medians over the seeds of the step; goals of the design."""
    after = [responses(run)[-1][1] for run in runs]
    return [
        Figure(f"settling_periods{cell}", median_settling(after), "periods", "<= 8"),
        Figure(f"overshoot{cell}", statistics.median(one.overshoot for one in after), "ratio", "<= 0.1"),
        Figure(f"steady_error{cell}", statistics.median(one.steady_error for one in after), "ratio", "<= 0.02"),
        Figure(f"connections{cell}", statistics.median(one.connections_final for one in after), "connections"),
        Figure(f"connections_of_equal_shares{cell}", point.connections(after=True), "connections"),
        Figure(f"connection_changes{cell}", statistics.median(one.changes for one in after), "connections"),
        Figure(f"period_s{cell}", point.period_s(), "s"),
    ]


def perform(settings: Settings, report: Report) -> Outcome:
    """Every point with every seed."""
    asked = points(settings)
    kept = KeptRuns(settings)
    repeat = settings.repeat or REPEAT
    runs: list[Run] = []
    found: list[Figure] = []
    for point in asked:
        own = []
        for number in range(repeat):
            report(
                f"{point.rate_mbit:g} Mb/s, {point.delay_ms:g} ms, run {number + 1}", len(runs) / repeat / len(asked)
            )
            run = kept.run(point.scenario(), CONTROLLER, settings.seed * 1000 + number)
            own.append(run)
            runs.append(run)
        cell = dimensions(rate_mbit=point.rate_mbit, delay_ms=point.delay_ms) if len(asked) > 1 else ""
        found += figures(point, own, cell)
    if len(asked) == 1:
        found += step_figures(runs)
    return Outcome(
        found,
        table("One step under PI by design", runs),
        [asdict(run) for run in runs],
        lambda path: plot(runs, path),
    )


EXPERIMENT = Experiment(
    "itm-step",
    "Elastic tunnel, PI by design: one step of cross traffic (--cross BEFORE,AFTER) or target (--target-pps).",
    perform,
)
