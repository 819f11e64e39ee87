"""Rate requests: what an application asks for, and what became of it (Brassil et al., The CHART System, section 4)."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from chart.gateway.schemas.common import (
    MAX_BPS,
    NODE_ID_PATTERN,
    Input,
    InputTimestamp,
    Output,
    Page,
    Problem,
    Revision,
    Tags,
    Timestamp,
)

ServiceType = Literal["available", "guaranteed", "maximum", "variable"]
Lifecycle = Literal["HELD", "RESERVED", "ACTIVE", "RELEASED", "EXPIRED", "CANCELLED"]
Enforcement = Literal["PENDING", "ENFORCED", "FAILED"]
ServiceState = Literal["GRANTED", "PREEMPTED", "DEGRADED"]
CallbackState = Literal["NONE", "PENDING", "DELIVERED", "DEAD"]
TrafficClass = Literal["foreground", "background"]
GrantState = Literal["APPLIED", "OBSERVED", "FAILED", "REMOVED"]

# Ten years: longer than any reservation, short enough that sums of times stay in 64 bits of microseconds.
MAX_DURATION_S = 10 * 366 * 86_400
Port = Annotated[int, Field(ge=1, le=65535)]
Endpoint = Annotated[
    str,
    Field(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9.:/-]+$",
        description="Id of a node, an address, or a prefix in CIDR notation.",
    ),
]


CallbackUrl = Annotated[
    str, Field(max_length=2000, pattern=r"^https?://[!-~]+$", examples=["https://app.example/chart"])
]
AvoidedId = Annotated[str, Field(min_length=1, max_length=79, pattern=r"^[A-Za-z0-9_.@:-]+$", examples=["bravo"])]


def _wrong(field: str, message: str, **context: Any) -> PydanticCustomError:
    """A rule between fields was broken: `field` is the one to change."""
    return PydanticCustomError("rule", message, {"field": field, **context})


# Types, units and spellings. Whether the values make sense together, and on this network, is for reservations to say.
class RateRequestBody(Input):
    """What an application asks for."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "source": "alpha",
                    "destination": "delta",
                    "protocol": "tcp",
                    "destination_port": 5201,
                    "service": "variable",
                    "guaranteed_bps": 60000000,
                    "description": "nightly copy",
                }
            ]
        }
    )

    source: Endpoint = Field(examples=["alpha", "10.1.0.1", "10.1.0.0/24"])
    destination: Endpoint = Field(examples=["delta", "10.4.0.1"])
    protocol: Literal["tcp", "udp"] | None = Field(default=None, description="null: any protocol.")
    source_port: Port | None = Field(default=None, description="null: any port.")
    destination_port: Port | None = Field(default=None, description="null: any port.", examples=[5201])
    dscp: Annotated[int, Field(ge=0, le=63)] | None = Field(
        default=None, description="Differentiated services code point; null: any."
    )
    cgroup_id: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = Field(
        default=None, description="cgroup v2 id on the sending node: the sockets of the processes in it; null: any."
    )
    service: ServiceType = Field(
        default="variable",
        description=(
            "`guaranteed`: exactly guaranteed_bps. `variable`: guaranteed_bps plus the available rate of the path. "
            "`maximum`: the available rate, at most maximum_bps, on links that may be oversubscribed. "
            "`available`: the available rate of the path."
        ),
    )
    guaranteed_bps: int = Field(
        default=0, ge=0, le=MAX_BPS, description="Guaranteed rate (GR), bits per second.", examples=[60000000]
    )
    minimum_bps: Annotated[int, Field(ge=0, le=MAX_BPS)] | None = Field(
        default=None, description="Accept this much when guaranteed_bps does not fit; null: all or nothing."
    )
    maximum_bps: Annotated[int, Field(ge=1, le=MAX_BPS)] | None = Field(
        default=None, description="Upper bound of guaranteed and available rate together; null: none."
    )
    priority: int = Field(default=0, ge=0, le=255, description="Pre-emption priority: higher takes from lower.")
    delay_priority: int = Field(default=0, ge=0, le=255, description="Delay class; higher waits less in queues.")
    burst_tolerance: int = Field(default=0, ge=0, le=15, description="TIA-1039 burst tolerance.")
    start: InputTimestamp | None = Field(default=None, description="null: now.")
    end: InputTimestamp | None = Field(default=None, description="null: until released (or see duration_s).")
    duration_s: Annotated[int, Field(ge=1, le=MAX_DURATION_S)] | None = Field(
        default=None, description="Instead of end: seconds from start.", examples=[3600]
    )
    traffic_class: TrafficClass = Field(
        default="foreground",
        description=(
            "`foreground`: latency-sensitive, its rate is fixed. `background`: bulk, takes what foreground leaves, up"
            " to guaranteed_bps, and is told each time its rate changes."
        ),
    )
    hold: bool = Field(
        default=False, description="Keep the rate for 900 s and wait for /commit, instead of committing at once."
    )
    callback_url: CallbackUrl | None = Field(
        default=None, description="Where changes are told by signed POSTs; null: nowhere."
    )
    avoid: list[AvoidedId] = Field(
        default_factory=list, max_length=32, description="Ids of nodes and links that the path must not use."
    )
    tags: Tags = Field(default_factory=dict)
    description: str = Field(default="", max_length=500)

    @field_validator("source", "destination")
    @classmethod
    def _endpoint_reads(cls, value: str) -> str:
        if re.match(NODE_ID_PATTERN, value):
            return value
        try:
            ipaddress.ip_network(value, strict=False)
        except ValueError:
            raise PydanticCustomError(
                "endpoint", "must be the id of a node, an IP address, or a prefix such as 10.1.0.0/24"
            ) from None
        return value

    @model_validator(mode="after")
    def _one_end(self) -> Self:
        if self.end is not None and self.duration_s is not None:
            raise _wrong("duration_s", "state either end or duration_s, not both")
        return self


