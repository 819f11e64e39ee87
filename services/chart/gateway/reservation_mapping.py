"""Between the interface of reservations and the REST shapes of requests, previews, receipts, callbacks, quotas, paths.

Pure: no clock, no I/O.
"""

from __future__ import annotations

from typing import Literal, cast

from chart.gateway.backends import FIELDS
from chart.gateway.mapping import suffix
from chart.gateway.schemas.common import Problem, microseconds, timestamp, timestamp_or_none
from chart.gateway.schemas.rate_requests import (
    Callback,
    CallbackState,
    Confirmation,
    EgressLink,
    Enforcement,
    GrantedRate,
    GrantState,
    Lifecycle,
    Preview,
    RateRequest,
    RateRequestBody,
    RateRequestChange,
    Receipt,
    ReceiptNode,
    RequestedRate,
    RequestState,
    ServiceState,
    ServiceType,
    TrafficClass,
    Window,
)
from chart.gateway.schemas.reservations import (
    CapacityStep,
    FoundPath,
    LinkCapacity,
    PathKind,
    PathSource,
    Quota,
    QuotaBody,
)
from chart.v1 import flow_grant_pb2, grant_status_pb2, rate_request_pb2, reservations_pb2

# Refusals of a value, not of the moment: repeating the request later will not help.
INVALID = frozenset({"invalid-value", "unknown-node", "above-policy-maximum"})
ProtocolName = Literal["tcp", "udp"]
PROTOCOL_NUMBERS = {"tcp": 6, "udp": 17}
# Any end from here on is an open one: reservations says so with the greatest number there is.
OPEN_END_US = 1 << 62
PROTOCOL_NAMES = {number: name for name, number in PROTOCOL_NUMBERS.items()}


def specification(body: RateRequestBody) -> rate_request_pb2.RateRequestSpecification:
    """What reservations is asked for; the same body gives the same bytes, whenever it is sent."""
    return rate_request_pb2.RateRequestSpecification(
        source=body.source,
        destination=body.destination,
        selector=flow_grant_pb2.FlowSelector(
            protocol=PROTOCOL_NUMBERS[body.protocol] if body.protocol else 0,
            source_port=body.source_port or 0,
            destination_port=body.destination_port or 0,
            dscp_plus_one=0 if body.dscp is None else body.dscp + 1,
            cgroup_id=body.cgroup_id or 0,
        ),
        service=flow_grant_pb2.ServiceType.Value(f"SERVICE_TYPE_{body.service.upper()}"),
        guaranteed_bps=body.guaranteed_bps,
        minimum_bps=body.minimum_bps or 0,
        maximum_bps=body.maximum_bps or 0,
        preemption_priority=body.priority,
        delay_priority=body.delay_priority,
        burst_tolerance=body.burst_tolerance,
        start_us=microseconds(body.start) if body.start else 0,
        end_us=microseconds(body.end) if body.end else 0,
        duration_us=(body.duration_s or 0) * 1_000_000,
        tags=body.tags,
        description=body.description,
        traffic_class=rate_request_pb2.TrafficClass.Value(f"TRAFFIC_CLASS_{body.traffic_class.upper()}"),
        hold=body.hold,
        callback_url=body.callback_url or "",
        avoid=body.avoid,
    )


def requested_rate(request: rate_request_pb2.RateRequest) -> RequestedRate:
    """The body as it was understood: what was resolved stands beside what was asked."""
    asked = request.specification
    asked_selector, resolved = asked.selector, request.selector
    protocol = asked_selector.protocol or resolved.protocol
    begin_us = asked.start_us or request.created_at_us
    return RequestedRate(
        source=asked.source,
        destination=asked.destination,
        protocol=cast(ProtocolName | None, PROTOCOL_NAMES.get(protocol)),
        source_port=asked_selector.source_port or None,
        destination_port=asked_selector.destination_port or None,
        dscp=asked_selector.dscp_plus_one - 1 if asked_selector.dscp_plus_one else None,
        cgroup_id=asked_selector.cgroup_id or None,
        source_prefix=resolved.source_prefix or None,
        destination_prefix=resolved.destination_prefix or None,
        source_prefixes=list(resolved.source_prefixes) or [one for one in (resolved.source_prefix,) if one],
        destination_prefixes=list(resolved.destination_prefixes)
        or [one for one in (resolved.destination_prefix,) if one],
        service=service_name(asked.service),
        guaranteed_bps=asked.guaranteed_bps,
        minimum_bps=asked.minimum_bps or None,
        maximum_bps=asked.maximum_bps or None,
        priority=asked.preemption_priority,
        delay_priority=asked.delay_priority,
        burst_tolerance=asked.burst_tolerance,
        start=timestamp_or_none(asked.start_us),
        end=timestamp_or_none(asked.end_us),
        duration_s=max(0, round((asked.end_us - begin_us) / 1e6)) if asked.end_us else None,
        traffic_class=cast(
            TrafficClass,
            suffix(rate_request_pb2.TrafficClass, asked.traffic_class, "TRAFFIC_CLASS_", "FOREGROUND").lower(),
        ),
        hold=asked.hold,
        callback_url=asked.callback_url or None,
        avoid=list(asked.avoid),
        tags=dict(asked.tags),
        description=asked.description,
    )


def end_or_none(end_us: int) -> str | None:
    """An end; null when it is open."""
    return timestamp(end_us) if 0 < end_us < OPEN_END_US else None


