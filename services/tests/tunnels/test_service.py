"""What the service decides on reports: targets, capacities, commands, steps; and what may be stated."""

from __future__ import annotations

import pytest

from chart.common.rpc_errors import RefusalError
from chart.tunnels import validation
from chart.tunnels.controller import LIMIT_SHARE
from chart.tunnels.service import Target, TunnelControl, rate_of, target_of, tau_of
from chart.v1 import tunnels_pb2 as pb
from chart.v1.flow_grant_pb2 import FlowGrant
from chart.v1.tunnel_command_pb2 import TunnelCommand, TunnelController
from chart.v1.tunnel_report_pb2 import TunnelReport
from chart_lab.models.tunnel import Simulator

MEGA = 1_000_000
NOW_US = 1_780_000_000_000_000
PERIOD_US = 2 * MEGA
LEASE_US = 10 * MEGA
CAPACITY_BPS = 16 * MEGA
NAIVE, P, PI, NONE = (
    TunnelController.TUNNEL_CONTROLLER_NAIVE,
    TunnelController.TUNNEL_CONTROLLER_P,
    TunnelController.TUNNEL_CONTROLLER_PI,
    TunnelController.TUNNEL_CONTROLLER_NONE,
)
OPERATOR = pb.TUNNEL_TARGET_SOURCE_OPERATOR


def settings(**fields: object) -> pb.TunnelSettings:
    stated = pb.TunnelSettings(tunnel="gold", controller=PI, target_bps=7_200_000, capacity_bps=CAPACITY_BPS)
    stated.MergeFrom(pb.TunnelSettings(**fields))  # type: ignore[arg-type]
    return stated


def report(number: int, rate_bps: float, connections: int, **fields: object) -> TunnelReport:
    """A period in which this was carried, IP headers included, in segments of 948 bytes."""
    made = TunnelReport(
        tunnel="gold",
        origin_node="alpha",
        destination_node="delta",
        session=1,
        period_number=number,
        period_us=PERIOD_US,
        period_end_us=NOW_US + number * PERIOD_US,
        received_bytes=round(rate_bps * PERIOD_US / 8e6 * 948 / 1000),
        connections_wanted=connections,
        connections_established=connections,
        backlogged_us=PERIOD_US,
    )
    for _ in range(connections):
        made.windows.add(cwnd_segments=10, rtt_us=50_000, mss_bytes=948)
    made.MergeFrom(TunnelReport(**fields))  # type: ignore[arg-type]
    return made


def take(control: TunnelControl, one: TunnelReport, *, bps: int = 7_200_000) -> TunnelCommand | None:
    target = Target(bps, OPERATOR if bps else pb.TUNNEL_TARGET_SOURCE_NONE)
    return control.take(one, target, CAPACITY_BPS, NOW_US + one.period_number * PERIOD_US, LEASE_US)


def test_rates_count_headers_and_tau_is_half_an_epoch() -> None:
    one = report(1, 8_000_000, 4)
    assert rate_of(one) == pytest.approx(8_000_000, rel=1e-3)
    assert tau_of(one) == pytest.approx(0.25)
    assert rate_of(TunnelReport(period_us=0, received_bytes=5)) == 0
    assert tau_of(TunnelReport(period_us=PERIOD_US)) is None


def test_schedule_before_grant_before_the_operators_target() -> None:
    stated = settings(request_id="01REQUEST")
    grant = FlowGrant(guaranteed_bps=5 * MEGA, valid_from_us=NOW_US, valid_until_us=NOW_US + 60 * MEGA)
    assert target_of(stated, grant, NOW_US) == Target(5 * MEGA, pb.TUNNEL_TARGET_SOURCE_GRANT)
    over = target_of(stated, grant, NOW_US + 60 * MEGA)
    assert (over.bps, over.source) == (7_200_000, OPERATOR)
    assert "holds no grant" in over.reason
    stated.schedule.add(start_us=NOW_US, target_bps=3 * MEGA)
    stated.schedule.add(start_us=NOW_US + 10, end_us=NOW_US + 20, target_bps=4 * MEGA)
    for later, expected in ((0, 3), (10, 4), (19, 4), (20, 3)):
        assert target_of(stated, grant, NOW_US + later).bps == expected * MEGA
    nothing = target_of(pb.TunnelSettings(tunnel="gold", controller=PI), None, NOW_US)
    assert (nothing.bps, nothing.source) == (0, pb.TUNNEL_TARGET_SOURCE_NONE)
    assert nothing.reason