class RequestedRate(Output):
    """The body of a rate request as it was understood: addresses resolved, defaults filled in, end computed."""

    source: str
    destination: str
    protocol: Literal["tcp", "udp"] | None
    source_port: int | None
    destination_port: int | None
    dscp: int | None
    cgroup_id: int | None
    source_prefix: str | None = Field(description="What source was resolved to, CIDR notation.")
    destination_prefix: str | None = Field(description="What destination was resolved to, CIDR notation.")
    service: ServiceType
    guaranteed_bps: int
    minimum_bps: int | None
    maximum_bps: int | None
    priority: int
    delay_priority: int
    burst_tolerance: int
    start: Timestamp | None
    end: Timestamp | None
    duration_s: int | None
    traffic_class: TrafficClass
    hold: bool
    callback_url: str | None
    avoid: list[str]
    tags: dict[str, str]
    description: str


class Confirmation(Output):
    """What a node on the path said of the grant."""

    node: str
    state: GrantState = Field(description="OBSERVED: known and computed, but the node's mode does not enforce.")
    reason: str = Field(description="Why not applied, in a sentence; empty otherwise.")
    applied_at: Timestamp | None
    kernel_rate_bps: int = Field(description="What the kernel has for the grant now (sending node), bits per second.")
    matching_flows: int
    sent_bytes: int = Field(description="Sent under the grant since it was applied.")
    delivered_bytes: int = Field(description="Acknowledged by the receiver, as far as the sending node knows.")
    counted_at: Timestamp | None = Field(description="When the node read both counters from its kernel.")


class RateRequest(Output):
    """A rate request and its four states: lifecycle, enforcement, service, callback."""

    id: str
    revision: Revision
    owner: str = Field(description="Subject of the token that asked.")
    lifecycle: Lifecycle
    enforcement: Enforcement = Field(description="ENFORCED: every sending and policing agent on the path confirmed.")
    service_state: ServiceState
    callback_state: CallbackState
    granted_bps: int = Field(description="Guaranteed rate granted, bits per second.")
    path: list[str] = Field(description="Ids of the links, in order.")
    confirmations: list[Confirmation]
    confirming_nodes: list[str] = Field(description="Nodes that have to confirm before the request is ENFORCED.")
    reason: str = Field(description="Why it is not as asked, in a sentence; empty when it is.")
    created_at: Timestamp
    updated_at: Timestamp
    enforced_at: Timestamp | None
    start: Timestamp
    end: Timestamp | None = Field(description="null: until released.")
    hold_until: Timestamp | None = Field(description="While HELD: until when it may be committed; null otherwise.")
    request: RequestedRate


