"""What reservations decides about a request over its life, without a database, streams or a clock.

A `Reservation` is one request with everything known about it. The functions here take it and an occurrence (a
status from an agent, a moment reached, a release) and return the changed reservation and which records have to go
out; the repository stores both in one transaction.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from chart.common import leases
from chart.reservations.decisions import observed
from chart.reservations.decisions.admission import Granted
from chart.reservations.decisions.confirmations import judged
from chart.reservations.decisions.reservation import LIVE, Draining, Outcome, Reservation, Timing
from chart.reservations.decisions.state_machines import ENFORCEMENT, LIFECYCLE, EnforcementEvent, LifecycleEvent
from chart.reservations.decisions.validation import CheckedRequest
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import grant_status_pb2
from chart.v1.grant_status_pb2 import GrantState
from chart.v1.rate_request_pb2 import CallbackState, Enforcement, Lifecycle, ServiceState

# States of a node that has a later generation, and applies no earlier one.
_REPLACED = (GrantState.GRANT_STATE_APPLIED, GrantState.GRANT_STATE_OBSERVED)


def create(
    request_id: str,
    owner: str,
    checked: CheckedRequest,
    granted: Granted,
    now_us: int,
    traceparent: str,
    timing: Timing,
) -> Outcome:
    """A request that admission let through; its grant goes out at once unless it is held or starts later."""
    nodes = dict.fromkeys(link.from_node for link in granted.links)
    hold = checked.specification.hold
    reservation = Reservation(
        id=request_id,
        revision=1,
        owner=owner,
        specification=checked.specification,
        selector=checked.selector,
        lifecycle=Lifecycle.LIFECYCLE_HELD if hold else Lifecycle.LIFECYCLE_RESERVED,
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
        hold_until_us=now_us + timing.hold_limit_us if hold else 0,
        source_node=checked.ask.source_node,
        destination_node=checked.ask.destination_node,
    )
    committed = reservation.commitments_for(granted, now_us)
    reservation = reservation.replaced(commitments=committed)
    if hold:
        due_at_us = min(reservation.hold_until_us, reservation.end_us)
        held = reservation.replaced(reason="held, waiting for commit", due_at_us=due_at_us)
        return Outcome(held, action="rate-request.hold")
    if checked.ask.start_us <= now_us:
        return dataclasses.replace(_activate(reservation, now_us, timing, bump=False), action="rate-request.create")
    waiting = reservation.replaced(reason="waiting for its start")
    return Outcome(waiting, action="rate-request.create")


def commit(reservation: Reservation, now_us: int, timing: Timing) -> Outcome | None:
    """Commit a held request; None when it is committed already or has ended.

    What the rate is committed for does not change: a start that passed meanwhile is now.
    """
    later = reservation.start_us > now_us
    event = LifecycleEvent.COMMIT_FOR_LATER if later else LifecycleEvent.COMMIT_NOW
    lifecycle = LIFECYCLE.next(reservation.lifecycle, event)
    if lifecycle is None or now_us >= min(reservation.hold_until_us, reservation.end_us):
        return None
    if later:
        changed = reservation.replaced(
            lifecycle=lifecycle, reason="waiting for its start", due_at_us=reservation.start_us
        )
        return Outcome(_revised(changed, now_us), action="rate-request.commit")
    return dataclasses.replace(
        _activate(reservation, now_us, timing, bump=True, event=event), action="rate-request.commit"
    )


def release(reservation: Reservation, now_us: int, timing: Timing) -> Outcome | None:
    """Release the rate; None when the request has ended already."""
    return _end(reservation, LifecycleEvent.RELEASE, "released", now_us, timing)


def at_due(reservation: Reservation, now_us: int, timing: Timing) -> Outcome | None:
    """What a moment brings that was waited for; None when nothing is due yet."""
    if reservation.lifecycle not in LIVE:
        if now_us < reservation.updated_at_us + timing.remember_ended_us:
            return None
        forgotten = reservation.replaced(due_at_us=FOREVER_US)
        return Outcome(forgotten, announce=False, forget=True)
    if reservation.lifecycle == Lifecycle.LIFECYCLE_HELD:
        if now_us < min(reservation.hold_until_us, reservation.end_us):
            return None
        return _end(reservation, LifecycleEvent.HOLD_TIMEOUT, "was not committed in time", now_us, timing)
    if now_us >= reservation.end_us:
        return _end(reservation, LifecycleEvent.END, "its end was reached", now_us, timing)
    if not reservation.active:
        return _activate(reservation, now_us, timing, bump=True) if now_us >= reservation.start_us else None
    if reservation.waits_until_us and now_us >= reservation.waits_until_us:
        return enter_force(reservation, now_us, timing)
    changed = reservation
    announce = False
    if _unmatched_at(reservation, timing) <= now_us:
        changed = changed.replaced(unmatched=True)
        announce = True
    if reservation.confirm_by_us and now_us >= reservation.confirm_by_us:
        changed = judged(changed.replaced(confirm_by_us=0), now_us, timing, timed_out=True)
        announce = announce or changed.enforcement != reservation.enforcement or changed.reason != reservation.reason
    renew = changed.grant_valid_until_us < changed.end_us and leases.renewal_due(
        changed.grant_issued_at_us, changed.grant_valid_until_us, now_us
    )
    if renew:
        changed = _issue(changed, now_us, timing)
    if changed is reservation:
        return None
    if announce:
        changed = _revised(changed, now_us)
    changed = changed.replaced(due_at_us=due_at_us(changed, timing))
    return Outcome(changed, grant="put" if renew else "", announce=announce)


def on_status(
    reservation: Reservation, status: grant_status_pb2.GrantStatus, now_us: int, timing: Timing
) -> Outcome | None:
    """A node's word about a grant; None when it changes nothing (an old generation, a node off the path)."""
    drained = _drained(reservation, status)
    heard = _on_word(reservation if drained is None else drained.reservation, status, now_us, timing)
    if drained is None:
        return heard
    if heard is None:
        return dataclasses.replace(drained, reservation=_revised(drained.reservation, now_us))
    if not heard.announce:
        heard = dataclasses.replace(heard, reservation=_revised(heard.reservation, now_us), announce=True)
    return dataclasses.replace(heard, drained=drained.drained)


