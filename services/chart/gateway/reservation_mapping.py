"""Between the interface of reservations and the REST shapes of previews, receipts, callbacks, quotas, paths. Pure."""

from __future__ import annotations

from typing import cast

from chart.gateway.backends import FIELDS
from chart.gateway.mapping import end_or_none
from chart.gateway.schemas.common import Problem, microseconds, timestamp, timestamp_or_none
from chart.gateway.schemas.rate_requests import (
    Callback,
    CallbackState,
    GrantedRate,
    Lifecycle,
    Preview,
    RateRequestChange,
    Receipt,
    ReceiptNode,
    ServiceState,
    Window,
)
from chart.gateway.schemas.reservations import CapacityStep, FoundPath, LinkCapacity, PathKind, Quota, QuotaBody
from chart.v1 import rate_request_pb2, reservations_pb2

# Refusals of a value, not of the moment: repeating the request later will not help.
INVALID = frozenset({"invalid-value", "unknown-node", "above-policy-maximum"})


def refusal(message: reservations_pb2.Refusal, instance: str = "/v1/rate-requests") -> Problem:
    """The problem document that committing would have answered with."""
    status = 422 if message.code in INVALID else 409
    return Problem(
        type=f"urn:chart:problem:{message.code or 'refused'}",
        title="Invalid value" if status == 422 else "Refused",
        status=status,
        detail=message.detail or "reservations gave no reason",
        instance=instance,
        field=FIELDS.get(message.field, message.field.removeprefix("selector.")) or None,
        floor=message.floor_bps or None,
        ceiling=message.ceiling_bps or None,
        suggestions=list(message.suggestions) or None,
    )


def preview(answer: reservations_pb2.PreviewRateRequestResponse, instance: str = "/v1/rate-requests") -> Preview:
    """Preview a request."""
    return Preview(
        granted=answer.granted,
        granted_bps=answer.granted_bps,
        path=list(answer.link_ids),
        bottleneck_link_id=answer.bottleneck_link_id or None,
        floor_bps=answer.floor_bps or None,
        ceiling_bps=answer.ceiling_bps or None,
        preempts=answer.preempts,
        windows=[
            Window(start=timestamp(one.start_us), end=end_or_none(one.end_us), free_bps=one.free_bps)
            for one in answer.windows
        ],
        refusal=None if answer.granted else refusal(answer.refusal, instance),
    )


def change(
    request_id: str, owner: str, expected_revision: int, body: RateRequestChange, *, look_only: bool
) -> reservations_pb2.ChangeRateRequestRequest:
    """The call for a change: only what the body states."""
    call = reservations_pb2.ChangeRateRequestRequest(
        id=request_id, owner=owner, expected_revision=expected_revision, preview=look_only
    )
    stated = body.model_fields_set
    for name in ("guaranteed_bps", "minimum_bps", "maximum_bps", "description"):
        if name in stated:
            setattr(call, name, getattr(body, name) or ("" if name == "description" else 0))
    if "end" in stated:
        call.end_us = microseconds(body.end) if body.end else 0
    if "priority" in stated:
        call.preemption_priority = body.priority
    if "callback_url" in stated:
        call.callback_url = body.callback_url or ""
    if "tags" in stated:
        call.tags.SetInParent()
        call.tags.tags.update(body.tags)
    return call


def receipt(answer: reservations_pb2.GetReceiptResponse) -> Receipt:
    """Volumes granted and delivered."""
    message = answer.receipt
    return Receipt(
        request_id=message.request_id,
        owner=message.owner,
        complete=answer.complete,
        lifecycle=cast(Lifecycle, _name(rate_request_pb2.Lifecycle, message.lifecycle, "LIFECYCLE_")),
        reason=message.reason,
        path=list(message.link_ids),
        created_at=timestamp(message.created_at_us),
        start=timestamp(message.start_us),
        ended_at=timestamp_or_none(message.ended_at_us),
        enforced_at=timestamp_or_none(message.enforced_at_us),
        granted_bits=str(message.granted_bits),
        rates=[
            GrantedRate(
                start=timestamp(one.from_us),
                granted_bps=one.granted_bps,
                service_state=cast(
                    ServiceState, _name(rate_request_pb2.ServiceState, one.service_state, "SERVICE_STATE_")
                ),
            )
            for one in message.rates
        ],
        nodes=[
            ReceiptNode(
                node=one.node,
                sent_bytes=one.sent_bytes,
                delivered_bytes=one.delivered_bytes,
                applied_at=timestamp_or_none(one.applied_at_us),
            )
            for one in message.nodes
        ],
        stated_at=timestamp(message.stated_at_us),
    )


def callback(message: reservations_pb2.Callback) -> Callback:
    """A notice."""
    return Callback(
        id=message.id,
        request_id=message.request_id,
        event=message.event,
        url=message.url,
        state=cast(CallbackState, _name(rate_request_pb2.CallbackState, message.state, "CALLBACK_STATE_")),
        attempts=message.attempts,
        created_at=timestamp(message.created_at_us),
        next_attempt_at=timestamp_or_none(message.next_attempt_us),
        delivered_at=timestamp_or_none(message.delivered_at_us),
        last_error=message.last_error,
        body=message.body,
    )


def quota_message(owner: str, body: QuotaBody) -> reservations_pb2.Quota:
    """A quota as reservations stores it."""
    return reservations_pb2.Quota(
        owner=owner,
        max_requests=body.max_requests or 0,
        max_total_bps=body.max_total_bps or 0,
        max_priority_plus_one=0 if body.max_priority is None else body.max_priority + 1,
        horizon_us=(body.horizon_s or 0) * 1_000_000,
    )


def quota(message: reservations_pb2.Quota, use: reservations_pb2.QuotaUse | None) -> Quota:
    """A quota with what its application has."""
    return Quota(
        application=message.owner,
        revision=message.revision,
        max_requests=message.max_requests or None,
        max_total_bps=message.max_total_bps or None,
        max_priority=message.max_priority_plus_one - 1 if message.max_priority_plus_one else None,
        horizon_s=message.horizon_us // 1_000_000 or None,
        used_requests=use.requests if use is not None else None,
        used_total_bps=use.total_bps if use is not None else None,
    )


def path(message: reservations_pb2.FoundPath) -> FoundPath:
    """A path to choose from."""
    kinds = [_name(reservations_pb2.PathKind, kind, "PATH_KIND_").lower().replace("_", "-") for kind in message.kinds]
    return FoundPath(
        kinds=cast("list[PathKind]", kinds),
        links=list(message.link_ids),
        nodes=list(message.node_ids),
        free_bps=message.free_bps,
        admissible_bps=message.admissible_bps,
        bottleneck_link_id=message.bottleneck_link_id,
        delay_us=message.delay_us or None,
    )


def capacity(link_id: str, message: reservations_pb2.GetLinkCapacityResponse) -> LinkCapacity:
    """Commitments of a link over a time."""
    return LinkCapacity(
        link_id=link_id,
        capacity_bps=message.capacity_bps,
        admissible_bps=message.admissible_bps,
        lease_bps=message.lease_bps,
        in_band_bps=message.in_band_bps,
        steps=[
            CapacityStep(
                start=timestamp(one.start_us),
                committed_bps=one.committed_bps,
                maximum_bps=one.maximum_bps,
                free_bps=one.free_bps,
            )
            for one in message.steps
        ],
    )


def _name(enum: object, value: int, prefix: str) -> str:
    return str(enum.Name(value)).removeprefix(prefix)  # type: ignore[attr-defined]  # a protobuf enum
