"""`itm-1` to `itm-7`: an elastic tunnel over real kernel TCP beside cross traffic on a RED bottleneck.

Guirguis et al., Providing Soft Bandwidth Guarantees Using Elastic TCP-based Tunnels (BUCS-TR-2003-028), section 4.1,
experiments 1 to 7. Rates are in packets of 1000 bytes per second, as the paper has them: bytes received at the
destination divided by what a segment of the connections carries.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from chart.lab import topology
from chart.lab.errors import LabError, NoisyMachineError
from chart.lab.experiments import itm_tunnel, noise
from chart.lab.experiments.framework import Experiment, Figure, Outcome, Report, Settings, dimensions, temporary_lab
from chart.lab.experiments.itm_tunnel import Tunnel
from chart.lab.network import Lab
from chart.lab.topology import Topology
from chart.tunnels import metrics
from chart.tunnels.controller import (
    Controller,
    Gains,
    Measurement,
    Naive,
    Proportional,
    ProportionalIntegral,
    spectral_radius,
)

BOTTLENECK = "west-east"
PACKET_BYTES = 1000
USER_BYTES = 1200
# Users offer more than the bottleneck carries: "all connections have unlimited data".
OFFERED_SHARE = 1.3
NOMINAL_S = 100.0
WARM_UP_S = 20.0
HALF_WAVE_S = 10.0
ATTEMPTS = 2
KP_PAPER = 0.01
Steps = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Bottleneck:
    """The bottleneck of a scenario and the periods that go with it; tau_s: a new connection's time to its share."""

    rate_mbit: float
    delay_ms: float
    period_s: float
    tau_s: float

    @property
    def capacity_pps(self) -> float:
        """Packets of 1000 bytes per second."""
        return self.rate_mbit * 1e6 / 8 / PACKET_BYTES


SHORT_PATH = Bottleneck(16, 2, 2.0, 1.0)
# The paper's 100 ms are the round trip.
LONG_PATH = Bottleneck(50, 48, 1.0, 2.0)


@dataclass(frozen=True)
class Scenario:
    """One run of the paper: targets and cross connections as (seconds, value) of a run of NOMINAL_S.

    wave: from the last cross step on, the cross connections stop and start every HALF_WAVE_S.
    """

    part: str
    targets: Steps
    cross: Steps
    path: Bottleneck = SHORT_PATH
    wave: bool = False
    connections: int = 10

    def target_at(self, at_s: float) -> float:
        """B* at a time, packets per second."""
        return value_at(self.targets, at_s)

    def steps(self) -> list[float]:
        """Times of steps, warm-up first."""
        times = {at for at, _ in (*self.targets, *self.cross) if at > WARM_UP_S}
        return [WARM_UP_S, *sorted(times)]


@dataclass
class Run:
    """One run: per period its end in seconds, the rate, the connections open, and the target."""

    scenario: Scenario
    controller: str
    scale: float
    at_s: list[float] = field(default_factory=list)
    rates_pps: list[float] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)
    targets_pps: list[float] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    reordered: int = 0
    noise: noise.Noise | None = None

    def between(self, from_s: float, until_s: float) -> tuple[list[float], list[int]]:
        """Rates and connections of the periods that end within (unscaled times)."""
        chosen = [i for i, at in enumerate(self.at_s) if from_s * self.scale < at <= until_s * self.scale]
        return [self.rates_pps[i] for i in chosen], [self.connections[i] for i in chosen]


def value_at(steps: Steps, at_s: float) -> float:
    """The value of the last step that is not later."""
    return [value for start, value in steps if start <= at_s][-1]


def cross_at(scenario: Scenario, at_s: float, scale: float) -> int:
    """Cross connections at a real time; waves keep their period whatever the scale."""
    start_s = scenario.cross[-1][0] * scale
    if scenario.wave and at_s >= start_s and int((at_s - start_s) / HALF_WAVE_S) % 2 == 0:
        return 0
    return int(value_at(scenario.cross, at_s / scale))


def make_controller(name: str, path: Bottleneck) -> Controller | None:
    """A controller by name: none, naive, p, pi (by design), or pi with the paper's Kp and `pi-ki=VALUE`."""
    if name == "none":
        return None
    if name == "naive":
        return Naive()
    if name == "p":
        return Proportional(KP_PAPER)
    gains = Gains(KP_PAPER, float(name.partition("=")[2])) if "=" in name else None
    return ProportionalIntegral(path.capacity_pps, path.period_s, path.tau_s, gains=gains, window_min_segments=0)


