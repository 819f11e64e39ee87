"""The life of a request, without database or clock: grants, confirmations, time limits, renewals, ends."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart.reservations.decisions import lifecycle, messages, state_machines
from chart.reservations.decisions.admission import Ask, Granted
from chart.reservations.decisions.network import NetworkLink
from chart.reservations.decisions.reservation import LIVE, Outcome, Reservation, Timing
from chart.reservations.decisions.validation import CheckedRequest
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import rate_request_pb2 as rr
from chart.v1.flow_grant_pb2 import (
    SERVICE_TYPE_GUARANTEED,
    SERVICE_TYPE_UNSPECIFIED,
    SERVICE_TYPE_VARIABLE,
    FlowSelector,
    ServiceType,
)
from chart.v1.grant_status_pb2 import (
    GRANT_STATE_APPLIED,
    GRANT_STATE_FAILED,
    GRANT_STATE_OBSERVED,
    GRANT_STATE_REMOVED,
    GrantState,
    GrantStatus,
)

NOW_US = 1_750_000_000_000_000
S = 1_000_000
TIMING = Timing()


def made(
    start_us: int = NOW_US,
    end_us: int = FOREVER_US,
    *,
    maximum_bps: int = 0,
    service_type: ServiceType.ValueType = SERVICE_TYPE_UNSPECIFIED,
) -> Outcome:
    links = (NetworkLink("a:x", "a", "b", 10**8), NetworkLink("b:x", "b", "c", 10**8))
    granted = Granted(10**7, links, links[0], 8 * 10**7)
    specification = rr.RateRequestSpecification(guaranteed_bps=10**7, maximum_bps=maximum_bps, service=service_type)
    checked = CheckedRequest(specification, FlowSelector(), Ask("a", "c", 10**7, 0, start_us, end_us))
    return lifecycle.create("r1", "alice", checked, granted, NOW_US, "00-trace", TIMING)


def status(node: str, state: int, generation: int = 1, reason: str = "", at_us: int = NOW_US) -> GrantStatus:
    return GrantStatus(
        request_id="r1",
        node=node,
        generation=generation,
        state=GrantState.ValueType(state),
        reason=reason,
        applied_at_us=at_us,
    )


def after(reservation: Reservation, *statuses: GrantStatus) -> Reservation:
    for one in statuses:
        outcome = lifecycle.on_status(reservation, one, NOW_US + S, TIMING)
        if outcome is not None:
            reservation = outcome.reservation
    return reservation


def enforced() -> Reservation:
    return after(made().reservation, status("a", GRANT_STATE_APPLIED), status("b", GRANT_STATE_APPLIED))


def seen(reservation: Reservation, now_us: int, **counted: int) -> Reservation:
    """The sending node speaks again; without figures of its own it saw a flow just now."""
    said = status("a", GRANT_STATE_APPLIED, reservation.generation)
    for name, value in (counted or {"matching_flows": 1, "seen_at_us": now_us}).items():
        setattr(said, name, value)
    outcome = lifecycle.on_status(reservation, said, now_us, TIMING)
    assert outcome is not None
    return outcome.reservation


def due(reservation: Reservation, now_us: int) -> Outcome:
    outcome = lifecycle.at_due(reservation, now_us, TIMING)
    assert outcome is not None
    return outcome


def test_immediate_request_is_active_and_its_grant_goes_out() -> None:
    outcome = made()
    one = outcome.reservation
    assert outcome.grant == "put"
    assert one.lifecycle == rr.LIFECYCLE_ACTIVE
    assert one.confirming_nodes == ("a", "b")
    record = messages.grant_record(one)
    assert record.generation == 1
    assert record.valid_until_us == NOW_US + 60 * S
    assert record.with_available_rate
    assert record.user == one.owner != ""
    assert one.due_at_us == NOW_US + 10 * S


def test_grant_ends_with_the_request_and_is_not_renewed_past_it() -> None:
    one = made(end_us=NOW_US + 20 * S).reservation
    assert one.grant_valid_until_us == NOW_US + 20 * S
    timed_out = due(one, NOW_US + 10 * S)
    assert timed_out.grant == ""
    ended = due(timed_out.reservation, NOW_US + 20 * S)
    assert ended.reservation.lifecycle == rr.LIFECYCLE_EXPIRED
    assert ended.grant == "tombstone"
    assert ended.frees_capacity


def test_advance_request_waits_for_its_start() -> None:
    outcome = made(start_us=NOW_US + 100 * S, end_us=NOW_US + 200 * S)
    assert outcome.grant == ""
    assert outcome.reservation.lifecycle == rr.LIFECYCLE_RESERVED
    assert lifecycle.at_due(outcome.reservation, NOW_US + 99 * S, TIMING) is None
    started = due(outcome.reservation, NOW_US + 100 * S)
    assert started.grant == "put"
    assert started.reservation.lifecycle == rr.LIFECYCLE_ACTIVE
    assert started.reservation.confirm_by_us == NOW_US + 110 * S
    cancelled = lifecycle.release(outcome.reservation, NOW_US, TIMING)
    assert cancelled is not None
    assert cancelled.reservation.lifecycle == rr.LIFECYCLE_CANCELLED
    assert cancelled.grant == ""


def test_enforced_when_every_node_applied() -> None:
    one = after(made().reservation, status("a", GRANT_STATE_APPLIED))
    assert one.enforcement == rr.ENFORCEMENT_PENDING
    assert one.reason == "waiting for b"
    one = after(one, status("b", GRANT_STATE_APPLIED, at_us=NOW_US + 5))
    assert one.enforcement == rr.ENFORCEMENT_ENFORCED
    assert one.enforced_at_us == NOW_US + 5
    assert one.reason == ""
    assert one.confirm_by_us == 0


def test_one_nodes_word_is_a_part_until_the_last_one_or_a_failure() -> None:
    pending = made().reservation
    first = after(pending, status("a", GRANT_STATE_APPLIED))
    assert lifecycle.is_part(pending, first)
    enforced = after(first, status("b", GRANT_STATE_APPLIED))
    assert not lifecycle.is_part(first, enforced)
    assert not lifecycle.is_part(first, after(first, status("b", GRANT_STATE_FAILED)))
    assert not lifecycle.is_part(enforced, after(enforced, status("a", GRANT_STATE_REMOVED)))


def test_observing_node_keeps_it_pending_with_the_reason() -> None:
    one = after(made().reservation, status("a", GRANT_STATE_APPLIED), status("b", GRANT_STATE_OBSERVED, reason="mode"))
    assert one.enforcement == rr.ENFORCEMENT_PENDING
    assert one.reason == "b does not enforce (mode)"
    assert due(one, NOW_US + 10 * S).reservation.enforcement == rr.ENFORCEMENT_PENDING


def test_failing_node_fails_it_with_the_reason_and_recovery_heals() -> None:
    one = after(made().reservation, status("b", GRANT_STATE_FAILED, reason="no interface x"))
    assert one.enforcement == rr.ENFORCEMENT_FAILED
    assert one.reason == "b: no interface x"
    one = after(one, status("a", GRANT_STATE_APPLIED), status("b", GRANT_STATE_APPLIED))
    assert one.enforcement == rr.ENFORCEMENT_ENFORCED


def cut(generation: int = 1) -> GrantStatus:
    """A node says that the link of the grant is down."""
    said = status("b", GRANT_STATE_FAILED, generation, "link b:x is down")
    said.link_down = True
    return said


def test_a_link_that_went_down_is_waited_for_until_the_request_is_admitted_elsewhere_or_time_is_over() -> None:
    one = after(enforced(), cut())
    assert one.enforcement == rr.ENFORCEMENT_PENDING
    assert one.reason == "b: link b:x is down; waits to be admitted where its packets go now"
    assert one.confirm_by_us == one.due_at_us == NOW_US + 11 * S
    assert after(one, status("b", GRANT_STATE_APPLIED)).enforcement == rr.ENFORCEMENT_ENFORCED
    over = due(one, one.confirm_by_us).reservation
    assert (over.enforcement, over.reason) == (rr.ENFORCEMENT_FAILED, "b: link b:x is down")
    # Repeated, it stays what it is.
    assert after(over, cut()).enforcement == rr.ENFORCEMENT_FAILED


def test_a_link_that_is_down_is_not_waited_for_by_a_request_without_its_rate_nor_besides_another_failure() -> None:
    degraded = dataclasses.replace(enforced(), service_state=rr.SERVICE_STATE_DEGRADED)
    assert after(degraded, cut()).enforcement == rr.ENFORCEMENT_FAILED
    both = after(enforced(), cut(), status("a", GRANT_STATE_FAILED, reason="no room"))
    assert (both.enforcement, both.reason) == (rr.ENFORCEMENT_FAILED, "a: no room")


def test_a_link_that_goes_down_under_a_request_that_an_observing_node_keeps_pending_fails_it() -> None:
    waiting = after(made().reservation, status("a", GRANT_STATE_OBSERVED), status("b", GRANT_STATE_APPLIED))
    waiting = due(waiting, NOW_US + 10 * S).reservation
    assert (waiting.enforcement, waiting.confirm_by_us) == (rr.ENFORCEMENT_PENDING, 0)
    assert after(waiting, cut()).enforcement == rr.ENFORCEMENT_FAILED


def test_silence_fails_it_after_ten_seconds_and_late_confirmation_heals() -> None:
    one = after(made().reservation, status("a", GRANT_STATE_APPLIED))
    assert lifecycle.at_due(one, NOW_US + 10 * S - 1, TIMING) is None
    failed = due(one, NOW_US + 10 * S)
    assert failed.announce
    assert failed.reservation.enforcement == rr.ENFORCEMENT_FAILED
    assert failed.reservation.reason == "no confirmation from b; still being published"
    assert failed.reservation.due_at_us == NOW_US + 30 * S
    assert after(failed.reservation, status("b", GRANT_STATE_APPLIED)).enforcement == rr.ENFORCEMENT_ENFORCED


def test_renewal_at_half_validity_needs_no_new_confirmation() -> None:
    one = after(made().reservation, status("a", GRANT_STATE_APPLIED), status("b", GRANT_STATE_APPLIED))
    one = seen(one, NOW_US + 15 * S)
    assert one.due_at_us == NOW_US + 30 * S
    assert lifecycle.at_due(one, NOW_US + 30 * S - 1, TIMING) is None
    renewed = due(one, NOW_US + 30 * S)
    assert renewed.grant == "put"
    assert not renewed.announce
    assert renewed.reservation.generation == 2
    assert renewed.reservation.enforcement == rr.ENFORCEMENT_ENFORCED
    assert renewed.reservation.grant_valid_until_us == NOW_US + 90 * S
    assert after(renewed.reservation, status("a", GRANT_STATE_APPLIED, 1)).enforcement == rr.ENFORCEMENT_ENFORCED


def test_a_grant_without_a_flow_says_so_and_takes_it_back() -> None:
    one = enforced()
    assert one.due_at_us == NOW_US + 21 * S
    assert lifecycle.at_due(one, NOW_US + 21 * S - 1, TIMING) is None
    quiet = due(one, NOW_US + 21 * S)
    assert quiet.announce
    assert quiet.grant == ""
    told = messages.rate_request(quiet.reservation)
    assert told.enforcement == rr.ENFORCEMENT_ENFORCED
    assert told.unmatched_since_us == NOW_US + S
    assert told.warning == "no flow matches: any protocol from anywhere to anywhere"
    assert quiet.reservation.due_at_us == NOW_US + 30 * S, "it is said once"
    still = lifecycle.on_status(quiet.reservation, status("a", GRANT_STATE_APPLIED), NOW_US + 22 * S, TIMING)
    assert still is not None
    assert not still.announce
    assert still.reservation.unmatched
    back = lifecycle.on_status(
        still.reservation,
        GrantStatus(request_id="r1", node="a", generation=1, state=GRANT_STATE_APPLIED, seen_at_us=NOW_US + 25 * S),
        NOW_US + 25 * S,
        TIMING,
    )
    assert back is not None
    assert back.announce
    told = messages.rate_request(back.reservation)
    assert (told.warning, told.unmatched_since_us) == ("", 0)


@pytest.mark.parametrize("counted", [{"matching_flows": 2}, {"sent_bytes": 10}, {"seen_at_us": NOW_US}])
def test_a_flow_packets_or_octets_are_a_flow(counted: dict[str, int]) -> None:
    one = seen(enforced(), NOW_US + 20 * S, **counted)
    assert lifecycle.at_due(one, NOW_US + 29 * S, TIMING) is None
    assert messages.rate_request(one).matching_flows == counted.get("matching_flows", 0)
    # The same figures again: an open flow is still one, octets and packets of before are not new ones.
    again = seen(one, NOW_US + 35 * S, **counted)
    assert again.quiet_since_us == NOW_US + (35 if "matching_flows" in counted else 20) * S


def test_flows_at_other_nodes_do_not_count() -> None:
    one = enforced()
    said = status("b", GRANT_STATE_APPLIED)
    said.sent_bytes = 10**6
    assert after(one, said).quiet_since_us == one.quiet_since_us == NOW_US + S


def test_a_new_rate_begins_to_wait_for_flows_anew() -> None:
    quiet = due(enforced(), NOW_US + 21 * S).reservation
    again = lifecycle.reissue(quiet, NOW_US + 22 * S, TIMING).reservation
    assert (again.unmatched, again.quiet_since_us) == (False, 0)


ENDS = {
    "released": lambda one: lifecycle.release(one, NOW_US + 30 * S, TIMING),
    "expired": lambda one: lifecycle.at_due(one.replaced(end_us=NOW_US + 30 * S), NOW_US + 30 * S, TIMING),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@given(st.permutations(range(5)))
@settings(max_examples=40, deadline=None)
def test_what_nodes_say_after_the_end_enforces_nothing(
    end: Callable[[Reservation], Outcome | None], order: list[int]
) -> None:
    outcome = end(enforced())
    assert outcome is not None
    one = outcome.reservation
    assert one.enforcement == rr.ENFORCEMENT_ENDED
    said = [
        status("a", GRANT_STATE_APPLIED),
        status("a", GRANT_STATE_REMOVED),
        status("b", GRANT_STATE_APPLIED),
        status("b", GRANT_STATE_REMOVED),
        status("b", GRANT_STATE_FAILED, reason="late"),
    ]
    one = after(one, *(said[place] for place in order))
    told = messages.rate_request(one)
    assert told.enforcement == rr.ENFORCEMENT_ENDED
    assert told.warning == ""
    assert {status.state for status in told.confirmations} == {GRANT_STATE_REMOVED}, "the last word of each node"


def test_node_that_removed_the_grant_opens_it_again() -> None:
    one = after(made().reservation, status("a", GRANT_STATE_APPLIED), status("b", GRANT_STATE_APPLIED))
    one = after(one, status("b", GRANT_STATE_REMOVED))
    assert one.enforcement == rr.ENFORCEMENT_PENDING
    assert one.reason == "waiting for b (removed the grant)"
    assert one.confirm_by_us == NOW_US + 11 * S


def test_old_generations_and_strangers_do_not_count() -> None:
    one = dataclasses.replace(made().reservation, generation=5, content_generation=5)
    assert lifecycle.on_status(one, status("a", GRANT_STATE_APPLIED, 4), NOW_US, TIMING) is None
    assert lifecycle.on_status(one, status("z", GRANT_STATE_APPLIED, 5), NOW_US, TIMING) is None


def test_release_once() -> None:
    released = lifecycle.release(made().reservation, NOW_US + S, TIMING)
    assert released is not None
    assert (released.grant, released.frees_capacity) == ("tombstone", True)
    assert released.reservation.lifecycle == rr.LIFECYCLE_RELEASED
    assert lifecycle.release(released.reservation, NOW_US + S, TIMING) is None
    late = lifecycle.on_status(released.reservation, status("a", GRANT_STATE_REMOVED), NOW_US + 2 * S, TIMING)
    assert late is not None
    assert late.reservation.lifecycle == rr.LIFECYCLE_RELEASED
    assert late.reservation.due_at_us == released.reservation.due_at_us


def test_ended_request_is_forgotten_a_day_later() -> None:
    released = lifecycle.release(made().reservation, NOW_US, TIMING)
    assert released is not None
    assert lifecycle.at_due(released.reservation, NOW_US + S, TIMING) is None
    forgotten = due(released.reservation, NOW_US + 24 * 3600 * S)
    assert forgotten.forget
    assert forgotten.reservation.due_at_us == FOREVER_US


def test_maximum_at_the_guaranteed_rate_takes_no_available_rate() -> None:
    assert not messages.grant_record(made(maximum_bps=10**7).reservation).with_available_rate
    assert messages.grant_record(made(maximum_bps=2 * 10**7).reservation).with_available_rate


def test_a_guaranteed_rate_is_that_rate_and_who_lost_it_has_the_available_one() -> None:
    one = made(service_type=SERVICE_TYPE_GUARANTEED).reservation
    assert not messages.grant_record(one).with_available_rate
    assert messages.grant_record(dataclasses.replace(one, granted_bps=0)).with_available_rate
    assert messages.grant_record(made(service_type=SERVICE_TYPE_VARIABLE).reservation).with_available_rate


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "due", "release"]),
            st.sampled_from([GRANT_STATE_APPLIED, GRANT_STATE_OBSERVED, GRANT_STATE_FAILED, GRANT_STATE_REMOVED]),
            st.integers(0, 40),
            st.integers(0, 3),
        ),
        max_size=40,
    ),
    st.sampled_from([FOREVER_US, NOW_US + 100 * S]),
    st.integers(0, 50),
)
@settings(max_examples=300, deadline=None)
def test_whatever_happens_states_follow_the_tables_and_nothing_is_stuck(
    steps: list[tuple[str, int, int, int]], end_us: int, start_s: int
) -> None:
    one = made(NOW_US + start_s * S, end_us).reservation
    now_us = NOW_US
    for what, state, seconds, age in steps:
        now_us += seconds * S
        before = one
        outcome: Outcome | None
        if what == "due":
            outcome = lifecycle.at_due(one, now_us, TIMING)
        elif what == "release":
            outcome = lifecycle.release(one, now_us, TIMING)
        else:
            generation = max(0, one.generation - age)
            outcome = lifecycle.on_status(one, status(what, state, generation), now_us, TIMING)
        if outcome is None:
            continue
        one = outcome.reservation
        for machine, old, new in (
            (state_machines.LIFECYCLE, before.lifecycle, one.lifecycle),
            (state_machines.ENFORCEMENT, before.enforcement, one.enforcement),
        ):
            reachable = {target for (origin, _), target in machine.transitions.items() if origin == old}
            assert new == old or new in reachable
        assert one.revision > before.revision or not outcome.announce
        assert one.generation >= before.generation
        if one.lifecycle in LIVE and what == "due":
            assert one.due_at_us > now_us, "time moves on"
        if one.enforcement == rr.ENFORCEMENT_ENFORCED and one.active:
            assert all(one.confirmations[node].state == GRANT_STATE_APPLIED for node in one.confirming_nodes)
        if one.active:
            assert one.due_at_us <= max(one.grant_valid_until_us, one.end_us)


@pytest.mark.parametrize("machine", state_machines.ALL, ids=lambda machine: machine.name)
def test_tables_are_sound(machine: state_machines.StateMachine) -> None:
    states = set(machine.names)
    assert set(machine.initial) <= states
    assert {origin for origin, _ in machine.transitions} <= states
    assert set(machine.transitions.values()) <= states
    reached = set(machine.initial)
    for _ in states:
        reached |= {target for (origin, _), target in machine.transitions.items() if origin in reached}
    assert reached == states
    for state, (limit_s, event) in machine.limits.items():
        assert limit_s > 0
        assert machine.next(state, event) is not None
    drawing = state_machines.mermaid(machine)
    assert drawing.startswith("stateDiagram-v2\n")
    assert all(name in drawing for name in machine.names.values())
