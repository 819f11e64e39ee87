"""What reservations decides about a request over its life, without a database, streams or a clock.

A `Reservation` is one request with everything known about it. The functions here take it and an occurrence (a
status from an agent, a moment reached, a release) and return the changed reservation and which records have to go
out; the repository stores both in one transaction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from chart.common import leases
from chart.common.rpc_errors import RefusalError
from chart.reservations.admission import FOREVER_US, Granted, Refused
from chart.reservations.state_machines import ENFORCEMENT, LIFECYCLE, EnforcementEvent, LifecycleEvent
from chart.reservations.validation import CheckedRequest
from chart.v1 import flow_grant_pb2, grant_status_pb2, rate_request_pb2, reservations_pb2
from chart.v1.grant_status_pb2 import GrantState
from chart.v1.rate_request_pb2 import CallbackState, Enforcement, Lifecycle, RateRequestSpecification, ServiceState

LIVE = (Lifecycle.LIFECYCLE_HELD, Lifecycle.LIFECYCLE_RESERVED, Lifecycle.LIFECYCLE_ACTIVE)


@dataclass(frozen=True)
class Timing:
    """Time limits, microseconds."""

    grant_validity_us: int = 60_000_000
    confirmation_limit_us: int = 10_000_000
    remember_ended_us: int = 24 * 3600 * 1_000_000


@dataclass(frozen=True)
class Reservation:
    """One request."""

    id: str
    revision: int
    owner: str
    specification: RateRequestSpecification
    selector: flow_grant_pb2.FlowSelector
    lifecycle: int
    enforcement: int
    service_state: int
    callback_state: int
    granted_bps: int
    link_ids: tuple[str, ...]
    confirming_nodes: tuple[str, ...]
    start_us: int
    end_us: int
    created_at_us: int
    updated_at_us: int
    enforced_at_us: int
    reason: str
    # Of the newest grant record, and of the first record with the same content: a renewal needs no new confirmation.
    generation: int
    content_generation: int
    grant_issued_at_us: int
    grant_valid_until_us: int
    # Until when the nodes have to confirm; 0 when nothing is waited for.
    confirm_by_us: int
    # The next moment at which `at_due` has something to do; FOREVER_US: none.
    due_at_us: int
    # Of the call that asked for it; travels with every grant record.
    traceparent: str
    confirmations: Mapping[str, grant_status_pb2.GrantStatus] = field(default_factory=dict)

    @property
    def active(self) -> bool:
        """Whether its grant is in force."""
        return self.lifecycle == Lifecycle.LIFECYCLE_ACTIVE


@dataclass(frozen=True)
class Outcome:
    """A changed reservation, and what has to be told."""

    reservation: Reservation
    # A grant record: "put", "tombstone", or "" for none.
    grant: str = ""
    # Whether chart.rate-request.v1 gets the request anew (or, for "forget", its tombstone).
    announce: bool = True
    forget: bool = False
    frees_capacity: bool = False
    action: str = ""


def refusal_error(refused: Refused) -> RefusalError:
    """The refusal as an error of the call."""
    return RefusalError(refusal_message(refused))


def refusal_message(refused: Refused) -> reservations_pb2.Refusal:
    """The refusal as a message."""
    return reservations_pb2.Refusal(
        code=refused.code,
        detail=refused.detail,
        field=refused.field,
        bottleneck_link_id=refused.bottleneck_link_id,
        floor_bps=refused.floor_bps,
        ceiling_bps=refused.ceiling_bps,
        suggestions=refused.suggestions,
    )


def create(
    request_id: str,
    owner: str,
    checked: CheckedRequest,
    granted: Granted,
    now_us: int,
    traceparent: str,
    timing: Timing,
) -> Outcome:
    """A request that admission let through; its grant goes out at once unless it starts later."""
    nodes = dict.fromkeys(link.from_node for link in granted.links)
    reservation = Reservation(
        id=request_id,
        revision=1,
        owner=owner,
        specification=checked.specification,
        selector=checked.selector,
        lifecycle=Lifecycle.LIFECYCLE_RESERVED,
        enforcement=Enforcement.ENFORCEMENT_PENDING,
        service_state=ServiceState.SERVICE_STATE_GRANTED,
        callback_state=CallbackState.CALLBACK_STATE_NONE,
        granted_bps=granted.granted_bps,
        link_ids=granted.link_ids,
        confirming_nodes=tuple(nodes),
        start_us=checked.ask.start_us,
        end_us=checked.ask.end_us,
        created_at_us=now_us,
        updated_at_us=now_us,
        enforced_at_us=0,
        reason="",
        generation=0,
        content_generation=0,
        grant_issued_at_us=0,
        grant_valid_until_us=0,
        confirm_by_us=0,
        due_at_us=checked.ask.start_us,
        traceparent=traceparent,
    )
    if checked.ask.start_us <= now_us:
        return dataclasses.replace(_activate(reservation, now_us, timing, bump=False), action="rate-request.create")
    waiting = dataclasses.replace(reservation, reason="waits for its start")
    return Outcome(waiting, action="rate-request.create")


def release(reservation: Reservation, now_us: int, timing: Timing) -> Outcome | None:
    """Give the rate back; None when the request has ended already."""
    return _end(reservation, LifecycleEvent.RELEASE, "released", now_us, timing)


def at_due(reservation: Reservation, now_us: int, timing: Timing) -> Outcome | None:
    """What a moment brings that was waited for; None when nothing is due yet."""
    if reservation.lifecycle not in LIVE:
        if now_us < reservation.updated_at_us + timing.remember_ended_us:
            return None
        forgotten = dataclasses.replace(reservation, due_at_us=FOREVER_US)
        return Outcome(forgotten, announce=False, forget=True)
    if now_us >= reservation.end_us:
        return _end(reservation, LifecycleEvent.END, "its end was reached", now_us, timing)
    if not reservation.active:
        return _activate(reservation, now_us, timing, bump=True) if now_us >= reservation.start_us else None
    changed = reservation
    announce = False
    if reservation.confirm_by_us and now_us >= reservation.confirm_by_us:
        changed = _judge(dataclasses.replace(reservation, confirm_by_us=0), now_us, timing, timed_out=True)
        announce = changed.enforcement != reservation.enforcement or changed.reason != reservation.reason
    renew = changed.grant_valid_until_us < changed.end_us and leases.renewal_due(
        changed.grant_issued_at_us, changed.grant_valid_until_us, now_us
    )
    if renew:
        changed = _issue(changed, now_us, timing)
    if changed is reservation:
        return None
    if announce:
        changed = _revised(changed, now_us)
    changed = dataclasses.replace(changed, due_at_us=_due_at(changed))
    return Outcome(changed, grant="put" if renew else "", announce=announce)


def on_status(
    reservation: Reservation, status: grant_status_pb2.GrantStatus, now_us: int, timing: Timing
) -> Outcome | None:
    """A node's word about a grant; None when it changes nothing (an old generation, a node off the path)."""
    if status.node not in reservation.confirming_nodes:
        return None
    before = reservation.confirmations.get(status.node)
    removal = status.state == GrantState.GRANT_STATE_REMOVED
    if not removal and status.generation < reservation.content_generation:
        return None
    if before is not None and status.generation < before.generation:
        return None
    changed = dataclasses.replace(reservation, confirmations={**reservation.confirmations, status.node: status})
    if reservation.active:
        changed = _judge(changed, now_us, timing)
    announce = (
        changed.enforcement != reservation.enforcement
        or changed.reason != reservation.reason
        or before is None
        or (before.state, before.reason, before.kernel_rate_bps)
        != (status.state, status.reason, status.kernel_rate_bps)
    )
    if announce:
        changed = _revised(changed, now_us)
    if reservation.active:
        changed = dataclasses.replace(changed, due_at_us=_due_at(changed))
    return Outcome(changed, announce=announce)


