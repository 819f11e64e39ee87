"""Audit records, flows, and the state of the nodes' keys, as REST shows them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from chart.gateway.schemas.common import Output, Timestamp


class AuditRecord(Output):
    """Audit records."""

    id: str
    at: Timestamp
    service: str
    actor: str = Field(description="Subject of the token, or the service itself.")
    action: str = Field(examples=["rate-request.create"])
    subject: str = Field(description="Id of the changed object.")
    detail: dict[str, Any]
    trace_id: str


class AuditPage(Output):
    """Newest first."""

    items: list[AuditRecord]


class Flow(Output):
    """A flow as its sending node last described it (every minute, and at its end)."""

    node: str
    request_id: str | None = Field(description="Rate request of the flow; null: none.")
    protocol: str
    source_address: str
    source_port: int
    destination_address: str
    destination_port: int
    started_at: Timestamp
    at: Timestamp
    ended: bool
    sent_bytes: int
    delivered_bytes: int
    retransmitted_bytes: int
    min_rtt_us: int | None
    dscp: int | None = Field(description="DSCP of its packets; null: not reported by its node.")
    sent_bps: float = Field(description="Mean since the previous record, or since the flow began.")
    delivered_bps: float
    granted_bps: int | None = Field(description="Guaranteed rate of its request; null without one.")
    quick_start_bps: int | None = Field(description="What routers approved for it to begin with; null: nothing.")


class Flows(Output):
    """Highest rate first."""

    items: list[Flow]


class RefusedSignals(Output):
    """Signals that a node refused for one reason."""

    reason: str = Field(description="Reason of the refusals.", examples=["bad_tag"])
    count: int = Field(description="Since its agent started.")


class NodeKey(Output):
    """Signalling keys of a node and the signals that it refused."""

    node: str
    key_epoch: int = Field(description="Epoch of the signalling keys in use; 0: no key.")
    kernel_release: str
    refused_signals: list[RefusedSignals] = Field(description="Reasons that occurred.")
    reported_at: Timestamp
    stale: bool


class NodeKeys(Output):
    """By node."""

    items: list[NodeKey]


class RecordRefusal(Output):
    """Records of one stream that were not authentic for one reason; the newest of them in full."""

    topic: str
    reason: str = Field(
        description="unsigned, unreadable-code, another-node, unknown-key or wrong-code.", examples=["unsigned"]
    )
    count: int
    at: Timestamp = Field(description="When the newest was read.")
    node: str = Field(description="Node that the newest is about; anybody may have written it.")
    key: str
    detail: str


class RecordChecks(Output):
    """Authentication of the records that nodes write, as this gateway checked them since it began."""

    authentication: Literal["off", "observe", "require"] = Field(
        description="off: not checked; observe: checked, and all accepted; require: what fails is dropped."
    )
    since: Timestamp | None = Field(description="null: nothing is checked.")
    good: int = Field(description="Authentic records.")
    items: list[RecordRefusal] = Field(description="Refused ones, the newest first.")


class InBandHop(Output):
    """A node's part in a flow that asks for its rate in band."""

    node: str
    role: str = Field(description="origin (asks), transit, or last (answers).", examples=["transit"])
    state: str = Field(
        description="Origin: asked, agreed, expired, refused, legacy. Transit: kept (its link counts the flow), idle."
        " Last: answered.",
        examples=["kept"],
    )
    carrier: str = Field(description="How the origin sends signals: option or shim.")
    neighbour: str | None = Field(
        description="Node that signals are signed for: the next one, of the last node the previous; null: none or not"
        " reported."
    )
    key_epoch: int = Field(description="Epoch of the key that they are signed with; 0: no key.")
    kept_bps: int = Field(description="Guaranteed rate that its link keeps for the flow.")
    agreed_bps: int = Field(description="Of the origin: agreed rate; of others: rate of the last request.")
    age_ms: int = Field(description="Since the last request or renewal, when reported.")
    lease_ms: int = Field(description="Of the origin: until the rate ends without renewal, when reported.")
    reported_at: Timestamp
    stale: bool


class InBandFlow(Output):
    """One direction of a flow that asks for its rate in band."""

    source: str = Field(examples=["10.0.0.1:40000"])
    destination: str = Field(examples=["10.0.0.4:5001"])
    protocol: str
    hops: list[InBandHop] = Field(description="Along the path.")


class InBandFlows(Output):
    """By source."""

    items: list[InBandFlow]


class AdvisedFlow(Output):
    """A rate that a flow was told in packets of a standard, as one node saw it."""

    source: str = Field(examples=["10.0.0.1:40000"])
    destination: str = Field(examples=["10.0.0.4:443"])
    protocol: str
    standard: str = Field(description="scone or quick-start.", examples=["scone"])
    node: str
    link: str | None = Field(description="Link at whose egress it was told; null: approved by all routers of the path.")
    advised_bps: int
    age_ms: int = Field(description="Since its newest packet with advice, or since it asked, when reported.")
    reported_at: Timestamp
    stale: bool


class AdvisedFlows(Output):
    """By source, destination and node."""

    items: list[AdvisedFlow]
