"""`itm-1` to `itm-7`: the experiments of Guirguis et al., section 4.1, over real kernel TCP in the lab.

Each experiment is a plan: scenarios, controllers, figures beside those of the steps, and what the paper reports.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from chart.tunnels import metrics
from chart.tunnels.controller import Gains, Measurement, ProportionalIntegral, spectral_radius
from chart_lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, dimensions
from chart_lab.experiments.itm_figures import plot, step_figures, table
from chart_lab.experiments.itm_kept import KeptRuns
from chart_lab.experiments.itm_run import (
    NOMINAL_S,
    WARM_UP_S,
    Bottleneck,
    Run,
    Scenario,
    make_controller,
    on_asked_path,
)

SHORT_PATH = Bottleneck(16, 2, 2.0)
# The paper's 100 ms are the round trip; the access links have 4 ms of it.
LONG_PATH = Bottleneck(50, 48, 1.0)


def share_kept(runs: Sequence[Run]) -> list[Figure]:
    """Experiment 1: the tunnel's rate after the cross step over the rate before it."""
    ratios = []
    for run in runs:
        before, _ = run.between(WARM_UP_S, 50)
        after, _ = run.between(60, NOMINAL_S)
        ratios.append(statistics.fmean(after) / statistics.fmean(before))
    # 10 of 20 connections before, 10 of 40 after.
    return [Figure("share_after_over_before", statistics.median(ratios), "ratio", "<= 0.65", 0.5)]


def pi_over_naive(runs: Sequence[Run]) -> list[Figure]:
    """Experiment 4: peak and changes of PI over naive while the wave lasts. The paper's peaks: 20 and 40."""

    def of(name: str, value: Callable[[list[int]], float]) -> float:
        return statistics.median(value(run.between(50, NOMINAL_S)[1]) for run in runs if run.controller == name)

    peaks = {name: of(name, max) for name in ("pi", "naive")}
    changed = {name: of(name, metrics.changes) for name in ("pi", "naive")}
    return [
        Figure("pi_over_naive_peak", peaks["pi"] / peaks["naive"], "ratio", "<= 0.6"),
        Figure("pi_over_naive_changes", changed["pi"] / max(changed["naive"], 1), "ratio", "<= 0.5"),
        Figure("pi_peak_connections", peaks["pi"], "connections"),
        Figure("naive_peak_connections", peaks["naive"], "connections"),
        Figure("pi_connection_changes", changed["pi"], "connections"),
        Figure("naive_connection_changes", changed["naive"], "connections"),
    ]


def paper_gains(runs: Sequence[Run]) -> list[Figure]:
    """Experiment 5: the largest pole of the sampled model for the paper's gains, at the last share before 50 s."""
    figures = []
    for run in runs:
        known = [i for i, at in enumerate(run.at_s) if at <= 50 * run.scale and i < len(run.decisions)]
        if not known:
            continue
        gains = run.decisions[known[-1]]["gains"]
        controller = make_controller(run.controller, run.scenario.path)
        assert isinstance(controller, ProportionalIntegral)
        plant = controller.plant(
            run.targets_pps[known[-1]], Measurement(run.rates_pps[known[-1]], run.connections[known[-1]])
        )
        radius = spectral_radius(Gains(**gains), plant)
        cell = dimensions(part=run.scenario.part, controller=run.controller.replace("=", ":"), seed=run.seed)
        figures.append(Figure(f"model_pole{cell}", radius, "ratio"))
    return figures


@dataclass(frozen=True)
class Plan:
    """An experiment: which scenarios under which controllers, the figures beside those of the steps, the paper's."""

    title: str
    scenarios: tuple[Scenario, ...]
    controllers: tuple[str, ...]
    figures: Callable[[Sequence[Run]], list[Figure]] | None = None
    paper: tuple[str, ...] = ()