def on_statuses(
    reservation: Reservation, statuses: Iterable[grant_status_pb2.GrantStatus], now_us: int, timing: Timing
) -> Outcome | None:
    """Several words at once: one change, told once."""
    merged: Outcome | None = None
    for status in statuses:
        outcome = on_status(merged.reservation if merged else reservation, status, now_us, timing)
        if outcome is not None:
            merged = dataclasses.replace(outcome, announce=outcome.announce or (merged is not None and merged.announce))
    return merged


def _activate(reservation: Reservation, now_us: int, timing: Timing, *, bump: bool) -> Outcome:
    lifecycle = LIFECYCLE.next(reservation.lifecycle, LifecycleEvent.START)
    assert lifecycle is not None
    changed = dataclasses.replace(
        reservation,
        lifecycle=lifecycle,
        reason="waits for " + ", ".join(reservation.confirming_nodes),
        content_generation=reservation.generation + 1,
        confirm_by_us=now_us + timing.confirmation_limit_us,
    )
    changed = _issue(changed, now_us, timing)
    if bump:
        changed = _revised(changed, now_us)
    return Outcome(dataclasses.replace(changed, due_at_us=_due_at(changed)), grant="put", action="rate-request.start")


def _end(reservation: Reservation, event: LifecycleEvent, reason: str, now_us: int, timing: Timing) -> Outcome | None:
    lifecycle = LIFECYCLE.next(reservation.lifecycle, event)
    if lifecycle is None:
        return None
    changed = dataclasses.replace(
        reservation,
        lifecycle=lifecycle,
        reason=reason,
        confirm_by_us=0,
        due_at_us=now_us + timing.remember_ended_us,
    )
    # A tombstone even if the grant never went out: harmless, and a record on its way cannot be left behind.
    verb = "release" if event == LifecycleEvent.RELEASE else "expire"
    return Outcome(
        _revised(changed, now_us),
        grant="tombstone" if reservation.generation else "",
        frees_capacity=True,
        action=f"rate-request.{verb}",
    )