def test_pi_by_design_limits_the_tunnel_a_little_above_its_target() -> None:
    control = TunnelControl("gold")
    control.use(settings())
    command = take(control, report(1, 6 * MEGA, 5))
    assert command is not None
    # What is let out is counted without headers.
    limit_bps = round((1 + LIMIT_SHARE) * 7_200_000 * 948 / 1000)
    assert command.limit_bps == limit_bps
    # The tunnel is at its limit, and its windows would carry far more: it closes connections.
    for number in (2, 3):
        wide = report(number, (1 + LIMIT_SHARE) * 7_200_000, 12, limit_bps=limit_bps)
        for window in wide.windows:
            window.cwnd_segments = 20
        command = take(control, wide)
    assert command is not None
    assert command.connections < 12
    # While the destination is silent the limit stays.
    silent = take(control, TunnelReport(tunnel="gold", session=1, connections_wanted=4, limit_bps=limit_bps))
    assert silent is not None
    assert silent.limit_bps == limit_bps


@pytest.mark.parametrize("stated", [{"controller": NAIVE}, {"controller": P, "kp": 10.0}, {"kp": 10.0, "ki": 10.0}])
def test_other_laws_have_no_limit(stated: dict[str, object]) -> None:
    control = TunnelControl("gold")
    control.use(settings(**stated))
    for number in (1, 2):
        command = take(control, report(number, 6 * MEGA, 5, limit_bps=MEGA))
        assert command is not None
        assert command.limit_bps == 0


def test_a_tunnel_that_nobody_stated_is_watched_only() -> None:
    control = TunnelControl("gold")
    assert take(control, report(1, 8 * MEGA, 4)) is None
    shown = control.show(NOW_US + PERIOD_US, LEASE_US, whole=True)
    assert shown.rate_bps == pytest.approx(8 * MEGA, rel=1e-3)
    assert "only watched" in shown.reason
    assert not shown.HasField("settings")
    assert not control.forgotten(control.seen_us + 30 * MEGA, 30 * MEGA)
    assert control.forgotten(control.seen_us + 30 * MEGA + 1, 30 * MEGA)


def test_pi_by_design_holds_its_target_and_shows_its_steps() -> None:
    control = TunnelControl("gold")
    control.use(settings())
    simulator = Simulator(CAPACITY_BPS, 0.25, 2.0, noise=0.01, rate=CAPACITY_BPS / 3)
    connections, generations = 5, []
    for number in range(1, 71):
        rate_bps = simulator.period(connections, 10)
        command = take(control, report(number, rate_bps, connections), bps=7_200_000 if number <= 30 else 9_600_000)
        assert command is not None
        assert (command.lease_us, command.controller) == (LEASE_US, PI)
        generations.append(command.generation)
        connections = command.connections
    assert generations == sorted(set(generations))
    now, before = control.steps()
    for step, target in ((before, 7_200_000), (now, 9_600_000)):
        assert step.target_bps == target
        assert 3 <= step.settling_periods <= 8
        assert step.overshoot <= 0.1
        assert step.steady_error <= 0.02
        assert step.connection_changes >= 1
    assert (before.periods, now.periods) == (30, 40)
    assert before.until_us == now.from_us
    assert now.until_us == 0
    decision = control.show(NOW_US, LEASE_US, whole=False).decision
    # C/(m + x) of 16 Mbit/s: gains per Mbit/s are what connections per Mbit/s are.
    assert 0.5 < decision.ki < 10
    assert decision.spectral_radius < 1
    assert decision.alpha == pytest.approx(1 / 25, rel=0.2)
    assert decision.tau_s == pytest.approx(0.25)