class CrossTraffic:
    """The cross connections, half of them from a nearer, half from a farther node."""

    NODES = ("crossnear", "crossfar")

    def __init__(self, lab: Lab, congestion: str) -> None:
        self.sink = itm_tunnel.traffic(lab, "sink", "sink", "--listen", f"{lab.address('sink')}:7500")
        self.senders = [
            itm_tunnel.traffic(
                *(lab, node, "cross", "--connect", f"{lab.address('sink')}:7500"),
                *("--bind", lab.address(node), "--congestion", congestion),
            )
            for node in self.NODES
        ]
        self.count = 0

    def set(self, count: int) -> None:
        """Changes their number."""
        if count == self.count:
            return
        for sender, share in zip(self.senders, (count - count // 2, count // 2), strict=True):
            assert sender.stdin is not None
            sender.stdin.write(f"{share}\n")
            sender.stdin.flush()
        self.count = count

    def close(self) -> None:
        """Ends all."""
        for process in (*self.senders, self.sink):
            itm_tunnel.finish(process)


def lab_topology(settings: Settings, path: Bottleneck) -> Topology:
    """The itm topology with a scenario's bottleneck."""
    base = topology.load("itm")
    links = [
        link.model_copy(update={"rate_mbit": path.rate_mbit, "delay_ms": path.delay_ms})
        if link.name == BOTTLENECK
        else link
        for link in base.links
    ]
    return base.model_copy(update={"links": links})


def asked_path(settings: Settings, path: Bottleneck) -> Bottleneck:
    """The scenario's path, or what was asked for instead."""
    rate = (settings.rate_mbit or (path.rate_mbit,))[0]
    return Bottleneck(rate, (settings.delay_ms or (path.delay_ms,))[0], path.period_s, path.tau_s)


def control(run: Run, tunnel: Tunnel, cross: CrossTraffic, controller: Controller | None, duration_s: float) -> None:
    """The control loop: per report of the destination one decision, until the time is over."""
    started_s = time.monotonic()
    seen = tunnel.get()["report"]
    number = seen["number"] if seen else 0
    period_s = run.scenario.path.period_s
    while (elapsed_s := time.monotonic() - started_s) < duration_s:
        cross.set(cross_at(run.scenario, elapsed_s, run.scale))
        time.sleep(0.05)
        state = tunnel.get()
        report = state["report"]
        if report is None or report["number"] == number:
            if report is not None and report["age_us"] > 5e6 * period_s:
                raise LabError(f"the tunnel's destination reports no more: {state['last_error']}")
            continue
        number = report["number"]
        segment_bytes = state["windows"][0]["mss_bytes"] if state["windows"] else PACKET_BYTES - 52
        rate_pps = report["received_bytes"] / segment_bytes / (report["interval_us"] / 1e6)
        target_pps = run.scenario.target_at(elapsed_s / run.scale)
        wanted = state["connections"]["wanted"]
        run.at_s.append(elapsed_s)
        run.rates_pps.append(rate_pps)
        run.connections.append(wanted)
        run.targets_pps.append(target_pps)
        if controller is None:
            continue
        windows = tuple(float(window["cwnd_segments"]) for window in state["windows"])
        decision = controller.decide(target_pps, Measurement(rate_pps, wanted, windows))
        run.decisions.append(asdict(decision))
        tunnel.set(connections=decision.connections, lease_ms=round(10_000 * period_s))


def run_once(settings: Settings, scenario: Scenario, name: str, seed: int) -> Run:
    """One scenario under one controller."""
    path = asked_path(settings, scenario.path)
    scenario = Scenario(**{**{f: getattr(scenario, f) for f in scenario.__dataclass_fields__}, "path": path})
    duration_s = settings.duration_s or NOMINAL_S
    run = Run(scenario, name, duration_s / NOMINAL_S)
    congestion = (settings.congestion or ("reno",))[0]
    origin = ["--congestion", congestion, "--connections", str(scenario.connections)]
    origin += ["--period-ms", str(round(path.period_s * 1000)), "--queue-bytes", "200000"]
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(temporary_lab(lab_topology(settings, path), seed))
        tunnel = stack.enter_context(Tunnel(lab, "origin", "destination", origin_options=origin))
        cross = CrossTraffic(lab, congestion)
        stack.callback(cross.close)
        user = f"{itm_tunnel.USER_ADDRESS}:7600"
        receiver = itm_tunnel.traffic(lab, "destination", "count", "--listen", user)
        offered = round(OFFERED_SHARE * path.rate_mbit * 1e6 / 8 / USER_BYTES)
        sender = itm_tunnel.traffic(
            *(lab, "origin", "flood", "--connect", user, "--bytes", str(USER_BYTES), "--rate-pps", str(offered))
        )
        stack.callback(itm_tunnel.finish, receiver)
        stack.callback(itm_tunnel.finish, sender)
        lab.reset_ground_truth(BOTTLENECK)
        before = noise.cpu_times(lab)
        control(run, tunnel, cross, make_controller(name, path), duration_s)
        run.noise = noise.judge(before, noise.cpu_times(lab), lab.ground_truth(BOTTLENECK))
        run.reordered = tunnel.get("destination")["counters"]["late_packets"]
    return run


def responses(run: Run) -> list[tuple[float, metrics.StepResponse]]:
    """The figures of every step that had periods: its time of a nominal run, and what happened until the next."""
    steps = run.scenario.steps()
    result = []
    for start_s, end_s in zip(steps, [*steps[1:], NOMINAL_S], strict=True):
        rates, connections = run.between(start_s, end_s)
        if rates:
            target = run.scenario.target_at(start_s)
            result.append((start_s, metrics.step_response(rates, connections, target)))
    return result


def step_figures(runs: Sequence[Run]) -> list[Figure]:
    """Settling, overshoot, error and connections per part, controller and step; medians where it was repeated."""
    cells: dict[tuple[str, str, float], list[metrics.StepResponse]] = {}
    for run in runs:
        for start_s, response in responses(run):
            cells.setdefault((run.scenario.part, run.controller, start_s), []).append(response)
    figures = []
    for (part, controller, start_s), found in cells.items():
        cell = dimensions(part=part, controller=controller.replace("=", ":"), step_s=start_s)
        settled = [one.settling_periods for one in found if one.settling_periods is not None]
        # Half of the runs or more that never settled leave no figure.
        settling = statistics.median(settled) if len(settled) * 2 > len(found) else None
        figures += [
            Figure(f"settling_periods{cell}", settling, "periods"),
            Figure(f"overshoot{cell}", statistics.median(one.overshoot for one in found), "ratio"),
            Figure(f"steady_error{cell}", statistics.median(one.steady_error for one in found), "ratio"),
            Figure(f"connections_peak{cell}", statistics.median(one.connections_peak for one in found), "connections"),
            Figure(f"connection_changes{cell}", statistics.median(one.changes for one in found), "connections"),
        ]
    return figures


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
        cell = dimensions(part=run.scenario.part, controller=run.controller.replace("=", ":"))
        figures.append(Figure(f"model_pole{cell}", radius, "ratio"))
    return figures


def table(title: str, runs: Sequence[Run]) -> str:
    """Markdown: one line per run and step."""
    lines = [
        f"# {title}",
        "",
        "| part | controller | from s | B* pkt/s | settled after | overshoot | steady error | peak m | changes |",
    ]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for run in runs:
        for start_s, one in responses(run):
            settled = f"{one.settling_periods} periods" if one.settling_periods is not None else "not"
            lines.append(
                f"| {run.scenario.part} | {run.controller} | {start_s * run.scale:.0f} "
                f"| {run.scenario.target_at(start_s):.0f} | {settled} | {one.overshoot:.1%} | {one.steady_error:.1%} "
                f"| {one.connections_peak} | {one.changes} |"
            )
    return "\n".join(lines) + "\n"


def plot(runs: Sequence[Run], path: Path) -> None:
    """PNG: rate with target above, connections below, one column per run; axes as in the paper's figures 7 to 11."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(2, len(runs), figsize=(4.2 * len(runs), 5), sharex="col", squeeze=False)
    for column, run in enumerate(runs):
        axes[0][column].plot(run.at_s, run.rates_pps, label="tunnel")
        if run.controller != "none":
            axes[0][column].step(run.at_s, run.targets_pps, where="pre", color="tab:red", label="target")
        axes[0][column].set_title(f"{run.scenario.part}, {run.controller}", fontsize=9)
        axes[0][column].set_ylabel("packets per second")
        axes[0][column].set_ylim(bottom=0)
        axes[1][column].step(run.at_s, run.connections, where="post", color="tab:green")
        axes[1][column].set_ylabel("connections")
        axes[1][column].set_xlabel("seconds")
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


@dataclass(frozen=True)
class Plan:
    """An experiment: which scenarios under which controllers, and the figures beside those of the steps."""

    title: str
    scenarios: tuple[Scenario, ...]
    controllers: tuple[str, ...]
    figures: Callable[[Sequence[Run]], list[Figure]] | None = None


def perform(plan: Plan, settings: Settings, report: Report) -> Outcome:
    """Runs a plan: every scenario under its controllers, there and back when repeated."""
    runs: list[Run] = []
    repeat = settings.repeat or 1
    cells = [(scenario, name) for scenario in plan.scenarios for name in plan.controllers]
    for number in range(repeat):
        for scenario, name in cells if number % 2 == 0 else reversed(cells):
            report(f"{scenario.part}, {name}", len(runs) / (repeat * len(cells)))
            complaint: str | None = None
            for _ in range(ATTEMPTS):
                run = run_once(settings, scenario, name, settings.seed * 1000 + number)
                complaint = run.noise.complaint() if run.noise else None
                if complaint is None or not settings.judge_noise:
                    break
                noise.await_quiet()
            else:
                raise NoisyMachineError(f"{scenario.part}, {name}: {complaint}")
            runs.append(run)
    extra = plan.figures(runs) if plan.figures else []
    return Outcome(
        extra + step_figures(runs),
        table(plan.title, runs),
        [asdict(run) for run in runs],
        lambda path: plot(runs, path),
    )


CONSTANT = ((0.0, 900.0),)
TEN_THEN_THIRTY = ((0.0, 10.0), (50.0, 30.0))
TARGET_STEP = Scenario("target", ((0, 900), (50, 1200)), ((0, 10),))
CROSS_STEP = Scenario("cross", CONSTANT, TEN_THEN_THIRTY)
DYNAMIC = ((0.0, 10.0), (30.0, 30.0), (50.0, 50.0), (70.0, 20.0))

PLANS = {
    "itm-1": Plan("No control (figure 7 a)", (CROSS_STEP,), ("none",), share_kept),
    "itm-2": Plan("P, Kp 0.01 (figure 7 b)", (CROSS_STEP,), ("p",)),
    "itm-3": Plan("Naive (figure 8)", (TARGET_STEP, CROSS_STEP), ("naive",)),
    "itm-4": Plan(
        "Square-wave cross traffic (figure 9)",
        (Scenario("wave", CONSTANT, TEN_THEN_THIRTY, wave=True),),
        ("naive", "pi"),
        pi_over_naive,
    ),
    "itm-5": Plan(
        "PI with gains of the paper (figure 10)", (TARGET_STEP, CROSS_STEP), ("pi-ki=0.01", "pi-ki=0.08"), paper_gains
    ),
    "itm-6": Plan(
        "PI over 50 Mb/s and 100 ms (figure 11 a, b)",
        (
            Scenario("target", ((0, 1875), (30, 1250), (60, 625)), ((0, 10),), LONG_PATH),
            Scenario("cross", ((0, 1875),), ((0, 10), (30, 30), (60, 50)), LONG_PATH),
        ),
        ("pi",),
    ),
    "itm-7": Plan(
        "A changing environment (figure 11 c to f)",
        (Scenario("dynamic", ((0, 1875),), DYNAMIC, LONG_PATH),),
        ("none", "naive", "pi"),
    ),
}


def entry(name: str, plan: Plan) -> Experiment:
    """A plan as an entry of the registry."""
    description = f"Elastic tunnel, {plan.title[0].lower()}{plan.title[1:]}: Guirguis et al., experiment {name[-1]}."
    return Experiment(name, description, lambda settings, report: perform(plan, settings, report))


EXPERIMENTS = tuple(entry(name, plan) for name, plan in PLANS.items())
