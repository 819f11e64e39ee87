"""One run of the elastic-tunnel experiments: a tunnel beside cross traffic on a RED bottleneck, under one controller.

Guirguis et al., Providing Soft Bandwidth Guarantees Using Elastic TCP-based Tunnels (BUCS-TR-2003-028), section 4.1.
Rates are in packets of 1000 bytes per second, as the paper has them: bytes received at the destination divided by what
a segment of the connections carries.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from chart.tunnels.controller import (
    Controller,
    Gains,
    Measurement,
    Naive,
    Proportional,
    ProportionalIntegral,
)
from chart_lab import topology
from chart_lab.errors import LabError
from chart_lab.experiments import itm_tunnel, noise
from chart_lab.experiments.framework import Settings, temporary_lab
from chart_lab.experiments.itm_tunnel import Tunnel
from chart_lab.network import Lab
from chart_lab.topology import Topology

BOTTLENECK = "west-east"
PACKET_BYTES = 1000
USER_BYTES = 1200
# Users offer more than the bottleneck carries: "all connections have unlimited data".
OFFERED_SHARE = 1.3
NOMINAL_S = 100.0
WARM_UP_S = 20.0
HALF_WAVE_S = 10.0
KP_PAPER = 0.01
# Bounds of the measured time constant, in periods, as the service tunnels has them.
TAU_PERIODS = (0.05, 2.0)
Steps = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Bottleneck:
    """The bottleneck of a scenario and the measurement period that goes with it, which is the control period too."""

    rate_mbit: float
    delay_ms: float
    period_s: float

    @property
    def capacity_pps(self) -> float:
        """Packets of 1000 bytes per second."""
        return self.rate_mbit * 1e6 / 8 / PACKET_BYTES


@dataclass(frozen=True)
class Scenario:
    """One run: targets and cross connections as (seconds, value) of duration_s, of which warm_up_s are ignored.

    wave: from the last cross step on, the cross connections stop and start every HALF_WAVE_S.
    aligned: steps wait for the end of a measurement period, so that no period is before and after one.
    """

    part: str
    targets: Steps
    cross: Steps
    path: Bottleneck
    wave: bool = False
    connections: int = 10
    duration_s: float = NOMINAL_S
    warm_up_s: float = WARM_UP_S
    aligned: bool = False

    def target_at(self, at_s: float) -> float:
        """B* at a time, packets per second."""
        return value_at(self.targets, at_s)

    def steps(self) -> list[float]:
        """Times of steps, warm-up first."""
        times = {at for at, _ in (*self.targets, *self.cross) if at > self.warm_up_s}
        return [self.warm_up_s, *sorted(times)]


@dataclass
class Run:
    """One run: per period its end in seconds, the rate, the connections open, target and cross traffic in force."""

    scenario: Scenario
    controller: str
    scale: float
    seed: int = 0
    at_s: list[float] = field(default_factory=list)
    rates_pps: list[float] = field(default_factory=list)
    connections: list[int] = field(default_factory=list)
    targets_pps: list[float] = field(default_factory=list)
    cross: list[int] = field(default_factory=list)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    reordered: int = 0
    noise: noise.Noise | None = None

    def between(self, from_s: float, until_s: float) -> tuple[list[float], list[int]]:
        """Rates and connections of the periods that end within (unscaled times)."""
        chosen = [i for i, at in enumerate(self.at_s) if from_s * self.scale < at <= until_s * self.scale]
        return [self.rates_pps[i] for i in chosen], [self.connections[i] for i in chosen]

    def segments(self) -> list[tuple[float, list[float], list[int]]]:
        """Per step its time (of a nominal run), and rates and connections of its periods."""
        steps = self.scenario.steps()
        ends = [*steps[1:], self.scenario.duration_s]
        found = [(start_s, *self.between(start_s, end_s)) for start_s, end_s in zip(steps, ends, strict=True)]
        if not self.scenario.aligned:
            return found
        # A period belongs to the step whose target and cross traffic were in force in it.
        result = []
        for start_s, _, _ in found:
            state = (self.scenario.target_at(start_s), int(value_at(self.scenario.cross, start_s)))
            chosen = [
                i
                for i, at in enumerate(self.at_s)
                if at > start_s * self.scale and (self.targets_pps[i], self.cross[i]) == state
            ]
            result.append((start_s, [self.rates_pps[i] for i in chosen], [self.connections[i] for i in chosen]))
        return result


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
    return ProportionalIntegral(path.capacity_pps, path.period_s, 0.0, gains=gains, window_min_segments=0)


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


def lab_topology(path: Bottleneck) -> Topology:
    """The itm topology with a scenario's bottleneck."""
    base = topology.load("itm")
    links = []
    for link in base.links:
        changed: dict[str, Any] = {}
        if link.name == BOTTLENECK:
            changed = {"rate_mbit": path.rate_mbit, "delay_ms": path.delay_ms}
        elif link.rate_mbit is not None:
            # Access links never are the bottleneck.
            changed = {"rate_mbit": max(link.rate_mbit, 4 * path.rate_mbit)}
        links.append(link.model_copy(update=changed))
    return base.model_copy(update={"links": links})