def _issue(reservation: Reservation, now_us: int, timing: Timing) -> Reservation:
    """The next generation of the grant record, with a new lease."""
    return dataclasses.replace(
        reservation,
        generation=reservation.generation + 1,
        grant_issued_at_us=now_us,
        grant_valid_until_us=leases.expiry_us(now_us, timing.grant_validity_us, reservation.end_us),
    )


def _due_at(reservation: Reservation) -> int:
    """The next moment that matters to an active request."""
    half = (reservation.grant_valid_until_us - reservation.grant_issued_at_us + 1) // 2
    renewal_us = reservation.grant_issued_at_us + half
    if reservation.grant_valid_until_us >= reservation.end_us:
        renewal_us = reservation.end_us
    return min(reservation.end_us, renewal_us, reservation.confirm_by_us or FOREVER_US)


def _revised(reservation: Reservation, now_us: int) -> Reservation:
    return dataclasses.replace(reservation, revision=reservation.revision + 1, updated_at_us=now_us)


def _judge(reservation: Reservation, now_us: int, timing: Timing, *, timed_out: bool = False) -> Reservation:
    """Enforcement that follows from what the nodes said."""
    event, reason = judge(reservation, timed_out=timed_out)
    state = ENFORCEMENT.next(reservation.enforcement, event) if event is not None else None
    if state is None:
        return dataclasses.replace(reservation, reason=reason)
    enforced_at_us, confirm_by_us = reservation.enforced_at_us, 0
    if state == Enforcement.ENFORCEMENT_ENFORCED and reservation.enforcement != state:
        applied = [reservation.confirmations[node].applied_at_us for node in reservation.confirming_nodes]
        enforced_at_us = max(applied) or now_us
    if state == Enforcement.ENFORCEMENT_PENDING:
        came_open = reservation.enforcement != state
        confirm_by_us = now_us + timing.confirmation_limit_us if came_open else reservation.confirm_by_us
    return dataclasses.replace(
        reservation, enforcement=state, reason=reason, enforced_at_us=enforced_at_us, confirm_by_us=confirm_by_us
    )


