"""What the reports of nodes amount to: whether a request is enforced, and why not. Pure."""

from __future__ import annotations

from chart.common.units import rfc3339
from chart.reservations.decisions.reservation import Reservation, Timing
from chart.reservations.decisions.state_machines import ENFORCEMENT, EnforcementEvent
from chart.v1.grant_status_pb2 import GrantState
from chart.v1.rate_request_pb2 import Enforcement, ServiceState


def waiting_words(reservation: Reservation) -> str:
    """What a request waits for whose rate is not in force yet."""
    return f"waits until {rfc3339(reservation.waits_until_us)} at the latest for a rate that drains on its path"


def judged(reservation: Reservation, now_us: int, timing: Timing, *, timed_out: bool = False) -> Reservation:
    """Enforcement that follows from the nodes' statuses."""
    event, reason = judge(reservation, timed_out=timed_out)
    reason = "; ".join(filter(None, (reservation.service_reason, reason)))
    state = ENFORCEMENT.next(reservation.enforcement, event) if event is not None else None
    if state is None:
        return reservation.replaced(reason=reason)
    enforced_at_us, confirm_by_us = reservation.enforced_at_us, 0
    quiet_since_us = reservation.quiet_since_us or now_us
    if state == Enforcement.ENFORCEMENT_ENFORCED and reservation.enforcement != state:
        applied = [reservation.confirmations[node].applied_at_us for node in reservation.confirming_nodes]
        enforced_at_us = max(applied) or now_us
    if state == Enforcement.ENFORCEMENT_PENDING:
        came_open = reservation.enforcement != state
        confirm_by_us = now_us + timing.confirmation_limit_us if came_open else reservation.confirm_by_us
    enforced = state == Enforcement.ENFORCEMENT_ENFORCED
    return reservation.replaced(
        enforcement=state,
        reason=reason,
        enforced_at_us=enforced_at_us,
        confirm_by_us=confirm_by_us,
        quiet_since_us=quiet_since_us if enforced else 0,
        unmatched=enforced and reservation.unmatched,
    )


def judge(reservation: Reservation, *, timed_out: bool = False) -> tuple[EnforcementEvent | None, str]:
    """The enforcement event that the nodes' statuses amount to, and the reason ("" when there is none).

    While its rate waits for another one no report confirms it. A node that failed outweighs one whose link went down,
    that outweighs one that has not reported, that outweighs one that only observes.
    """
    if reservation.waits_until_us:
        again = reservation.enforcement != Enforcement.ENFORCEMENT_PENDING
        return EnforcementEvent.AGAIN_OPEN if again else None, waiting_words(reservation)
    failed, cut, silent, watching = [], [], [], []
    over = timed_out or _confirmation_over(reservation)
    for node in reservation.confirming_nodes:
        status = reservation.confirmations.get(node)
        state = status.state if status is not None else GrantState.GRANT_STATE_UNSPECIFIED
        if status is not None and status.generation < reservation.content_generation:
            # Said of an earlier rate or path.
            state = GrantState.GRANT_STATE_UNSPECIFIED
        if state == GrantState.GRANT_STATE_FAILED:
            assert status is not None
            words = f"{node}: {status.reason or 'failed, no reason reported'}"
            if status.link_down and not over and reservation.service_state == ServiceState.SERVICE_STATE_GRANTED:
                cut.append(words)
            else:
                failed.append(words)
        elif state == GrantState.GRANT_STATE_OBSERVED:
            assert status is not None
            watching.append(f"{node} does not enforce" + (f" ({status.reason})" if status.reason else ""))
        elif state == GrantState.GRANT_STATE_REMOVED:
            silent.append(f"{node} (removed the grant)")
        elif state != GrantState.GRANT_STATE_APPLIED:
            silent.append(node)
    if failed:
        return EnforcementEvent.NODE_FAILED, "; ".join(failed)
    again = reservation.enforcement == Enforcement.ENFORCEMENT_ENFORCED
    if cut:
        # Its node's state says so too, on another stream: admission takes it where its packets go, or degrades it.
        words = f"{'; '.join(cut)}; waits to be admitted where its packets go now"
        return EnforcementEvent.AGAIN_OPEN if again else None, words
    if silent:
        names = ", ".join(silent)
        if timed_out or reservation.enforcement == Enforcement.ENFORCEMENT_FAILED:
            return EnforcementEvent.TIMEOUT, f"no confirmation from {names}; still being published"
        return EnforcementEvent.AGAIN_OPEN if again else None, f"waiting for {names}"
    if watching:
        return EnforcementEvent.AGAIN_OPEN, "; ".join(watching)
    return EnforcementEvent.ALL_APPLIED, ""


def _confirmation_over(reservation: Reservation) -> bool:
    """Whether the time for its confirmation is over, so that a link that is down is not waited for any more."""
    pending = reservation.enforcement == Enforcement.ENFORCEMENT_PENDING
    failed = reservation.enforcement == Enforcement.ENFORCEMENT_FAILED
    return failed or (pending and not reservation.confirm_by_us)