def test_repeated_and_old_reports_are_ignored_a_new_session_is_not() -> None:
    control = TunnelControl("gold")
    control.use(settings())
    assert take(control, report(5, 5 * MEGA, 4)) is not None
    assert take(control, report(5, 5 * MEGA, 4)) is None
    assert take(control, report(4, 5 * MEGA, 4)) is None
    assert take(control, report(1, 5 * MEGA, 1, session=2)) is not None


def test_generations_grow_past_what_the_tunnel_has_seen() -> None:
    control = TunnelControl("gold")
    control.use(settings())
    ahead = NOW_US + 10**15
    command = take(control, report(1, 5 * MEGA, 4, command_generation=ahead))
    assert command is not None
    assert command.generation == ahead + 1


def test_without_a_target_one_connection_is_kept() -> None:
    control = TunnelControl("gold")
    control.use(settings())
    take(control, report(1, 5 * MEGA, 8))
    command = take(control, report(2, 5 * MEGA, 8), bps=0)
    assert command is not None
    assert (command.connections, command.target_bps) == (1, 0)


def test_without_a_measurement_m_goes_on() -> None:
    control = TunnelControl("gold")
    control.use(settings())
    command = take(control, report(1, 5 * MEGA, 8, last_error="refused"))
    assert command is not None
    lost = report(2, 0, 8, last_error="connection refused")
    lost.period_us = 0
    held = take(control, lost)
    assert held is not None
    assert held.connections == 8
    shown = control.show(NOW_US + 2 * PERIOD_US, LEASE_US, whole=False)
    assert "connection refused" in shown.reason


def test_the_guard_and_a_lack_of_demand_keep_m() -> None:
    control = TunnelControl("gold")
    control.use(settings(window_min_segments=12))
    take(control, report(1, 4 * MEGA, 4))
    command = take(control, report(2, 4 * MEGA, 4))
    assert command is not None
    assert command.connections == 4
    assert control.show(NOW_US, LEASE_US, whole=False).decision.guarded
    idle = TunnelControl("gold")
    idle.use(settings())
    take(idle, report(1, 1 * MEGA, 4))
    one = report(2, 1 * MEGA, 4)
    one.backlogged_us = PERIOD_US // 4
    command = take(idle, one)
    assert command is not None
    assert command.connections == 4
    assert idle.show(NOW_US, LEASE_US, whole=False).decision.starved


def test_none_leaves_alone_or_holds_a_number() -> None:
    control = TunnelControl("gold")
    control.use(pb.TunnelSettings(tunnel="gold", controller=NONE))
    assert take(control, report(1, 5 * MEGA, 4), bps=0) is None
    control.use(pb.TunnelSettings(tunnel="gold", controller=NONE, connections=7, revision=2))
    command = take(control, report(2, 5 * MEGA, 4), bps=0)
    assert command is not None
    assert (command.connections, command.lease_us) == (7, LEASE_US)
    control.use(pb.TunnelSettings(tunnel="gold", controller=NONE, weights={"vip": 3}, revision=3))
    command = take(control, report(3, 5 * MEGA, 7), bps=0)
    assert command is not None
    assert (command.connections, dict(command.weights)) == (0, {"vip": 3})
    # Taken: told no more.
    assert take(control, report(4, 5 * MEGA, 7, command_generation=command.generation), bps=0) is None


def test_other_controllers() -> None:
    naive = TunnelControl("gold")
    naive.use(settings(controller=NAIVE))
    command = take(naive, report(1, 3_600_000, 5))
    assert command is not None
    assert command.connections == 10
    proportional = TunnelControl("gold")
    proportional.use(settings(controller=P, kp=2.0))
    command = take(proportional, report(1, 3_600_000, 5))
    assert command is not None
    assert command.connections == 7  # 2 per Mbit/s of an error of 3.6
    assert proportional.steps()[0].controller == P


