"""What the service decides, without streams or a clock: reports, targets and capacities in, commands out.

One `TunnelControl` per tunnel holds its controller, the figures of its steps and its last periods (Guirguis et al.,
sections 2.2 and 3). Rates are bits per second, IP headers included.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass

from chart.common import leases
from chart.tunnels.controller import (
    CONNECTIONS_MAX,
    Controller,
    Decision,
    Gains,
    Measurement,
    Naive,
    Proportional,
    ProportionalIntegral,
)
from chart.tunnels.metrics import StepMeter
from chart.v1.flow_grant_pb2 import FlowGrant
from chart.v1.tunnel_command_pb2 import TunnelCommand, TunnelController
from chart.v1.tunnel_report_pb2 import TunnelReport
from chart.v1.tunnels_pb2 import (
    TUNNEL_TARGET_SOURCE_GRANT,
    TUNNEL_TARGET_SOURCE_NONE,
    TUNNEL_TARGET_SOURCE_OPERATOR,
    TUNNEL_TARGET_SOURCE_SCHEDULE,
    Tunnel,
    TunnelDecision,
    TunnelSettings,
    TunnelStep,
    TunnelTargetSource,
)

# TCP and IP headers with the timestamp option, in front of each segment.
HEADER_BYTES = 52
SEGMENT_BYTES = 1448
# Bounds of the measured time constant in periods: below, the lag does not show in a mean; above, the design would act
# on noise.
TAU_PERIODS = (0.05, 2.0)
# C when nobody knows it: far above the target, which makes the loop slower than it could be, never faster.
UNKNOWN_CAPACITY_FACTOR = 4.0
PER_MBIT = 1e6
# A lease lasts at least so many periods, so that one lost command does not end it.
LEASE_PERIODS = 3


@dataclass(frozen=True)
class Target:
    """B* at a moment; reason says why there is none."""

    bps: int
    source: TunnelTargetSource.ValueType
    reason: str = ""


def target_of(settings: TunnelSettings, grant: FlowGrant | None, now_us: int) -> Target:
    """Schedule before grant before the operator's constant; of the schedule the last entry that covers the moment."""
    for entry in reversed(settings.schedule):
        if entry.start_us <= now_us and (not entry.end_us or now_us < entry.end_us):
            return Target(entry.target_bps, TUNNEL_TARGET_SOURCE_SCHEDULE)
    reason = ""
    if settings.request_id:
        holds = grant is not None and leases.is_valid(grant.valid_until_us, now_us) and grant.valid_from_us <= now_us
        if grant is not None and holds and grant.guaranteed_bps:
            return Target(grant.guaranteed_bps, TUNNEL_TARGET_SOURCE_GRANT)
        state = "has no guaranteed rate" if grant is not None and holds else "holds no grant now"
        reason = f"request {settings.request_id} {state}"
    if settings.target_bps:
        return Target(settings.target_bps, TUNNEL_TARGET_SOURCE_OPERATOR, reason)
    return Target(0, TUNNEL_TARGET_SOURCE_NONE, reason or "no target is set for now")


def rate_of(report: TunnelReport) -> float:
    """What the destination received over the period, IP headers included; 0 without a measurement."""
    if not report.period_us:
        return 0.0
    return report.received_bytes * 8e6 / report.period_us / payload_share(report)


def payload_share(report: TunnelReport) -> float:
    """Share of TCP payload in what the tunnel's packets are with their headers."""
    sizes = [window.mss_bytes for window in report.windows if window.mss_bytes]
    segment_bytes = statistics.fmean(sizes) if sizes else SEGMENT_BYTES
    return segment_bytes / (segment_bytes + HEADER_BYTES)


def windows_rate_of(report: TunnelReport) -> float:
    """What the windows would carry if they were filled, IP headers included."""
    return sum(
        window.cwnd_segments * (window.mss_bytes + HEADER_BYTES) * 8e6 / window.rtt_us
        for window in report.windows
        if window.rtt_us
    )


def tau_of(report: TunnelReport) -> float | None:
    """Time constant of the tunnel, seconds: half a congestion epoch, in which a window grows back to its share.

    None without windows.
    """
    halves = [window.rtt_us / 1e6 * window.cwnd_segments / 2 for window in report.windows if window.rtt_us]
    if not halves:
        return None
    period_s = report.period_us / 1e6
    return min(max(statistics.fmean(halves), TAU_PERIODS[0] * period_s), TAU_PERIODS[1] * period_s)


def controller_of(settings: TunnelSettings, maximum: int) -> Controller | None:
    """A new controller by the settings; None under `none`. Capacity, tau and period of PI are set with every report."""
    guard = settings.window_min_segments
    match settings.controller:
        case TunnelController.TUNNEL_CONTROLLER_NAIVE:
            return Naive(maximum, guard)
        case TunnelController.TUNNEL_CONTROLLER_P:
            return Proportional(settings.kp / PER_MBIT, maximum, guard)
        case TunnelController.TUNNEL_CONTROLLER_PI:
            stated = settings.HasField("kp") and settings.HasField("ki")
            gains = Gains(settings.kp / PER_MBIT, settings.ki / PER_MBIT) if stated else None
            return ProportionalIntegral(1.0, 1.0, 0.0, gains, maximum, guard)
    return None


