"""Observations and rights: authorisations, audit records, flows, in-band flows, keys of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from chart_client.models import Model, ServiceType
from chart_client.resource import Resource, path_of


class Authorisation(Model):
    """A time-bound grant of the authority for flows of an address."""

    id: str
    owner: str
    client_address: str
    service: ServiceType
    max_guaranteed_bps: int
    max_priority: int
    delay_class: int
    charging: int
    # Microseconds since the epoch.
    expires_at_us: int


class AuditRecord(Model):
    """Audit records."""

    id: str
    at: datetime
    service: str
    actor: str
    action: str
    subject: str
    detail: dict[str, Any] = Field(default_factory=dict)
    trace_id: str = ""


class Flow(Model):
    """A flow record of a sender. Rates are means since the previous record."""

    node: str
    request_id: str | None = None
    protocol: str
    source_address: str
    source_port: int
    destination_address: str
    destination_port: int
    started_at: datetime
    at: datetime
    ended: bool
    sent_bytes: int
    delivered_bytes: int
    retransmitted_bytes: int
    min_rtt_us: int | None = None
    dscp: int | None = None
    sent_bps: float
    delivered_bps: float
    granted_bps: int | None = None
    quick_start_bps: int | None = None


class RefusedSignals(Model):
    """Signals that a node refused for one reason, since its agent started."""

    reason: str
    count: int


class NodeKey(Model):
    """Signalling keys of a node; epoch 0: no key."""

    node: str
    key_epoch: int
    kernel_release: str
    refused_signals: list[RefusedSignals]
    reported_at: datetime
    stale: bool


class RecordRefusal(Model):
    """Records of one stream that were not authentic for one reason, and the newest of them."""

    topic: str
    reason: str
    count: int
    at: datetime
    node: str
    key: str
    detail: str


class RecordChecks(Model):
    """Authentication of the nodes' records, as the gateway checked them since it began."""

    authentication: Literal["off", "observe", "require"]
    since: datetime | None = None
    good: int
    items: list[RecordRefusal]


class InBandHop(Model):
    """A node's part in a flow that asks for its rate in band; neighbour: the node that signals are signed for."""

    node: str
    role: str
    state: str
    carrier: str
    neighbour: str | None = None
    key_epoch: int
    kept_bps: int
    agreed_bps: int
    age_ms: int
    lease_ms: int
    reported_at: datetime
    stale: bool


class InBandFlow(Model):
    """One direction of a flow that asks for its rate in band; hops along the path."""

    source: str
    destination: str
    protocol: str
    hops: list[InBandHop]


class Authorisations(Resource):
    """Authorisations of addresses for in-band requests."""

    def list(self) -> Iterator[Authorisation]:
        """Valid authorisations: the caller's own; for operators those of all owners."""
        return self._all(Authorisation, path_of("authorisations"))

    def create(
        self,
        *,
        client_address: str | None = None,
        service: ServiceType | None = None,
        max_guaranteed_bps: int | None = None,
        max_priority: int | None = None,
        delay_class: int | None = None,
        duration_s: int | None = None,
    ) -> Authorisation:
        """Authorise an address (default: the caller's own). Values that are left out are the policy's maximum."""
        stated = {
            "client_address": client_address,
            "service": service,
            "max_guaranteed_bps": max_guaranteed_bps,
            "max_priority": max_priority,
            "delay_class": delay_class,
            "duration_s": duration_s,
        }
        body = {name: value for name, value in stated.items() if value is not None}
        return self._one(Authorisation, "POST", path_of("authorisations"), body)

    def delete(self, authorisation_id: str) -> None:
        """Revoke an authorisation; running flows become best effort."""
        self._transport.request("DELETE", path_of("authorisations", authorisation_id))


class Audit(Resource):
    """Audit records."""

    def list(
        self, *, subject: str | None = None, actor: str | None = None, action: str | None = None, limit: int = 100
    ) -> Iterator[AuditRecord]:
        """The newest first. `action` may also be the beginning of one, such as "rate-request"."""
        query = {"subject": subject, "actor": actor, "action": action, "limit": limit}
        return self._all(AuditRecord, path_of("audit"), **query)

    def of_request(self, request_id: str) -> Iterator[AuditRecord]:
        """Changes of a rate request, newest first."""
        return self._all(AuditRecord, path_of("rate-requests", request_id, "history"))


class Flows(Resource):
    """Flows that senders reported."""

    def list(self, *, node: str | None = None, running: bool = False, limit: int = 100) -> Iterator[Flow]:
        """Highest rate first; an application sees those of its own requests."""
        return self._all(Flow, path_of("flows"), node=node, running=running, limit=limit)


class AdvisedFlow(Model):
    """The advice that a flow got by SCONE or Quick-Start, as one node saw it; ``link`` None: of the whole path."""

    source: str
    destination: str
    protocol: str
    standard: str
    node: str
    link: str | None = None
    advised_bps: int
    age_ms: int
    reported_at: datetime
    stale: bool


class AdvisedFlows(Resource):
    """Flows that were told a rate in packets of a standard."""

    def list(self, flow: str = "", *, limit: int = 100) -> Iterator[AdvisedFlow]:
        """Those whose SOURCE-DESTINATION contains ``flow``, such as `10.0.0.1:40000-10.0.0.4:443`."""
        return self._all(AdvisedFlow, path_of("advised-flows"), flow=flow, limit=limit)


class InBandFlows(Resource):
    """Flows that ask for their rates in band."""

    def list(self, flow: str = "", *, limit: int = 100) -> Iterator[InBandFlow]:
        """Those whose SOURCE-DESTINATION contains ``flow``, such as `10.0.0.1:40000-10.0.0.4:5001`."""
        return self._all(InBandFlow, path_of("in-band-flows"), flow=flow, limit=limit)


class NodeKeys(Resource):
    """Signalling keys of the nodes."""

    def list(self) -> Iterator[NodeKey]:
        """By node."""
        return self._all(NodeKey, path_of("node-keys"))

    def record_checks(self) -> RecordChecks:
        """Whether records in the nodes' names are authentic."""
        return self._one(RecordChecks, "GET", path_of("record-checks"))