def judge(reservation: Reservation, *, timed_out: bool = False) -> tuple[EnforcementEvent | None, str]:
    """The enforcement event that the nodes' statuses amount to, and the reason in words ("" when all is well).

    A node that failed outweighs one that is silent, that outweighs one that only observes.
    """
    failed, silent, watching = [], [], []
    for node in reservation.confirming_nodes:
        status = reservation.confirmations.get(node)
        state = status.state if status is not None else GrantState.GRANT_STATE_UNSPECIFIED
        if state == GrantState.GRANT_STATE_FAILED:
            assert status is not None
            failed.append(f"{node}: {status.reason or 'failed without a reason'}")
        elif state == GrantState.GRANT_STATE_OBSERVED:
            assert status is not None
            watching.append(f"{node} does not enforce" + (f" ({status.reason})" if status.reason else ""))
        elif state == GrantState.GRANT_STATE_REMOVED:
            silent.append(f"{node} (removed the grant)")
        elif state != GrantState.GRANT_STATE_APPLIED:
            silent.append(node)
    if failed:
        return EnforcementEvent.NODE_FAILED, "; ".join(failed)
    if silent:
        names = ", ".join(silent)
        if timed_out or reservation.enforcement == Enforcement.ENFORCEMENT_FAILED:
            return EnforcementEvent.TIMEOUT, f"no confirmation from {names}; still trying"
        again = reservation.enforcement == Enforcement.ENFORCEMENT_ENFORCED
        return EnforcementEvent.AGAIN_OPEN if again else None, f"waits for {names}"
    if watching:
        return EnforcementEvent.AGAIN_OPEN, "; ".join(watching)
    return EnforcementEvent.ALL_APPLIED, ""


def grant_record(reservation: Reservation) -> flow_grant_pb2.FlowGrant:
    """The record of chart.flow-grant.v1."""
    specification = reservation.specification
    maximum_bps = specification.maximum_bps
    return flow_grant_pb2.FlowGrant(
        request_id=reservation.id,
        generation=reservation.generation,
        selector=reservation.selector,
        link_ids=reservation.link_ids,
        service=specification.service,
        guaranteed_bps=reservation.granted_bps,
        maximum_bps=maximum_bps,
        preemption_priority=specification.preemption_priority,
        delay_priority=specification.delay_priority,
        burst_tolerance=specification.burst_tolerance,
        valid_from_us=reservation.start_us,
        valid_until_us=reservation.grant_valid_until_us,
        with_available_rate=not maximum_bps or maximum_bps > reservation.granted_bps,
    )


def rate_request(reservation: Reservation) -> rate_request_pb2.RateRequest:
    """The request as its owner and chart.rate-request.v1 get it."""
    return rate_request_pb2.RateRequest(
        id=reservation.id,
        revision=reservation.revision,
        owner=reservation.owner,
        specification=reservation.specification,
        lifecycle=Lifecycle.ValueType(reservation.lifecycle),
        enforcement=Enforcement.ValueType(reservation.enforcement),
        service_state=ServiceState.ValueType(reservation.service_state),
        callback_state=CallbackState.ValueType(reservation.callback_state),
        granted_bps=reservation.granted_bps,
        link_ids=reservation.link_ids,
        selector=reservation.selector,
        created_at_us=reservation.created_at_us,
        updated_at_us=reservation.updated_at_us,
        enforced_at_us=reservation.enforced_at_us,
        confirmations=[
            reservation.confirmations[node]
            for node in reservation.confirming_nodes
            if node in reservation.confirmations
        ],
        confirming_nodes=reservation.confirming_nodes,
        reason=reservation.reason,
    )


def preview(decision: Granted | Refused) -> reservations_pb2.PreviewRateRequestResponse:
    """A decision as the answer to a preview."""
    if isinstance(decision, Granted):
        return reservations_pb2.PreviewRateRequestResponse(
            granted=True,
            granted_bps=decision.granted_bps,
            link_ids=decision.link_ids,
            bottleneck_link_id=decision.bottleneck.id,
            ceiling_bps=decision.ceiling_bps,
        )
    return reservations_pb2.PreviewRateRequestResponse(
        granted=False,
        refusal=refusal_message(decision),
        bottleneck_link_id=decision.bottleneck_link_id,
        ceiling_bps=decision.ceiling_bps,
    )
