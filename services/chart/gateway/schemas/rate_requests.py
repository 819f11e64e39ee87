"""Rate requests and their states (Brassil et al., The CHART System, section 4)."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from chart.common import names
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
Enforcement = Literal["PENDING", "ENFORCED", "FAILED", "ENDED"]
ServiceState = Literal["GRANTED", "PREEMPTED", "DEGRADED"]
CallbackState = Literal["NONE", "PENDING", "DELIVERED", "DEAD"]
TrafficClass = Literal["foreground", "background"]
RequestState = Literal[
    "HELD",
    "RESERVED",
    "PENDING",
    "ENFORCED",
    "NO_MATCHING_FLOW",
    "OFF_PATH",
    "DEGRADED",
    "PREEMPTED",
    "FAILED",
    "RELEASED",
    "EXPIRED",
    "CANCELLED",
]
GrantState = Literal["APPLIED", "OBSERVED", "FAILED", "REMOVED"]

# Ten years: longer than any reservation, short enough that sums of times stay in 64 bits of microseconds.
MAX_DURATION_S = 10 * 366 * 86_400
Port = Annotated[int, Field(ge=1, le=65535)]
Endpoint = Annotated[
    str,
    Field(
        min_length=1,
        max_length=names.NODE_LENGTH_MAX,
        pattern=r"^[A-Za-z0-9.:/-]+$",
        description="Id of a node, an address, or a prefix in CIDR notation.",
    ),
]


CallbackUrl = Annotated[
    str, Field(max_length=2000, pattern=r"^https?://[!-~]+$", examples=["https://app.example/chart"])
]
AvoidedId = Annotated[
    str, Field(min_length=1, max_length=names.LINK_LENGTH_MAX, pattern=r"^[A-Za-z0-9_.@:-]+$", examples=["bravo"])
]


def _wrong(field: str, message: str, **context: Any) -> PydanticCustomError:
    """A rule between fields was broken: `field` is the one to change."""
    return PydanticCustomError("rule", message, {"field": field, **context})


# Types, units and spellings. Whether the values make sense together, and on this network, is for reservations to say.
class RateRequestBody(Input):
    """A rate request."""

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
        default=None,
        description="Accept at least this rate when guaranteed_bps cannot be granted; null: all or nothing.",
    )
    maximum_bps: Annotated[int, Field(ge=1, le=MAX_BPS)] | None = Field(
        default=None, description="Upper bound of guaranteed and available rate together; null: none."
    )
    priority: int = Field(
        default=0, ge=0, le=255, description="Pre-emption priority: a higher request may pre-empt a lower one."
    )
    delay_priority: int = Field(default=0, ge=0, le=255, description="Delay priority; from 128 on expedited.")
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
        default=False, description="Hold the request for up to 900 s until /commit, instead of committing at once."
    )
    callback_url: CallbackUrl | None = Field(
        default=None, description="URL that receives a signed POST for each change; null: none."
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
    source_prefix: str | None = Field(description="Prefix of the source, CIDR notation.")
    destination_prefix: str | None = Field(description="Prefix of the destination, CIDR notation.")
    source_prefixes: list[str] = Field(
        description="Every prefix that a flow may come from: of a node all its addresses and prefixes; empty: any."
    )
    destination_prefixes: list[str] = Field(description="Every prefix that a flow may go to; empty: any.")
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


class EgressLink(Output):
    """A link of a node that packets of a grant were seen to leave by."""

    link: str
    sent_bytes: int = Field(description="Octets of IP since the node has the grant.")
    share: float = Field(description="Of the newest interval in which packets left, 0 to 1.")


class Confirmation(Output):
    """Status of a grant at one node of its path."""

    node: str
    state: GrantState = Field(
        description="OBSERVED: computed but not enforced, because the node's mode is observe or off."
    )
    reason: str = Field(description="Why the grant is not applied; empty when it is.")
    applied_at: Timestamp | None
    kernel_rate_bps: int = Field(
        description="Rate that the sending node's kernel enforces for the grant now, bits per second."
    )
    matching_flows: int
    sent_bytes: int = Field(description="Sent under the grant since it was applied.")
    delivered_bytes: int = Field(description="Acknowledged by the receiver, as counted by the sending node.")
    counted_at: Timestamp | None = Field(description="When the node read both counters from its kernel.")
    egress: list[EgressLink] = Field(
        description="Where the node saw packets of the grant leave last, the link with the most octets first."
    )
    against_routes: bool = Field(
        description="They leave by a link that the node's routes do not name; commitments follow the packets."
    )


class RateRequest(Output):
    """A rate request and its four states: lifecycle, enforcement, service, callback."""

    id: str
    revision: Revision
    owner: str = Field(description="Subject of the token of the request.")
    state: RequestState = Field(
        description=(
            "The states in a word, the one first that says most. NO_MATCHING_FLOW: enforced, but no flow was seen that"
            " it matches, for 20 s or longer. OFF_PATH: enforced, but packets were seen to leave by a link that is not"
            " committed."
        )
    )
    lifecycle: Lifecycle
    enforcement: Enforcement = Field(
        description=("ENFORCED: every sending and policing agent on the path confirmed. ENDED: the request is over.")
    )
    service_state: ServiceState
    callback_state: CallbackState
    granted_bps: int = Field(description="Guaranteed rate granted, bits per second.")
    path: list[str] = Field(description="Ids of the links, in order.")
    confirmations: list[Confirmation]
    confirming_nodes: list[str] = Field(description="Nodes that have to confirm before the request is ENFORCED.")
    reason: str = Field(description="Why the request is not as requested; empty when it is.")
    matching_flows: int = Field(description="Flows that the grant matches now, by the sending node's last report.")
    unmatched_since: Timestamp | None = Field(
        description="Since when no flow matches, once that has lasted 20 s; null: one does, or it is not enforced."
    )
    warning: str = Field(description="What is wrong although every node confirmed; empty: nothing.")
    waits_until: Timestamp | None = Field(
        description=(
            "While the granted rate waits for one that was released or lowered and is in use: until when at the latest;"
            " null: it does not wait. Until then nodes apply the rate that the request had before."
        )
    )
    draining_until: Timestamp | None = Field(
        description="Until when at the latest nodes apply a rate that the request has no more; null: none does."
    )
    draining_nodes: list[str] = Field(description="Nodes that have not reported yet that they removed such a rate.")
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
    """A time range in which the rate would be granted for the requested duration."""

    start: Timestamp
    end: Timestamp | None = Field(description="null: open.")
    free_bps: int = Field(description="Free rate over the whole time range, bits per second.")


class Preview(Output):
    """Outcome of the same request if it were made now; nothing is committed."""

    granted: bool
    granted_bps: int = Field(description="Guaranteed rate that would be granted, bits per second.")
    path: list[str] = Field(description="Ids of the links, in order; empty when there is no path.")
    bottleneck_link_id: str | None = Field(description="Link with the lowest free rate.")
    floor_bps: int | None = Field(description="Lowest guaranteed rate that would be granted; null: none.")
    ceiling_bps: int | None = Field(description="Highest guaranteed rate that would be granted; null: unknown.")
    preempts: int = Field(description="Number of requests of lower priority that would be pre-empted.")
    waits_until: Timestamp | None = Field(
        description=(
            "Until when at the latest the rate would wait for one that was released or lowered and is in use; null: it"
            " would not wait. Not known of requests that begin later."
        )
    )
    windows: list[Window] = Field(description="Next time ranges in which it would be granted without pre-emption.")
    refusal: Problem | None = Field(description="Problem document of the refusal; null when granted.")


class RateRequestChange(Input):
    """Fields to change; fields that are left out keep their values. The flow keeps running on the same path."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"guaranteed_bps": 80000000}]})

    guaranteed_bps: int = Field(default=0, ge=0, le=MAX_BPS, description="Guaranteed rate, bits per second.")
    minimum_bps: Annotated[int, Field(ge=0, le=MAX_BPS)] | None = Field(
        default=None, description="Accept at least this rate; null: all or nothing."
    )
    maximum_bps: Annotated[int, Field(ge=1, le=MAX_BPS)] | None = Field(default=None, description="null: none.")
    end: InputTimestamp | None = Field(default=None, description="New end; null: until released.")
    priority: int = Field(default=0, ge=0, le=255)
    callback_url: CallbackUrl | None = Field(default=None, description="null: no callbacks.")
    tags: Tags = Field(default_factory=dict)
    description: str = Field(default="", max_length=500)

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise _wrong("guaranteed_bps", "state at least one thing to change")
        return self


class GrantedRate(Output):
    """A granted rate and since when."""

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
    """Granted rates, and volumes sent and delivered by the agents' counters."""

    request_id: str
    owner: str
    complete: bool = Field(description="false: the request has not ended; the figures are of this moment.")
    lifecycle: Lifecycle
    reason: str
    path: list[str]
    created_at: Timestamp
    start: Timestamp
    ended_at: Timestamp | None
    enforced_at: Timestamp | None
    granted_bits: str = Field(description="Guaranteed rate times the time it was granted; a decimal number.")
    rates: list[GrantedRate] = Field(description="Every granted rate, oldest first.")
    nodes: list[ReceiptNode]
    stated_at: Timestamp


class Callback(Output):
    """A callback and its delivery."""

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
    body: str = Field(description="Body of the callback, JSON.")


class CallbackPage(Page):
    """One page of callbacks, newest first."""

    items: list[Callback]


class CallbackSecret(Output):
    """Secret that signs an application's callbacks."""

    secret: str = Field(
        description="whsec_ and the key in base64.", examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
    )
    created_at: Timestamp