def service_name(service: int) -> ServiceType:
    """guaranteed, variable, maximum or available."""
    return cast(ServiceType, suffix(flow_grant_pb2.ServiceType, service, "SERVICE_TYPE_", "AVAILABLE").lower())


def confirmation(status: grant_status_pb2.GrantStatus) -> Confirmation:
    """One node's word on a grant."""
    return Confirmation(
        node=status.node,
        state=cast(GrantState, suffix(grant_status_pb2.GrantState, status.state, "GRANT_STATE_", "FAILED")),
        reason=status.reason,
        applied_at=timestamp_or_none(status.applied_at_us),
        kernel_rate_bps=status.kernel_rate_bps,
        matching_flows=status.matching_flows,
        sent_bytes=status.sent_bytes,
        delivered_bytes=status.delivered_bytes,
        counted_at=timestamp_or_none(status.counted_at_us),
        egress=[
            EgressLink(link=one.link_id, sent_bytes=one.sent_bytes, share=_share(one, status)) for one in status.egress
        ],
        against_routes=status.egress_against_routes,
    )


def _share(link: grant_status_pb2.EgressLink, status: grant_status_pb2.GrantStatus) -> float:
    total = sum(one.recent_bytes for one in status.egress)
    return round(link.recent_bytes / total, 3) if total else 0.0


def state_of(request: rate_request_pb2.RateRequest) -> RequestState:
    """The four states in a word: the first of them that says what matters most."""
    states = rate_request_pb2
    lifecycle = suffix(states.Lifecycle, request.lifecycle, "LIFECYCLE_", "RESERVED")
    if lifecycle != "ACTIVE":
        return cast(RequestState, lifecycle)
    if request.service_state == states.SERVICE_STATE_PREEMPTED:
        return "PREEMPTED"
    degraded = request.service_state == states.SERVICE_STATE_DEGRADED
    if request.enforcement == states.ENFORCEMENT_FAILED:
        # What a node failed to apply is not the rate, which it lacks; a link that is down is often why.
        return "DEGRADED" if degraded else "FAILED"
    if request.enforcement != states.ENFORCEMENT_ENFORCED:
        return "PENDING"
    if degraded:
        return "DEGRADED"
    if request.off_path:
        return "OFF_PATH"
    return "NO_MATCHING_FLOW" if request.unmatched_since_us else "ENFORCED"


def rate_request(request: rate_request_pb2.RateRequest) -> RateRequest:
    """A rate request with its states."""
    states = rate_request_pb2
    return RateRequest(
        id=request.id,
        revision=request.revision,
        owner=request.owner,
        state=state_of(request),
        lifecycle=cast(Lifecycle, suffix(states.Lifecycle, request.lifecycle, "LIFECYCLE_", "RESERVED")),
        enforcement=cast(Enforcement, suffix(states.Enforcement, request.enforcement, "ENFORCEMENT_", "PENDING")),
        service_state=cast(
            ServiceState, suffix(states.ServiceState, request.service_state, "SERVICE_STATE_", "GRANTED")
        ),
        callback_state=cast(
            CallbackState, suffix(states.CallbackState, request.callback_state, "CALLBACK_STATE_", "NONE")
        ),
        granted_bps=request.granted_bps,
        path=list(request.link_ids),
        confirmations=[confirmation(status) for status in request.confirmations],
        confirming_nodes=list(request.confirming_nodes),
        reason=request.reason,
        matching_flows=request.matching_flows,
        unmatched_since=timestamp_or_none(request.unmatched_since_us),
        warning=request.warning,
        waits_until=timestamp_or_none(request.waits_until_us),
        draining_until=timestamp_or_none(request.draining_until_us),
        draining_nodes=list(request.draining_nodes),
        created_at=timestamp(request.created_at_us),
        updated_at=timestamp(request.updated_at_us),
        enforced_at=timestamp_or_none(request.enforced_at_us),
        start=timestamp(request.start_us or request.created_at_us),
        end=end_or_none(request.end_us),
        hold_until=timestamp_or_none(request.hold_until_us),
        request=requested_rate(request),
    )


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
        floor=message.floor_bps if message.HasField("floor_bps") else None,
        ceiling=message.ceiling_bps if message.HasField("ceiling_bps") else None,
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
        waits_until=timestamp_or_none(answer.waits_until_us),
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
        max_held_bps=body.max_held_bps or 0,
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
        max_held_bps=message.max_held_bps or None,
        used_requests=use.requests if use is not None else None,
        used_total_bps=use.total_bps if use is not None else None,
        used_held_bps=use.held_bps if use is not None else None,
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
        source=cast(
            "PathSource",
            _name(reservations_pb2.PathSource, message.source, "PATH_SOURCE_").lower().replace("_", "-"),
        ),
        silent_nodes=list(message.silent_nodes),
        branches=message.branches,
    )


def capacity(link_id: str, message: reservations_pb2.GetLinkCapacityResponse) -> LinkCapacity:
    """Commitments of a link over a time."""
    return LinkCapacity(
        link_id=link_id,
        capacity_bps=message.capacity_bps,
        admissible_bps=message.admissible_bps,
        lease_bps=message.lease_bps,
        lease_draining_bps=message.lease_draining_bps,
        lease_draining_until=timestamp(message.lease_draining_until_us) if message.lease_draining_until_us else None,
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
