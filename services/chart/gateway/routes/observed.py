"""/v1/audit, /v1/flows, /v1/in-band-flows, /v1/node-keys, /v1/record-checks and the history of a request: what passed
by lately.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from typing import Annotated, Any

from fastapi import APIRouter, Query

from chart.common import names
from chart.gateway import in_band
from chart.gateway.auth import AnyRole, Operator
from chart.gateway.backends import problems
from chart.gateway.context import Context, Gateway
from chart.gateway.errors import responses
from chart.gateway.observed import Flow as ObservedFlow
from chart.gateway.routes.rate_requests import RequestId
from chart.gateway.schemas import observed
from chart.gateway.schemas.common import NODE_ID_PATTERN, timestamp
from chart.v1 import audit_pb2, reservations_pb2

router = APIRouter(prefix="/v1", responses=responses(401, 403, 422, 429, 500, 503))

Limit = Annotated[int, Query(ge=1, le=10_000)]
_PROTOCOLS = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp"}

FlowPart = Annotated[
    str, Query(max_length=160, description="SOURCE-DESTINATION or a part of it.", examples=["10.0.0.1:40000-"])
]


@router.get("/audit", tags=["operations"], summary="Audit records")
async def list_audit(
    gateway: Context,
    _principal: Operator,
    subject: Annotated[str, Query(max_length=160, description="Id of the changed object.")] = "",
    actor: Annotated[str, Query(max_length=160)] = "",
    action: Annotated[str, Query(max_length=64, examples=["rate-request"], description="Action or its prefix.")] = "",
    limit: Limit = 1000,
) -> observed.AuditPage:
    """Taken from the newest 10,000 records that this gateway has read."""
    found = gateway.observed.audit(subject=subject, actor=actor, action=action)
    return observed.AuditPage(items=[_audit(record) for record, _ in zip(found, range(limit), strict=False)])


@router.get(
    "/rate-requests/{id}/history",
    tags=["rate requests"],
    summary="History of a request",
    responses=responses(404),
)
async def get_request_history(request_id: RequestId, gateway: Context, principal: AnyRole) -> observed.AuditPage:
    """Its audit records, newest first."""
    owner = "" if principal.sees_all else principal.subject
    with problems("reservations"):
        await gateway.backends.reservations.GetRateRequest(
            reservations_pb2.GetRateRequestRequest(id=request_id, owner=owner)
        )
    return observed.AuditPage(items=[_audit(record) for record in gateway.observed.audit(subject=request_id)])


@router.get("/flows", tags=["network"], summary="Flows")
async def list_flows(
    gateway: Context,
    principal: AnyRole,
    node: Annotated[
        str, Query(pattern=rf"{NODE_ID_PATTERN}|^$", max_length=names.NODE_LENGTH_MAX, description="Sending node.")
    ] = "",
    running: Annotated[bool, Query(description="Only flows that have not ended.")] = False,
    limit: Limit = 1000,
) -> observed.Flows:
    """Flow records of senders. An application sees the flows of its own requests."""
    shown = []
    for flow in gateway.observed.flows(node=node, running=running):
        request = gateway.live.requests.get(flow.record.request_id)
        if not principal.sees_all and (request is None or request.owner != principal.subject):
            continue
        shown.append(_flow(gateway, flow))
        if len(shown) >= limit:
            break
    return observed.Flows(items=shown)


@router.get("/node-keys", tags=["authorisations"], summary="Signalling keys of the nodes")
async def list_node_keys(gateway: Context, _principal: Operator) -> observed.NodeKeys:
    """Key epochs and counts of refused signals, as reported by the agents."""
    now_us = gateway.clock.now_us()
    items = []
    for node, state in sorted(gateway.live.node_states.items()):
        items.append(
            observed.NodeKey(
                node=node,
                key_epoch=state.key_epoch,
                kernel_release=state.kernel_release,
                refused_signals=[
                    observed.RefusedSignals(reason=one.reason, count=one.count) for one in state.refused_signals
                ],
                reported_at=timestamp(state.reported_at_us),
                stale=now_us - state.reported_at_us > gateway.live.staleness.node_us,
            )
        )
    return observed.NodeKeys(items=items)


@router.get("/record-checks", tags=["authorisations"], summary="Authentication of the nodes' records")
async def get_record_checks(gateway: Context, _principal: Operator) -> observed.RecordChecks:
    """Records of nodes that were not authentic, by stream and reason. Each service checks what it reads; this gateway
    reads all that agents and sensor pods write.
    """
    check = gateway.broker.record_check
    if check is None:
        return observed.RecordChecks(authentication="off", since=None, good=0, items=[])
    items = [
        observed.RecordRefusal(
            topic=one.topic,
            reason=one.reason,
            count=check.refused[kind],
            at=timestamp(one.at_us),
            node=one.node,
            key=one.key,
            detail=one.detail,
        )
        for kind, one in sorted(check.newest.items(), key=lambda found: -found[1].at_us)
    ]
    return observed.RecordChecks(
        authentication=check.mode, since=timestamp(check.since_us), good=check.good.total(), items=items
    )


@router.get("/in-band-flows", tags=["network"], summary="Flows that ask for their rates in band")
async def list_in_band_flows(
    gateway: Context,
    _principal: Operator,
    flow: FlowPart = "",
    limit: Limit = 1000,
) -> observed.InBandFlows:
    """State of every node on their paths, as its agent last reported it (every two seconds)."""
    found = in_band.flows(gateway.live.node_states, flow, limit)
    return observed.InBandFlows(items=[_in_band_flow(gateway, one) for one in found])


@router.get("/advised-flows", tags=["network"], summary="Flows that were told a rate by SCONE or Quick-Start")
async def list_advised_flows(
    gateway: Context,
    _principal: Operator,
    flow: FlowPart = "",
    limit: Limit = 1000,
) -> observed.AdvisedFlows:
    """The newest advice of flows on every node, as its agent reported it (32 of each node)."""
    now_us = gateway.clock.now_us()
    found = [
        (f"{one.source}-{one.destination}", node, state, one)
        for node, state in gateway.live.node_states.items()
        for one in state.advised_flows
    ]
    fitting = sorted((row for row in found if flow in row[0]), key=lambda row: row[:2])
    items = [
        observed.AdvisedFlow(
            source=one.source,
            destination=one.destination,
            protocol=_PROTOCOLS.get(one.protocol, str(one.protocol)),
            standard=one.standard,
            node=node,
            link=one.link_id or None,
            advised_bps=one.advised_bps,
            age_ms=one.age_ms,
            reported_at=timestamp(state.reported_at_us),
            stale=now_us - state.reported_at_us > gateway.live.staleness.node_us,
        )
        for _, node, state, one in fitting[:limit]
    ]
    return observed.AdvisedFlows(items=items)


def _in_band_flow(gateway: Gateway, flow: in_band.Flow) -> observed.InBandFlow:
    now_us = gateway.clock.now_us()
    return observed.InBandFlow(
        source=flow.source,
        destination=flow.destination,
        protocol=_PROTOCOLS.get(flow.protocol, str(flow.protocol)),
        hops=[
            observed.InBandHop(
                node=hop.state.node,
                role=hop.flow.role,
                state=hop.flow.state,
                carrier=hop.flow.carrier,
                neighbour=hop.neighbour,
                key_epoch=hop.flow.key_epoch,
                kept_bps=hop.flow.kept_bps,
                agreed_bps=hop.flow.agreed_bps,
                age_ms=hop.flow.age_ms,
                lease_ms=hop.flow.lease_ms,
                reported_at=timestamp(hop.state.reported_at_us),
                stale=now_us - hop.state.reported_at_us > gateway.live.staleness.node_us,
            )
            for hop in flow.hops
        ],
    )


def _audit(record: audit_pb2.AuditRecord) -> observed.AuditRecord:
    return observed.AuditRecord(
        id=record.id,
        at=timestamp(record.at_us),
        service=record.service,
        actor=record.actor,
        action=record.action,
        subject=record.subject,
        detail=_detail(record.detail_json),
        trace_id=record.trace_id,
    )


def _detail(text: str) -> dict[str, Any]:
    """The change; what is no JSON object is shown as it is instead of being lost."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {"text": text}
    return found if isinstance(found, dict) else {"value": found}


def _flow(gateway: Gateway, flow: ObservedFlow) -> observed.Flow:
    record = flow.record
    request = gateway.live.requests.get(record.request_id)
    return observed.Flow(
        node=record.node,
        request_id=record.request_id or None,
        protocol=_PROTOCOLS.get(record.protocol, str(record.protocol)),
        source_address=_address(record.source_address),
        source_port=record.source_port,
        destination_address=_address(record.destination_address),
        destination_port=record.destination_port,
        started_at=timestamp(record.started_at_us),
        at=timestamp(record.ended_at_us),
        ended=record.final,
        sent_bytes=record.sent_bytes,
        delivered_bytes=record.delivered_bytes,
        retransmitted_bytes=record.retransmitted_bytes,
        min_rtt_us=record.min_rtt_us or None,
        dscp=record.dscp_plus_one - 1 if record.dscp_plus_one else None,
        sent_bps=flow.sent_bps,
        delivered_bps=flow.delivered_bps,
        granted_bps=request.granted_bps if request is not None else None,
        quick_start_bps=record.quick_start_bps or None,
    )


def _address(text: str) -> str:
    """An IPv4 address that a socket of IPv6 carries is shown as what it is."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return text
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