def test_a_law_that_changes_begins_anew_a_target_does_not() -> None:
    control = TunnelControl("gold")
    assert control.use(settings(revision=1))
    take(control, report(1, 5 * MEGA, 4))
    kept = control._controller
    control.use(settings(revision=2, target_bps=5))
    assert control._controller is kept
    control.use(settings(revision=3, kp=1.0, ki=1.0))
    assert control._controller is None


def refused(**fields: object) -> RefusalError:
    with pytest.raises(RefusalError) as caught:
        validation.settings(settings(**fields))
    return caught.value


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"tunnel": "No name"}, "tunnel", "DNS label"),
        ({"controller": 9}, "controller", "none, naive, p, pi"),
        ({"target_bps": 16 * MEGA}, "target_bps", "any number of connections"),
        ({"target_bps": 10**14, "capacity_bps": 10**14}, "target_bps", "at most"),
        ({"window_min_segments": -1.0}, "window_min_segments", "between 0"),
        ({"window_min_segments": float("nan")}, "window_min_segments", "between 0"),
        ({"connections_maximum": 300}, "connections_maximum", "at most 256"),
        ({"connections": 3}, "connections", "controller none"),
        ({"controller": P}, "kp", "controller p needs its gain"),
        ({"ki": 1.0}, "kp", "both gains"),
        ({"kp": float("inf"), "ki": 1.0}, "kp", "between 0"),
        ({"controller": NAIVE, "ki": 1.0}, "ki", "only pi"),
        ({"weights": {"vip": 0}}, "weights.vip", "between 1"),
        ({"schedule": [pb.TunnelScheduleEntry(start_us=5, end_us=5)]}, "schedule[0].end", "later"),
        ({"schedule": [pb.TunnelScheduleEntry(target_bps=17 * MEGA)]}, "schedule[0].target_bps", "cannot be reached"),
    ],
)
def test_what_makes_no_sense_is_refused_by_field(fields: dict[str, object], field: str, words: str) -> None:
    error = refused(**fields)
    assert error.refusal.field == field
    assert words in error.refusal.detail


def test_a_target_above_the_capacity_is_told_the_ceiling() -> None:
    assert refused(target_bps=20 * MEGA).refusal.ceiling_bps == CAPACITY_BPS - 1


def test_the_stored_form_has_no_revision() -> None:
    stored = validation.settings(settings(revision=7, weights={"vip": 3}))
    assert (stored.revision, stored.target_bps, dict(stored.weights)) == (0, 7_200_000, {"vip": 3})


def test_a_tunnels_name_is_its_origins_while_that_is_heard() -> None:
    control = TunnelControl("gold")
    silence_us = 10 * MEGA
    own, other = report(1, 1e6, 1), report(2, 1e6, 1)
    other.origin_node = "mallory"
    assert not control.of_another(other, NOW_US, silence_us)
    take(control, own)
    seen_us = NOW_US + PERIOD_US
    assert control.of_another(other, seen_us + 1, silence_us)
    assert not control.of_another(report(2, 1e6, 1), seen_us + 1, silence_us)
    # It moved to another node: the one before is heard no more.
    assert not control.of_another(other, seen_us + silence_us, silence_us)


def test_a_tunnel_that_carries_nothing_says_why_and_one_that_nobody_set_does_not() -> None:
    control = TunnelControl("gold")
    later_us = NOW_US + PERIOD_US
    assert control.down(later_us, LEASE_US) == ""
    control.use(settings())
    assert "has not reported yet" in control.down(later_us, LEASE_US)
    take(control, report(1, 6 * MEGA, 5))
    assert control.down(later_us, LEASE_US) == ""
    assert "silent for" in control.down(later_us + 2 * LEASE_US, LEASE_US)
    take(control, TunnelReport(tunnel="gold", session=1, last_error="connection refused"))
    assert control.down(NOW_US, LEASE_US) == "the tunnel's destination reports nothing: connection refused"