def _drained(reservation: Reservation, status: grant_status_pb2.GrantStatus) -> Outcome | None:
    """A node reported that it does not apply any more what drains; None: it did not."""
    draining = reservation.draining
    if status.node not in draining.nodes:
        return None
    removed = status.state == GrantState.GRANT_STATE_REMOVED and status.generation >= draining.generation
    replaced = status.state in _REPLACED and status.generation > draining.generation
    if not removed and not replaced:
        return None
    nodes = tuple(node for node in draining.nodes if node != status.node)
    if nodes:
        return Outcome(reservation.replaced(draining=Draining(nodes, draining.parts)))
    return Outcome(reservation.replaced(draining=Draining()), drained=draining.parts)


def _on_word(
    reservation: Reservation, status: grant_status_pb2.GrantStatus, now_us: int, timing: Timing
) -> Outcome | None:
    """What a node's word says of the grant in force."""
    if status.node not in reservation.confirming_nodes:
        return None
    before = reservation.confirmations.get(status.node)
    removal = status.state == GrantState.GRANT_STATE_REMOVED
    if not removal and status.generation < reservation.content_generation:
        return None
    if before is not None and status.generation < before.generation:
        return None
    if not reservation.live and before is not None and before.state == GrantState.GRANT_STATE_REMOVED and not removal:
        # Written before the node removed the grant, and late.
        return None
    changed = reservation.replaced(confirmations={**reservation.confirmations, status.node: status})
    if reservation.active:
        changed = judged(changed, now_us, timing)
        if changed.quiet_since_us and _flows_seen(reservation, before, status):
            changed = changed.replaced(quiet_since_us=now_us, unmatched=False)
    announce = (
        changed.enforcement != reservation.enforcement
        or changed.unmatched != reservation.unmatched
        or changed.reason != reservation.reason
        or observed.warning(changed) != observed.warning(reservation)
        or before is None
        or (before.state, before.reason, before.kernel_rate_bps)
        != (status.state, status.reason, status.kernel_rate_bps)
    )
    if announce:
        changed = _revised(changed, now_us)
    if reservation.active:
        changed = changed.replaced(due_at_us=due_at_us(changed, timing))
    return Outcome(changed, announce=announce)


def on_statuses(
    reservation: Reservation, statuses: Iterable[grant_status_pb2.GrantStatus], now_us: int, timing: Timing
) -> Outcome | None:
    """Several words at once: one change, told once."""
    merged: Outcome | None = None
    for status in statuses:
        outcome = on_status(merged.reservation if merged else reservation, status, now_us, timing)
        if outcome is not None:
            announced = merged is not None and merged.announce
            drained = outcome.drained or (merged.drained if merged is not None else ())
            merged = dataclasses.replace(outcome, announce=outcome.announce or announced, drained=drained)
    return merged


def enter_force(reservation: Reservation, now_us: int, timing: Timing) -> Outcome:
    """What the rate of a request waited for is over: its grant goes out with all of it."""
    waits = "waiting for " + ", ".join(reservation.confirming_nodes)
    reason = "; ".join(filter(None, (reservation.service_reason, waits)))
    entered = reservation.replaced(waits_until_us=0, in_force_bps=0, reason=reason)
    return dataclasses.replace(reissue(entered, now_us, timing), action="rate-request.enter-force")