class TunnelControl:
    """One tunnel. `use` what is stated, `take` its reports."""

    def __init__(self, name: str, *, periods: int = 300, steps: int = 20) -> None:
        self.name = name
        self.settings: TunnelSettings | None = None
        self.report: TunnelReport | None = None
        self.command: TunnelCommand | None = None
        self.target = Target(0, TUNNEL_TARGET_SOURCE_NONE, "nobody stated anything of this tunnel")
        self.rate_bps = 0.0
        self.seen_us = 0
        self.history: deque[TunnelDecision] = deque(maxlen=periods)
        self._steps: deque[tuple[TunnelStep, StepMeter]] = deque(maxlen=steps)
        self._controller: Controller | None = None
        self._tau_s: float | None = None
        self._fastest_bps = 0.0
        self._told_revision = 0

    def use(self, settings: TunnelSettings | None) -> bool:
        """What is stated now; returns whether it is news. Other than new targets it begins with a new controller."""
        before, self.settings = self.settings, settings
        if settings == before:
            return False
        if settings is None or before is None or _law(settings) != _law(before):
            self._controller = None
        return True

    def of_another(self, report: TunnelReport, now_us: int, silence_us: int) -> bool:
        """Whether a report is of another node than the one whose reports arrive: while that is heard nobody takes its
        tunnel's name.
        """
        last = self.report
        return last is not None and last.origin_node != report.origin_node and now_us - self.seen_us < silence_us

    def take(
        self, report: TunnelReport, target: Target, capacity_bps: int, now_us: int, lease_us: int
    ) -> TunnelCommand | None:
        """One report: the command that answers it, None when there is nothing to say. Repeated reports are ignored."""
        last = self.report
        same_session = last is not None and last.session == report.session
        if last is not None and same_session and report.period_us and report.period_number <= last.period_number:
            return None
        self.report, self.target, self.seen_us = report, target, now_us
        if report.period_us:
            self.rate_bps = rate_of(report)
            self._fastest_bps = max(self._fastest_bps, self.rate_bps)
            if (tau_s := tau_of(report)) is not None:
                self._tau_s = tau_s if self._tau_s is None else (self._tau_s + tau_s) / 2
        if self.settings is None:
            return None
        return self._answer(report, capacity_bps, now_us, max(lease_us, LEASE_PERIODS * report.period_us))

    def _answer(self, report: TunnelReport, capacity_bps: int, now_us: int, lease_us: int) -> TunnelCommand | None:
        settings = self.settings
        assert settings is not None
        if settings.controller == TunnelController.TUNNEL_CONTROLLER_NONE:
            self._note(report, None, 0.0, now_us)
            # Weights alone hold for good and are told once, or again when the tunnel does not know them.
            known = self.command is not None and report.command_generation >= self.command.generation
            told = known and self._told_revision == settings.revision
            if not settings.connections and (told or not settings.weights):
                return None
            return self._commanded(settings.connections, lease_us if settings.connections else 0, now_us)
        if not self.target.bps:
            self._controller = None
            return self._commanded(1, lease_us, now_us)
        if not report.period_us:
            # Nothing was measured: what was decided last goes on.
            return self._commanded(report.connections_wanted, lease_us, now_us, report.limit_bps)
        capacity = float(capacity_bps) or max(UNKNOWN_CAPACITY_FACTOR * self.target.bps, self._fastest_bps)
        decision = self._decided(report, capacity)
        self._note(report, decision, capacity, now_us)
        limit_bps = round(decision.limit * payload_share(report))
        return self._commanded(decision.connections, lease_us, now_us, limit_bps)

    def _decided(self, report: TunnelReport, capacity_bps: float) -> Decision:
        assert self.settings is not None
        if self._controller is None:
            limits = [self.settings.connections_maximum, report.connections_maximum, CONNECTIONS_MAX]
            self._controller = controller_of(self.settings, min(limit for limit in limits if limit))
            assert self._controller is not None
        if isinstance(self._controller, ProportionalIntegral):
            self._controller.capacity = capacity_bps
            self._controller.period_s = report.period_us / 1e6
            self._controller.tau_s = self._tau_s or 0.0
        windows = tuple(float(window.cwnd_segments) for window in report.windows)
        connections = max(report.connections_wanted, 1)
        # Less than half of the time with packets waiting: users do not fill what is there.
        backlogged = 2 * report.backlogged_us >= report.period_us
        measured = Measurement(
            *(self.rate_bps, connections, windows, backlogged),
            limit=report.limit_bps / payload_share(report),
            windows_rate=windows_rate_of(report),
        )
        return self._controller.decide(float(self.target.bps), measured)

    def _commanded(self, connections: int, lease_us: int, now_us: int, limit_bps: int = 0) -> TunnelCommand:
        assert self.settings is not None
        before = self.command.generation if self.command is not None else 0
        taken = self.report.command_generation if self.report is not None else 0
        self.command = TunnelCommand(
            tunnel=self.name,
            # Grows over restarts too: the clock, or one more than what was seen when the clock was set back.
            generation=max(now_us, before + 1, taken + 1),
            issued_us=now_us,
            connections=connections,
            lease_us=min(lease_us, 2**32 - 1),
            weights=self.settings.weights,
            target_bps=self.target.bps,
            controller=self.settings.controller,
            limit_bps=limit_bps,
        )
        self._told_revision = self.settings.revision
        return self.command

    def _note(self, report: TunnelReport, decision: Decision | None, capacity_bps: float, now_us: int) -> None:
        """Add a period to the history and to the figures of its step."""
        if not report.period_us:
            return
        assert self.settings is not None
        noted = TunnelDecision(
            at_us=report.period_end_us or now_us,
            rate_bps=round(self.rate_bps),
            target_bps=self.target.bps,
            connections_before=report.connections_wanted,
            connections=decision.connections if decision else report.connections_wanted,
            capacity_bps=round(capacity_bps),
        )
        if decision is not None:
            noted.wanted, noted.guarded, noted.starved = decision.wanted, decision.guarded, decision.starved
            if decision.gains is not None:
                noted.kp, noted.ki = decision.gains.kp * PER_MBIT, decision.gains.ki * PER_MBIT
            if decision.alpha is not None and decision.spectral_radius is not None:
                noted.alpha, noted.spectral_radius = decision.alpha, decision.spectral_radius
                noted.tau_s = self._tau_s or 0.0
                noted.equation_14_stable = bool(decision.equation_14_stable)
        self.history.append(noted)
        if not self.target.bps:
            return
        newest = self._steps[-1][0] if self._steps else None
        if newest is None or (newest.target_bps, newest.controller) != (self.target.bps, self.settings.controller):
            if newest is not None:
                newest.until_us = noted.at_us
            step = TunnelStep(from_us=noted.at_us, target_bps=self.target.bps, controller=self.settings.controller)
            self._steps.append((step, StepMeter(float(self.target.bps))))
        self._steps[-1][1].add(self.rate_bps, report.connections_wanted)

    def steps(self) -> list[TunnelStep]:
        """Figures of the steps, newest first."""
        found = []
        for step, meter in reversed(self._steps):
            response = meter.response()
            shown = TunnelStep()
            shown.CopyFrom(step)
            shown.periods = meter.periods
            if response.settling_periods is not None:
                shown.settling_periods = response.settling_periods
            shown.overshoot, shown.steady_error = response.overshoot, response.steady_error
            shown.connections_peak = response.connections_peak
            shown.connections_final = response.connections_final
            shown.connection_changes = response.changes
            found.append(shown)
        return found

    def show(self, now_us: int, silence_us: int, *, whole: bool) -> Tunnel:
        """The tunnel as gRPC tells it; ``whole`` with steps and history."""
        shown = Tunnel(
            tunnel=self.name,
            target_bps=self.target.bps,
            target_source=self.target.source,
            reason=self._reason(now_us, silence_us),
            rate_bps=round(self.rate_bps),
        )
        for name, part in (("settings", self.settings), ("report", self.report), ("command", self.command)):
            if part is not None:
                getattr(shown, name).CopyFrom(part)
        if self.history:
            shown.decision.CopyFrom(self.history[-1])
        if whole:
            shown.steps.extend(self.steps())
            shown.history.extend(self.history)
        return shown

    def forgotten(self, now_us: int, silence_us: int) -> bool:
        """Whether nobody reports the tunnel (any more): without settings there is nothing to tell of it then."""
        return self.report is None or now_us - self.seen_us > silence_us

    def down(self, now_us: int, silence_us: int) -> str:
        """Why a tunnel that operators set carries nothing that anybody knows of; "": it does, or nothing is set."""
        if self.settings is None:
            return ""
        if self.report is None:
            return "the tunnel has not reported yet: does chart-tunnel run, and does it reach the streams?"
        if now_us - self.seen_us > silence_us:
            return f"the tunnel has been silent for {(now_us - self.seen_us) // 1_000_000} s"
        if not self.report.period_us:
            return f"the tunnel's destination reports nothing: {self.report.last_error or 'no connection'}"
        return ""

    def _reason(self, now_us: int, silence_us: int) -> str:
        if self.settings is None:
            return "nobody stated anything of this tunnel: it is only watched"
        return self.down(now_us, silence_us) or self.target.reason


def _law(settings: TunnelSettings) -> TunnelSettings:
    """What makes a controller, of all that is stated."""
    law = TunnelSettings(
        controller=settings.controller,
        window_min_segments=settings.window_min_segments,
        connections_maximum=settings.connections_maximum,
    )
    for gain in ("kp", "ki"):
        if settings.HasField(gain):
            setattr(law, gain, getattr(settings, gain))
    return law