def asked_path(settings: Settings, path: Bottleneck) -> Bottleneck:
    """The scenario's path, or what was asked for instead."""
    rate = (settings.rate_mbit or (path.rate_mbit,))[0]
    return Bottleneck(rate, (settings.delay_ms or (path.delay_ms,))[0], path.period_s)


def tau_s(windows: list[dict[str, float]], period_s: float) -> float | None:
    """Time constant as measured: half a congestion epoch, mean over the connections; None without any."""
    halves = [one["rtt_us"] / 1e6 * one["cwnd_segments"] / 2 for one in windows if one["rtt_us"]]
    if not halves:
        return None
    return min(max(statistics.fmean(halves), TAU_PERIODS[0] * period_s), TAU_PERIODS[1] * period_s)


def backlogged(state: dict[str, Any]) -> bool:
    """Whether users filled the tunnel, as the service tunnels judges it: packets waited for half of the period."""
    return bool(2 * state["backlogged_us"] >= state["report"]["interval_us"])


def windows_rate(windows: list[dict[str, float]]) -> float:
    """What the windows would carry if they were filled, packets per second."""
    return sum(one["cwnd_segments"] / one["rtt_us"] * 1e6 for one in windows if one["rtt_us"])


class Loop:
    """The control loop of one run: per report of the destination one decision."""

    def __init__(self, run: Run, tunnel: Tunnel, cross: CrossTraffic, controller: Controller | None) -> None:
        self.run, self.tunnel, self.cross, self.controller = run, tunnel, cross, controller
        self.path = run.scenario.path
        self.target_pps = run.scenario.target_at(0.0)

    def until(self, duration_s: float) -> None:
        """Controls until the time is over."""
        started_s = time.monotonic()
        seen = self.tunnel.get()["report"]
        number = seen["number"] if seen else 0
        self._traffic(0.0)
        while (elapsed_s := time.monotonic() - started_s) < duration_s:
            if not self.run.scenario.aligned:
                self._traffic(elapsed_s)
            time.sleep(0.05)
            state = self.tunnel.get()
            report = state["report"]
            if report is None or report["number"] == number:
                if report is not None and report["age_us"] > 5e6 * self.path.period_s:
                    raise LabError(f"the tunnel's destination reports no more: {state['last_error']}")
                continue
            number = report["number"]
            self._period(state, elapsed_s)
            if self.run.scenario.aligned:
                self._traffic(elapsed_s)

    def _traffic(self, elapsed_s: float) -> None:
        self.cross.set(cross_at(self.run.scenario, elapsed_s, self.run.scale))
        self.target_pps = self.run.scenario.target_at(elapsed_s / self.run.scale)

    def _period(self, state: dict[str, Any], elapsed_s: float) -> None:
        run, report, windows = self.run, state["report"], state["windows"]
        segment_bytes = windows[0]["mss_bytes"] if windows else PACKET_BYTES - 52
        rate_pps = report["received_bytes"] / segment_bytes / (report["interval_us"] / 1e6)
        wanted = state["connections"]["wanted"]
        run.at_s.append(elapsed_s)
        run.rates_pps.append(rate_pps)
        run.connections.append(wanted)
        run.targets_pps.append(self.target_pps)
        run.cross.append(self.cross.count)
        if self.controller is None:
            return
        measured_tau_s = tau_s(windows, self.path.period_s)
        if isinstance(self.controller, ProportionalIntegral) and measured_tau_s is not None:
            before_s = self.controller.tau_s or measured_tau_s
            self.controller.tau_s = (before_s + measured_tau_s) / 2
        sizes = tuple(float(window["cwnd_segments"]) for window in windows)
        payload_bits = 8 * segment_bytes
        measured = Measurement(
            rate_pps, wanted, sizes, backlogged(state), state["limit_bps"] / payload_bits, windows_rate(windows)
        )
        decision = self.controller.decide(self.target_pps, measured)
        run.decisions.append(asdict(decision))
        self.tunnel.set(
            connections=decision.connections,
            lease_ms=round(10_000 * self.path.period_s),
            limit_bps=round(decision.limit * payload_bits),
        )


def run_once(settings: Settings, scenario: Scenario, name: str, seed: int) -> Run:
    """One scenario under one controller."""
    path = scenario.path
    duration_s = settings.duration_s or scenario.duration_s
    run = Run(scenario, name, duration_s / scenario.duration_s, seed)
    congestion = (settings.congestion or ("reno",))[0]
    origin = ["--congestion", congestion, "--connections", str(scenario.connections)]
    origin += ["--period-ms", str(round(path.period_s * 1000)), "--queue-bytes", "200000"]
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(temporary_lab(lab_topology(path), seed))
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
        Loop(run, tunnel, cross, make_controller(name, path)).until(duration_s)
        run.noise = noise.judge(before, noise.cpu_times(lab), lab.ground_truth(BOTTLENECK))
        run.reordered = tunnel.get("destination")["counters"]["late_packets"]
    return run


def on_asked_path(settings: Settings, scenario: Scenario) -> Scenario:
    """The scenario over the path that was asked for."""
    return dataclasses.replace(scenario, path=asked_path(settings, scenario.path))
