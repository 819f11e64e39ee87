"""Reservations and decisions as the messages of streams and calls."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from chart.common.rpc_errors import RefusalError
from chart.reservations.decisions import observed
from chart.reservations.decisions.admission import Granted, Refused
from chart.reservations.decisions.reservation import PastRate, Reservation
from chart.reservations.decisions.windows import FOREVER_US, Window
from chart.v1 import flow_grant_pb2, rate_request_pb2, reservations_pb2
from chart.v1.rate_request_pb2 import CallbackState, Enforcement, Lifecycle, ServiceState

HELD = Lifecycle.LIFECYCLE_HELD
PROTOCOLS = {6: "tcp", 17: "udp"}
GUARANTEED = flow_grant_pb2.ServiceType.SERVICE_TYPE_GUARANTEED


class _Rate(NamedTuple):
    from_us: int
    granted_bps: int
    service_state: int


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
        floor_bps=refused.floor_bps or None,
        ceiling_bps=refused.ceiling_bps or None,
        suggestions=refused.suggestions,
    )


def reused() -> RefusalError:
    """The error of a call whose idempotency key stands for something else."""
    return RefusalError(
        reservations_pb2.Refusal(
            code="idempotency-key-reused",
            detail="this Idempotency-Key was used in the last 24 h for another request",
            field="idempotency_key",
            suggestions=["use a new key for a new request"],
        )
    )


def grant_record(reservation: Reservation) -> flow_grant_pb2.FlowGrant:
    """The record of chart.flow-grant.v1."""
    specification = reservation.specification
    maximum_bps = specification.maximum_bps
    # A guaranteed rate is that rate, no more; who lost it runs on at the available rate.
    guaranteed = specification.service == GUARANTEED
    guaranteed_bps = reservation.in_force_bps if reservation.waits_until_us else reservation.granted_bps
    no_more = guaranteed and guaranteed_bps > 0
    return flow_grant_pb2.FlowGrant(
        request_id=reservation.id,
        generation=reservation.generation,
        selector=reservation.selector,
        link_ids=reservation.link_ids,
        service=specification.service,
        guaranteed_bps=guaranteed_bps,
        maximum_bps=maximum_bps,
        preemption_priority=specification.preemption_priority,
        delay_priority=specification.delay_priority,
        burst_tolerance=specification.burst_tolerance,
        valid_from_us=reservation.start_us,
        valid_until_us=reservation.grant_valid_until_us,
        user=reservation.owner,
        with_available_rate=not no_more and (not maximum_bps or maximum_bps > guaranteed_bps),
    )


def rate_request(reservation: Reservation) -> rate_request_pb2.RateRequest:
    """The request as its owner and chart.rate-request.v1 get it."""
    held = reservation.lifecycle == HELD
    sender = reservation.confirmations.get(reservation.confirming_nodes[0]) if reservation.confirming_nodes else None
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
        hold_until_us=reservation.hold_until_us if held else 0,
        start_us=reservation.start_us,
        end_us=reservation.end_us,
        matching_flows=sender.matching_flows if sender is not None and reservation.active else 0,
        unmatched_since_us=reservation.quiet_since_us if reservation.unmatched else 0,
        waits_until_us=reservation.waits_until_us,
        draining_until_us=reservation.draining.until_us,
        draining_nodes=reservation.draining.nodes,
        warning=f"no flow matches: {selector_words(reservation.selector)}"
        if reservation.unmatched
        else observed.warning(reservation),
        off_path=bool(observed.off_path(reservation)),
    )


def selector_words(selector: flow_grant_pb2.FlowSelector) -> str:
    """Which flows a selector is for."""
    words = [PROTOCOLS.get(selector.protocol, f"protocol {selector.protocol}") if selector.protocol else "any protocol"]
    for name in ("source", "destination"):
        prefixes = list(getattr(selector, f"{name}_prefixes")) or [getattr(selector, f"{name}_prefix") or "anywhere"]
        port = getattr(selector, f"{name}_port")
        where = ", ".join(prefixes) + (f" port {port}" if port else "")
        words.append(f"{'from' if name == 'source' else 'to'} {where}")
    if selector.dscp_plus_one:
        words.append(f"DSCP {selector.dscp_plus_one - 1}")
    if selector.cgroup_id:
        words.append(f"of cgroup {selector.cgroup_id}")
    return " ".join(words)


def preview(
    decision: Granted | Refused, windows: list[Window] | None = None, preempts: int = 0, waits_until_us: int = 0
) -> reservations_pb2.PreviewRateRequestResponse:
    """A decision as the answer to a preview."""
    found = [
        reservations_pb2.FreeWindow(start_us=one.start_us, end_us=one.end_us, free_bps=one.free_bps)
        for one in windows or ()
    ]
    if isinstance(decision, Granted):
        return reservations_pb2.PreviewRateRequestResponse(
            granted=True,
            granted_bps=decision.granted_bps,
            link_ids=decision.link_ids,
            bottleneck_link_id=decision.bottleneck.id,
            ceiling_bps=decision.ceiling_bps,
            windows=found,
            preempts=preempts,
            waits_until_us=waits_until_us,
        )
    return reservations_pb2.PreviewRateRequestResponse(
        granted=False,
        refusal=refusal_message(decision),
        link_ids=decision.link_ids,
        bottleneck_link_id=decision.bottleneck_link_id,
        ceiling_bps=decision.ceiling_bps,
        floor_bps=decision.floor_bps,
        windows=found,
    )


def preview_unchanged(reservation: Reservation) -> reservations_pb2.PreviewRateRequestResponse:
    """The answer to a preview of a change that admission has no say in."""
    return reservations_pb2.PreviewRateRequestResponse(granted=True, granted_bps=reservation.granted_bps)


def logged(request: Reservation | rate_request_pb2.RateRequest) -> dict[str, Any]:
    """What logs say of a request."""
    return {"request": request.id, "bps": request.granted_bps, "path": list(request.link_ids)}


def audit_detail(reservation: Reservation) -> str:
    """What the audit says of a changed request, as JSON."""
    return json.dumps(
        {
            "revision": reservation.revision,
            "granted_bps": reservation.granted_bps,
            "links": reservation.link_ids,
            "start_us": reservation.start_us,
            "end_us": None if reservation.end_us == FOREVER_US else reservation.end_us,
        }
    )


def receipt(reservation: Reservation, now_us: int) -> reservations_pb2.Receipt:
    """What was granted and delivered, as far as it is known now."""
    began_us = max(reservation.created_at_us, reservation.start_us)
    until_us = reservation.ended_at_us or min(now_us, reservation.end_us)
    rates = _intervals(reservation, began_us)
    ends = [one.from_us for one in rates[1:]] + [until_us]
    bits = sum(
        one.granted_bps * max(0, end - max(one.from_us, began_us)) // 1_000_000
        for one, end in zip(rates, ends, strict=True)
    )
    return reservations_pb2.Receipt(
        request_id=reservation.id,
        owner=reservation.owner,
        specification=reservation.specification,
        link_ids=reservation.link_ids,
        lifecycle=Lifecycle.ValueType(reservation.lifecycle),
        reason=reservation.reason,
        created_at_us=reservation.created_at_us,
        start_us=reservation.start_us,
        ended_at_us=reservation.ended_at_us,
        enforced_at_us=reservation.enforced_at_us,
        rates=[_granted_rate(*one) for one in rates],
        nodes=[
            reservations_pb2.ReceiptNode(
                node=node,
                sent_bytes=status.sent_bytes,
                delivered_bytes=status.delivered_bytes,
                applied_at_us=status.applied_at_us,
            )
            for node, status in sorted(reservation.confirmations.items())
        ],
        granted_bits=bits,
        stated_at_us=now_us,
    )


def history_bytes(history: tuple[PastRate, ...]) -> bytes:
    """Former rates as stored; the moment of each is the one until which it held."""
    if not history:
        return b""
    rates = [_granted_rate(one.until_us, one.granted_bps, one.service_state) for one in history]
    return reservations_pb2.Receipt(rates=rates).SerializeToString()


def history_of(stored: bytes) -> tuple[PastRate, ...]:
    """Former rates that `history_bytes` made."""
    if not stored:
        return ()
    rates = reservations_pb2.Receipt.FromString(stored).rates
    return tuple(PastRate(one.from_us, one.granted_bps, one.service_state) for one in rates)


def _granted_rate(moment_us: int, granted_bps: int, service_state: int) -> reservations_pb2.GrantedRate:
    state = ServiceState.ValueType(service_state)
    return reservations_pb2.GrantedRate(from_us=moment_us, granted_bps=granted_bps, service_state=state)


def _intervals(reservation: Reservation, began_us: int) -> list[_Rate]:
    """Every rate with the moment from which it held."""
    found = []
    from_us = began_us
    for one in reservation.history:
        found.append(_Rate(from_us, one.granted_bps, one.service_state))
        from_us = max(from_us, one.until_us)
    return [*found, _Rate(from_us, reservation.granted_bps, reservation.service_state)]