def perform(plan: Plan, settings: Settings, report: Report) -> Outcome:
    """Runs a plan: every scenario under its controllers, there and back when repeated."""
    runs: list[Run] = []
    kept = KeptRuns(settings)
    repeat = settings.repeat or 1
    cells = [(on_asked_path(settings, scenario), name) for scenario in plan.scenarios for name in plan.controllers]
    for number in range(repeat):
        for scenario, name in cells if number % 2 == 0 else reversed(cells):
            report(f"{scenario.part}, {name}", len(runs) / (repeat * len(cells)))
            runs.append(kept.run(scenario, name, settings.seed * 1000 + number))
    extra = plan.figures(runs) if plan.figures else []
    return Outcome(
        extra + step_figures(runs),
        table(plan.title, runs, plan.paper),
        [asdict(run) for run in runs],
        lambda path: plot(runs, path),
    )


CONSTANT = ((0.0, 900.0),)
TEN_THEN_THIRTY = ((0.0, 10.0), (50.0, 30.0))
TARGET_STEP = Scenario("target", ((0, 900), (50, 1200)), ((0, 10),), SHORT_PATH)
CROSS_STEP = Scenario("cross", CONSTANT, TEN_THEN_THIRTY, SHORT_PATH)
DYNAMIC = ((0.0, 10.0), (30.0, 30.0), (50.0, 50.0), (70.0, 20.0))

PLANS = {
    "itm-1": Plan(
        "No control (figure 7 a)",
        (CROSS_STEP,),
        ("none",),
        share_kept,
        ("Beside 10 and then 30 others the rate of 10 connections falls from half of the link to a quarter.",),
    ),
    "itm-2": Plan(
        "P, Kp 0.01 (figure 7 b)",
        (CROSS_STEP,),
        ("p",),
        paper=("The target is missed before and after the step: an error stays in steady state.",),
    ),
    "itm-3": Plan(
        "Naive (figure 8)",
        (TARGET_STEP, CROSS_STEP),
        ("naive",),
        paper=("The target is reached within a few periods of either step; the paper prints no numbers.",),
    ),
    "itm-4": Plan(
        "Square-wave cross traffic (figure 9)",
        (Scenario("wave", CONSTANT, TEN_THEN_THIRTY, SHORT_PATH, wave=True),),
        ("naive", "pi"),
        pi_over_naive,
        ("At most 40 connections under the naive controller, at most 20 under PI; PI's rate oscillates less.",),
    ),
    "itm-5": Plan(
        "PI with gains of the paper (figure 10)",
        (TARGET_STEP, CROSS_STEP),
        ("pi-ki=0.01", "pi-ki=0.08"),
        paper_gains,
        (
            "Ki 0.01 is over-damped: no overshoot, slow.",
            "Ki 0.08 is in a limit cycle before 50 s; afterwards, with a smaller share per connection, it calms down.",
        ),
    ),
    "itm-6": Plan(
        "PI over 50 Mb/s and 100 ms (figure 11 a, b)",
        (
            Scenario("target", ((0, 1875), (30, 1250), (60, 625)), ((0, 10),), LONG_PATH),
            Scenario("cross", ((0, 1875),), ((0, 10), (30, 30), (60, 50)), LONG_PATH),
        ),
        ("pi",),
        paper=("PI follows each step of the target and holds it against each step of cross traffic.",),
    ),
    "itm-7": Plan(
        "A changing environment (figure 11 c to f)",
        (Scenario("dynamic", ((0, 1875),), DYNAMIC, LONG_PATH),),
        ("none", "naive", "pi"),
        paper=(
            "Without control the rate follows the cross traffic; naive overshoots high, then settles.",
            "PI stays around the target with fewer connections opened and closed.",
        ),
    ),
}


def entry(name: str, plan: Plan) -> Experiment:
    """A plan as an entry of the registry."""
    description = f"Elastic tunnel, {plan.title[0].lower()}{plan.title[1:]}: Guirguis et al., experiment {name[-1]}."
    return Experiment(name, description, lambda settings, report: perform(plan, settings, report))


EXPERIMENTS = tuple(entry(name, plan) for name, plan in PLANS.items())
