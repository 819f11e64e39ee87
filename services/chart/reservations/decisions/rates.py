"""What happens to the rate of a granted request: pre-empted, degraded, restored, moved to another path, changed by its
owner. Each gives a new grant that the agents confirm; the flow is never dropped. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chart.common.units import format_bps
from chart.reservations.decisions import observed
from chart.reservations.decisions.admission import Granted
from chart.reservations.decisions.ledger import Kind
from chart.reservations.decisions.lifecycle import reissue
from chart.reservations.decisions.network import NetworkLink
from chart.reservations.decisions.reservation import (
    MAXIMUM_HISTORY,
    Outcome,
    PastRate,
    Reservation,
    Timing,
    kind_of,
    wanted_bps,
)
from chart.reservations.decisions.state_machines import SERVICE, ServiceEvent
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import flow_grant_pb2, reservations_pb2
from chart.v1.rate_request_pb2 import Lifecycle, RateRequestSpecification, ServiceState


@dataclass(frozen=True)
class Change:
    """What an owner wants to be different; None stays as it is. `end_us` FOREVER_US: until released."""

    guaranteed_bps: int | None = None
    minimum_bps: int | None = None
    maximum_bps: int | None = None
    end_us: int | None = None
    preemption_priority: int | None = None
    description: str | None = None
    callback_url: str | None = None
    tags: Mapping[str, str] | None = None

    @property
    def of_rate(self) -> bool:
        """Whether admission has a say."""
        stated = (self.guaranteed_bps, self.minimum_bps, self.maximum_bps, self.end_us, self.preemption_priority)
        return any(one is not None for one in stated)


def change_of(request: reservations_pb2.ChangeRateRequestRequest) -> Change:
    """What is set in a call."""

    def stated(name: str) -> Any:
        return getattr(request, name) if request.HasField(name) else None  # type: ignore[arg-type]  # one of its fields

    end_us = stated("end_us")
    return Change(
        stated("guaranteed_bps"),
        stated("minimum_bps"),
        stated("maximum_bps"),
        FOREVER_US if end_us == 0 else end_us,
        stated("preemption_priority"),
        stated("description"),
        stated("callback_url"),
        dict(request.tags.tags) if request.HasField("tags") else None,
    )


def preempt(reservation: Reservation, keeps_bps: int, now_us: int, timing: Timing) -> Outcome:
    """Take the rate, or of a background request a part of it; it runs on at the available rate."""
    return _lower(
        reservation,
        keeps_bps,
        ServiceEvent.PREEMPT,
        "its rate went to a request of higher rank",
        "rate-request.preempt",
        now_us,
        timing,
    )


def degrade(
    reservation: Reservation, why: str, now_us: int, timing: Timing, links: Sequence[NetworkLink] = ()
) -> Outcome:
    """A link of the path failed or shrank and the rate does not fit any more. It runs on at the available rate of
    `links`, the path that its packets take now; none: of the one that it has.
    """
    moved = _onto(reservation, links) if links else reservation
    return _lower(moved, 0, ServiceEvent.DEGRADE, why, "rate-request.degrade", now_us, timing)


def run_on(reservation: Reservation, links: Sequence[NetworkLink], why: str, now_us: int, timing: Timing) -> Outcome:
    """Packets of a request without its rate take another path, where it does not fit either: it runs on at the
    available rate there.
    """
    moved = _onto(reservation, links)
    if reservation.service_state == ServiceState.SERVICE_STATE_DEGRADED:
        moved = dataclasses.replace(moved, service_reason=why)
    return _reissued(moved, "rate-request.move", now_us, timing)


def _onto(reservation: Reservation, links: Sequence[NetworkLink]) -> Reservation:
    """The reservation on another path."""
    nodes = tuple(dict.fromkeys(link.from_node for link in links))
    joined = set(nodes) - set(reservation.confirming_nodes)
    return dataclasses.replace(
        reservation,
        link_ids=tuple(link.id for link in links),
        confirming_nodes=nodes,
        confirmations=observed.forgotten(reservation.confirmations, joined),
    )


def restore(reservation: Reservation, granted: Granted, now_us: int, timing: Timing) -> Outcome:
    """It has its rate again, or another one or another path."""
    full = granted.committed_bps >= wanted_bps(reservation.specification)
    state = SERVICE.next(reservation.service_state, ServiceEvent.RESTORE)
    back = state is not None
    reason = ""
    if reservation.background:
        reason = "" if full else f"background: {format_bps(granted.committed_bps)} from the rate that foreground leaves"
    changed = _rated(
        _onto(reservation, granted.links),
        now_us,
        service_state=reservation.service_state if state is None else state,
        granted_bps=granted.granted_bps,
        commitments=reservation.commitments_for(granted, now_us),
        service_reason=reason,
    )
    action = "rate-request.restore" if back else "rate-request.move"
    if not back and granted.link_ids == reservation.link_ids:
        action = "rate-request.raise" if granted.committed_bps > reservation.committed_bps else "rate-request.lower"
    return _reissued(changed, action, now_us, timing)


def readdressed(
    reservation: Reservation, selector: flow_grant_pb2.FlowSelector, now_us: int, timing: Timing
) -> Outcome | None:
    """One of its nodes has other addresses now; None when its flows are the same ones."""
    if not reservation.live or selector == reservation.selector:
        return None
    changed = dataclasses.replace(reservation, selector=selector)
    return _reissued(changed, "rate-request.readdress", now_us, timing)


def asked_anew(reservation: Reservation, change: Change) -> Reservation:
    """The request as its owner wants it; what it commits is as before."""
    specification = RateRequestSpecification()
    specification.CopyFrom(reservation.specification)
    for name in ("guaranteed_bps", "minimum_bps", "maximum_bps", "preemption_priority", "description", "callback_url"):
        value = getattr(change, name)
        if value is not None:
            setattr(specification, name, value)
    end_us = reservation.end_us
    if change.end_us is not None:
        end_us = change.end_us
        specification.end_us = 0 if end_us == FOREVER_US else end_us
        specification.duration_us = 0
    if change.tags is not None:
        specification.tags.clear()
        specification.tags.update(change.tags)
    return dataclasses.replace(reservation, specification=specification, end_us=end_us)


def changed(before: Reservation, asked: Reservation, granted: Granted | None, now_us: int, timing: Timing) -> Outcome:
    """The request with what its owner changed; `granted` None: nothing that admission has a say in."""
    if granted is None:
        revised = dataclasses.replace(asked, revision=asked.revision + 1, updated_at_us=now_us)
        return Outcome(revised, action="rate-request.change")
    state = SERVICE.next(before.service_state, ServiceEvent.RESTORE)
    after = _rated(
        before,
        now_us,
        specification=asked.specification,
        end_us=asked.end_us,
        service_state=before.service_state if state is None else state,
        granted_bps=granted.granted_bps,
        commitments=asked.commitments_for(granted, now_us),
        service_reason="",
    )
    if after.lifecycle == Lifecycle.LIFECYCLE_HELD:
        after = dataclasses.replace(after, due_at_us=min(after.hold_until_us, after.end_us))
    return _reissued(after, "rate-request.change", now_us, timing)


def _lower(
    reservation: Reservation,
    keeps_bps: int,
    event: ServiceEvent,
    reason: str,
    action: str,
    now_us: int,
    timing: Timing,
) -> Outcome:
    soft = kind_of(reservation.specification) == Kind.SOFT
    state = SERVICE.next(reservation.service_state, event)
    if keeps_bps:
        state = None
        reason = f"background: {format_bps(keeps_bps)} from the rate that foreground leaves"
    changed = _rated(
        reservation,
        now_us,
        service_state=reservation.service_state if state is None else state,
        granted_bps=0 if soft else keeps_bps,
        commitments=tuple(dataclasses.replace(one, committed_bps=keeps_bps) for one in reservation.commitments)
        if keeps_bps
        else (),
        service_reason=reason,
    )
    outcome = _reissued(changed, action, now_us, timing)
    return dataclasses.replace(outcome, frees_capacity=True)


def _rated(reservation: Reservation, now_us: int, **fields: object) -> Reservation:
    """The reservation with another rate; what it had goes into its history."""
    changed = dataclasses.replace(reservation, **fields)  # type: ignore[arg-type]
    if (changed.granted_bps, changed.service_state) == (reservation.granted_bps, reservation.service_state):
        return changed
    past = PastRate(now_us, reservation.granted_bps, reservation.service_state)
    return dataclasses.replace(changed, history=(*reservation.history, past)[-MAXIMUM_HISTORY:])


def _reissued(after: Reservation, action: str, now_us: int, timing: Timing) -> Outcome:
    waits = "waits for " + ", ".join(after.confirming_nodes) if after.active else _waiting(after)
    reason = "; ".join(filter(None, (after.service_reason, waits)))
    return dataclasses.replace(reissue(dataclasses.replace(after, reason=reason), now_us, timing), action=action)


def _waiting(reservation: Reservation) -> str:
    held = reservation.lifecycle == Lifecycle.LIFECYCLE_HELD
    return "held, waits to be committed" if held else "waits for its start"