def is_part(before: Reservation, after: Reservation) -> bool:
    """Whether a word of nodes is only a part of the confirmation that others still owe."""
    return before.enforcement == after.enforcement == Enforcement.ENFORCEMENT_PENDING


def reissue(reservation: Reservation, now_us: int, timing: Timing) -> Outcome:
    """What a change of rate, path or end of a request has to tell: a new grant that has to be confirmed, if it is in
    force.
    """
    if not reservation.active:
        return Outcome(_revised(reservation, now_us))
    enforcement = ENFORCEMENT.next(reservation.enforcement, EnforcementEvent.AGAIN_OPEN)
    changed = reservation.replaced(
        enforcement=reservation.enforcement if enforcement is None else enforcement,
        content_generation=reservation.generation + 1,
        confirm_by_us=now_us + timing.confirmation_limit_us,
        quiet_since_us=0,
        unmatched=False,
    )
    changed = _revised(_issue(changed, now_us, timing), now_us)
    return Outcome(changed.replaced(due_at_us=due_at_us(changed, timing)), grant="put")


def _activate(
    reservation: Reservation,
    now_us: int,
    timing: Timing,
    *,
    bump: bool,
    event: LifecycleEvent = LifecycleEvent.START,
) -> Outcome:
    lifecycle = LIFECYCLE.next(reservation.lifecycle, event)
    assert lifecycle is not None
    changed = reservation.replaced(
        lifecycle=lifecycle,
        reason="waiting for " + ", ".join(reservation.confirming_nodes),
        content_generation=reservation.generation + 1,
        confirm_by_us=now_us + timing.confirmation_limit_us,
        # As if it had been there before: so the profile says what is in use beside what ended a moment ago.
        commitments=tuple(
            one if not one.start_us else dataclasses.replace(one, start_us=0) for one in reservation.commitments
        ),
    )
    changed = _issue(changed, now_us, timing)
    if bump:
        changed = _revised(changed, now_us)
    return Outcome(changed.replaced(due_at_us=due_at_us(changed, timing)), grant="put", action="rate-request.start")


def _end(reservation: Reservation, event: LifecycleEvent, reason: str, now_us: int, timing: Timing) -> Outcome | None:
    lifecycle = LIFECYCLE.next(reservation.lifecycle, event)
    if lifecycle is None:
        return None
    enforcement = ENFORCEMENT.next(reservation.enforcement, EnforcementEvent.END)
    changed = reservation.replaced(
        lifecycle=lifecycle,
        enforcement=reservation.enforcement if enforcement is None else enforcement,
        quiet_since_us=0,
        unmatched=False,
        reason=reason,
        confirm_by_us=0,
        due_at_us=now_us + timing.remember_ended_us,
        ended_at_us=now_us,
        commitments=(),
        waits_until_us=0,
        in_force_bps=0,
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
    return reservation.replaced(
        generation=reservation.generation + 1,
        grant_issued_at_us=now_us,
        grant_valid_until_us=leases.expiry_us(now_us, timing.grant_validity_us, reservation.end_us),
    )


def due_at_us(reservation: Reservation, timing: Timing) -> int:
    """The next moment that matters to an active request."""
    half = (reservation.grant_valid_until_us - reservation.grant_issued_at_us + 1) // 2
    renewal_us = reservation.grant_issued_at_us + half
    if reservation.grant_valid_until_us >= reservation.end_us:
        renewal_us = reservation.end_us
    confirm_by_us = reservation.confirm_by_us or FOREVER_US
    enters_us = reservation.waits_until_us or FOREVER_US
    return min(reservation.end_us, renewal_us, confirm_by_us, enters_us, _unmatched_at(reservation, timing))


def _unmatched_at(reservation: Reservation, timing: Timing) -> int:
    """When it has to be said that no flow matches."""
    waits = reservation.quiet_since_us and not reservation.unmatched
    return reservation.quiet_since_us + timing.no_flow_limit_us if waits else FOREVER_US


def _flows_seen(
    reservation: Reservation, before: grant_status_pb2.GrantStatus | None, status: grant_status_pb2.GrantStatus
) -> bool:
    """Whether the sending node saw flows of the grant, or packets since it spoke last."""
    if status.node != reservation.confirming_nodes[0]:
        return False
    if before is None:
        return bool(status.matching_flows or status.sent_bytes or status.seen_at_us)
    return status.matching_flows > 0 or status.sent_bytes > before.sent_bytes or status.seen_at_us > before.seen_at_us


def _revised(reservation: Reservation, now_us: int) -> Reservation:
    return reservation.replaced(revision=reservation.revision + 1, updated_at_us=now_us)