class RateRequestPage(Page):
    """One page of rate requests, newest first."""

    items: list[RateRequest]


class Window(Output):
    """A time in which the rate fits for as long as was asked."""

    start: Timestamp
    end: Timestamp | None = Field(description="null: open.")
    free_bps: int = Field(description="What is free over all of it, bits per second.")


class Preview(Output):
    """What the same request would get if it were made now; nothing is committed."""

    granted: bool
    granted_bps: int = Field(description="Guaranteed rate that would be granted, bits per second.")
    path: list[str] = Field(description="Ids of the links, in order; empty when there is no path.")
    bottleneck_link_id: str | None = Field(description="The link that allows least.")
    floor_bps: int | None = Field(description="Least guaranteed rate that would be granted; null: none would.")
    ceiling_bps: int | None = Field(description="Greatest guaranteed rate that would be granted; null: unknown.")
    preempts: int = Field(description="How many requests of lower priority would lose their guarantee.")
    windows: list[Window] = Field(description="The next times in which it fits without taking it from anybody.")
    refusal: Problem | None = Field(description="The problem document that the request would get; null when granted.")


class RateRequestChange(Input):
    """What shall be different; what is left out stays as it is. The flow is not dropped, the path stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"guaranteed_bps": 80000000}]})

    guaranteed_bps: int = Field(default=0, ge=0, le=MAX_BPS, description="Guaranteed rate, bits per second.")
    minimum_bps: Annotated[int, Field(ge=0, le=MAX_BPS)] | None = Field(
        default=None, description="Accept this much; null: all or nothing."
    )
    maximum_bps: Annotated[int, Field(ge=1, le=MAX_BPS)] | None = Field(default=None, description="null: none.")
    end: InputTimestamp | None = Field(default=None, description="Extend or shorten; null: until released.")
    priority: int = Field(default=0, ge=0, le=255)
    callback_url: CallbackUrl | None = Field(default=None, description="null: tell nobody.")
    tags: Tags = Field(default_factory=dict)
    description: str = Field(default="", max_length=500)

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise _wrong("guaranteed_bps", "state at least one thing to change")
        return self


class GrantedRate(Output):
    """What was granted from a moment on."""

    start: Timestamp
    granted_bps: int
    service_state: ServiceState


class ReceiptNode(Output):
    """Counters of one agent."""

    node: str
    sent_bytes: int
    delivered_bytes: int
    applied_at: Timestamp | None


class Receipt(Output):
    """What was granted, and what was delivered by the agents' counters."""

    request_id: str
    owner: str
    complete: bool = Field(description="false: the request lasts still, these are the figures of this moment.")
    lifecycle: Lifecycle
    reason: str
    path: list[str]
    created_at: Timestamp
    start: Timestamp
    ended_at: Timestamp | None
    enforced_at: Timestamp | None
    granted_bits: str = Field(description="Guaranteed rate times the time it was granted; a decimal number.")
    rates: list[GrantedRate] = Field(description="Every rate that it had, oldest first.")
    nodes: list[ReceiptNode]
    stated_at: Timestamp


class Callback(Output):
    """A notice to the application, and what became of it."""

    id: str = Field(description="Also in the header webhook-id.")
    request_id: str
    event: str = Field(examples=["rate-request.preempted"])
    url: str
    state: CallbackState = Field(description="DEAD: given up; it can be sent again.")
    attempts: int
    created_at: Timestamp
    next_attempt_at: Timestamp | None
    delivered_at: Timestamp | None
    last_error: str
    body: str = Field(description="What is sent, JSON.")


class CallbackPage(Page):
    """One page of notices, newest first."""

    items: list[Callback]


class CallbackSecret(Output):
    """What an application checks callbacks with."""

    secret: str = Field(
        description="whsec_ and the key in base64.", examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
    )
    created_at: Timestamp
