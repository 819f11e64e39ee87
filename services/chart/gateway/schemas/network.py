"""Nodes, links, policies, sensing configurations: configuration and live state."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from chart.gateway.schemas.common import (
    MAX_BPS,
    MAX_SAFE_INTEGER,
    CustomerName,
    Input,
    InputTimestamp,
    NodeId,
    Output,
    Page,
    Revision,
    SensorParameters,
    Tags,
    Timestamp,
    Weight,
)
from chart.gateway.schemas.ends import Network, ProxiedTraffic, TunnelEnd

EnforcementMode = Literal["off", "observe", "enforce"]
LinkController = Literal["nec", "rcp"]
Target = Annotated[
    str,
    Field(
        max_length=255,
        pattern=r"^$|^([A-Za-z0-9.-]{1,240}|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}$",
        description="host:port, or empty.",
        examples=["10.254.0.12:18110"],
    ),
]


class MapPosition(Output):
    """Where a node is drawn: 0..1 from the left and from the top."""

    model_config = ConfigDict(extra="forbid", strict=True)

    x: float = Field(ge=0, le=1, allow_inf_nan=False)
    y: float = Field(ge=0, le=1, allow_inf_nan=False)


EdgeExceed = Literal["remark", "drop"]
Interface = Annotated[str, Field(min_length=1, max_length=15, pattern=r"^[^\s/:]+$", examples=["eth1"])]


class NodeEdge(Output):
    """An interface of a node at the edge of the domain: its incoming traffic is policed while the node enforces. Grants
    are held to their rate, EF packets without a grant to the aggregate.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    interface: Interface
    aggregate_bps: int = Field(
        default=0,
        ge=0,
        le=MAX_BPS,
        description="Rate of EF packets without a grant together, bit/s; 0: they lose their mark.",
        examples=[10**7],
    )
    exceed: EdgeExceed = Field(default="remark", description="Packets above their rate: best effort, or dropped.")
    depth_ms: int = Field(default=100, ge=1, le=65_535, description="Depth of the token buckets, ms at their rate.")


class OverlayMembership(Input):
    """A node's part in the overlay: between members packets take overlay links, and others where one fails."""

    member: bool = Field(default=True, description="false: no part, and no prefixes.")
    prefixes: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        default_factory=list,
        max_length=256,
        description="Networks behind the node, CIDR notation, besides its own addresses.",
        examples=[["10.20.0.0/16"]],
    )


class NodeBody(Input):
    """Configuration of a node."""

    description: str = Field(default="", max_length=500)
    addresses: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        default_factory=list,
        max_length=64,
        description="Addresses that belong to the node itself, CIDR notation.",
        examples=[["10.1.0.2/32"]],
    )
    sensor_pod_target: Target = Field(default="", description="gRPC address of the node's sensor pod.")
    tags: Tags = Field(default_factory=dict)
    map_position: MapPosition | None = Field(default=None, description="null: placed by the dashboard.")
    edges: list[NodeEdge] | None = Field(
        default=None, max_length=64, description="Interfaces that other domains send through; null: as they were."
    )
    tunnel_ends: list[TunnelEnd] | None = Field(
        default=None, max_length=16, description="Ends of elastic tunnels on this node; null: as they were."
    )
    proxied_traffic: ProxiedTraffic | None = Field(
        default=None, description="What the node's proxy takes; null: as it was; without interfaces: nothing."
    )
    overlay: OverlayMembership | None = Field(default=None, description="Part in the overlay; null: as it was.")

    @field_validator("addresses")
    @classmethod
    def _addresses_read(cls, value: list[str]) -> list[str]:
        for address in value:
            try:
                ipaddress.ip_interface(address)
            except ValueError:
                raise PydanticCustomError(
                    "cidr", "{address} is not an address in CIDR notation, such as 10.1.0.2/32", {"address": address}
                ) from None
        return value


class NodeRoom(Output):
    """How much of one kind a node can hold, and what it holds."""

    kind: str = Field(
        description="grants, or selectors: of a grant one for each pair of a source and a destination address.",
        examples=["grants"],
    )
    held: int = Field(description="Held when it was reported.")
    total: int = Field(description="Held at most; admission refuses what would be more (no-room).")


class OverlayLinkState(Output):
    """An overlay link as its node sees it."""

    link_id: str
    alive: bool = Field(description="The other end answers probes.")
    rtt_ms: float
    exchange_loss: float = Field(description="Share of probes without an answer while it is alive, 0 to 1.")
    failures: int = Field(description="Since the agent's start.")
    forwarded_packets: int
    forwarded_bytes: int


class OverlayState(Output):
    """Packets of the overlay at a node since the agent's start, and its overlay links."""

    links: list[OverlayLinkState]
    entered_packets: int
    transit_packets: int
    left_packets: int
    detour_packets: int = Field(description="Packets that did not take their first next hop.")
    refused_packets: int = Field(description="Not from a neighbour's address, or no proper probe.")


class NodeState(Output):
    """State that the node's agent reported."""

    enforcement: EnforcementMode
    agent_version: str
    capabilities: list[str] = Field(description="BPF programs that the agent loaded.")
    faults: list[str] = Field(description="Faults that the agent reported, one sentence each.")
    room: list[NodeRoom] = Field(description="Room for grants; empty: its agent does not report it.")
    overlay: OverlayState | None = Field(description="null: the overlay does not run there.")
    reported_at: Timestamp
    stale: bool = Field(description="No report from the agent for longer than CHART_NODE_STALE_S.")


class Node(Output):
    """A node with its live state."""

    id: str
    revision: Revision
    description: str
    addresses: list[str]
    sensor_pod_target: str
    tags: dict[str, str]
    map_position: MapPosition | None
    edges: list[NodeEdge]
    tunnel_ends: list[TunnelEnd] = Field(description="Ends of elastic tunnels that run on the node.")
    proxied_traffic: ProxiedTraffic = Field(description="What the node's proxy takes; without interfaces: nothing.")
    overlay: OverlayMembership
    state: NodeState | None = Field(description="null: no agent has reported yet.")


class NodePage(Page):
    """Nodes by id."""

    items: list[Node]


class LinkBody(Input):
    """Configuration of a directed link; its transmitting node and interface follow from the id."""

    to_node: NodeId
    capacity_bps: int | None = Field(
        default=None,
        ge=1,
        le=MAX_BPS,
        description="Bits per second, IP headers included; default: what the node reports of its interface.",
        examples=[10**8],
    )
    delay_us: int = Field(
        default=0, ge=0, le=2**32 - 1, description="One-way propagation delay in microseconds; 0: unknown."
    )
    admission_share: float = Field(
        default=0.8,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Admission limit: share of the capacity that guaranteed rates may take.",
    )
    scone: bool = Field(
        default=False,
        description="QUIC connections that leave by the link are advised of their rate in SCONE packets.",
    )
    quick_start: bool = Field(
        default=False,
        description="Quick-Start requests (RFC 4782) that leave by the link are answered by what it has to spare.",
    )
    quick_start_threshold: float = Field(
        default=0.9,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Share of the capacity up to which Quick-Start requests are approved.",
    )
    quick_start_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        allow_inf_nan=False,
        description="Greatest share of what is spare that one Quick-Start request gets.",
    )
    scone_police: bool = Field(
        default=False,
        description="Flows that send more than their SCONE advice over its period of 67 s lose what is above it.",
    )
    advice_prefixes: list[Network] = Field(
        default_factory=list,
        max_length=32,
        description="SCONE and Quick-Start are for flows from or to these alone, CIDR notation; none: for all.",
        examples=[["10.4.0.0/16"]],
    )
    tags: Tags = Field(default_factory=dict)


class LinkLoad(Output):
    """Load of a link over its last report interval."""

    sent_bps: int
    explicit_rate_bps: int = Field(description="Part of sent_bps under an explicit rate.")
    legacy_bps: int = Field(description="Part of sent_bps under the default congestion control.")
    utilisation: float = Field(description="sent_bps over the configured capacity.")
    queue_bytes: int = Field(description="Backlog at the end of the interval.")
    dropped_packets: int = Field(description="Dropped in the interval.")
    at: Timestamp = Field(description="End of the interval.")


class LinkRate(Output):
    """Link rate that the controller publishes."""

    available_bps: int = Field(
        description="Fair share (R): what the flows of one user together may send above their guaranteed rates."
    )
    explicit_rate_capacity_bps: int = Field(
        description="Explicit-rate capacity (C_er): what all explicit-rate flows share."
    )
    valid_until: Timestamp = Field(description="End of the lease; then the rate is unknown.")


class MeasuredValue(Output):
    """Latest result of a sensor."""

    value: float
    at: Timestamp
    stale: bool = Field(description="Older than CHART_MEASUREMENT_STALE_S.")


class LinkMeasured(Output):
    """Measurements between the two ends of a link."""

    rtt_us: MeasuredValue | None
    loss_ratio: MeasuredValue | None
    available_bandwidth_bps: MeasuredValue | None


class Link(Output):
    """A directed link. Its id is `<from>:<interface>`."""

    id: str
    revision: Revision
    from_node: str
    interface: str
    to_node: str
    capacity_bps: int = Field(description="0: the node has not reported it yet; no path leads over the link.")
    capacity_from_interface: bool = Field(description="Nobody stated a capacity: it is what the node reports.")
    delay_us: int
    admission_share: float
    scone: bool = Field(description="QUIC connections are advised of their rate in SCONE packets.")
    quick_start: bool = Field(description="Quick-Start requests are answered by what the link has to spare.")
    quick_start_threshold: float = Field(description="Share of the capacity up to which they are approved.")
    quick_start_share: float = Field(description="Greatest share of what is spare that one of them gets.")
    scone_police: bool = Field(description="Flows lose what is above their SCONE advice.")
    advice_prefixes: list[str] = Field(description="Whom both are for; none: all.")
    tags: dict[str, str]
    load: LinkLoad | None = Field(description="null: no report within CHART_LOAD_STALE_S.")
    rate: LinkRate | None = Field(description="null: no valid lease.")
    measured: LinkMeasured | None = Field(description="null: nothing measured yet.")


class LinkPage(Page):
    """Links by id."""

    items: list[Link]


# The highest rate that Quick-Start knows: 40 kb/s x 2^15 (RFC 4782, table 1).
MAX_QUICK_START_BPS = 1_310_720_000


class PolicyBody(Input):
    """Policy of one node, or of all others under the id `default`. What a node's policy leaves out, or has as null,
    follows `default`.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"enforcement": "enforce", "link_controller": "nec"}]})

    enforcement: EnforcementMode | None = Field(
        default=None,
        description=(
            "off: every flow on its default congestion control. observe: computed and shown, not enforced. null: as"
            " `default` says; `default` itself has to say it."
        ),
    )
    link_controller: LinkController | None = Field(
        default=None, description="Link rate controller; null: as `default` says, which is nec unless stated."
    )
    max_guaranteed_bps: Annotated[int, Field(ge=0, le=MAX_BPS)] | None = Field(
        default=None,
        description="Highest guaranteed rate of one request; 0: limited by the links only; null: as `default` says.",
    )
    customer_weights: dict[CustomerName, Weight] | None = Field(
        default=None,
        max_length=64,
        description="Weights of tunnel customers by name, 1 to 10000; left out: unchanged; {}: none.",
    )
    default_congestion: str | None = Field(
        default=None,
        max_length=15,
        description="Congestion control of flows whose rate ended; left out: unchanged; empty: what each flow had.",
        examples=["bbr"],
    )
    ipfix_collector: str | None = Field(
        default=None,
        max_length=64,
        description="ADDRESS:PORT that flow records go to (IPFIX over UDP); left out: unchanged; empty: nobody.",
        examples=["192.0.2.9:4739"],
    )
    quick_start_request_bps: Annotated[int, Field(ge=0, le=MAX_QUICK_START_BPS)] | None = Field(
        default=None,
        description=(
            "What new TCP connections of the node's processes ask of routers by Quick-Start (RFC 4782), rounded down to"
            " 40 kb/s x 2^N; 0: nothing; null: as `default` says, which is nothing unless stated. Experimental."
        ),
    )


class PolicyInForce(Output):
    """What holds for a node: what its policy says, else what `default` says."""

    enforcement: EnforcementMode
    link_controller: LinkController
    max_guaranteed_bps: int
    quick_start_request_bps: int


class Policy(Output):
    """A policy with its revision."""

    id: str
    revision: Revision
    enforcement: EnforcementMode | None = Field(description="null: as `default` says.")
    link_controller: LinkController | None = Field(description="null: as `default` says.")
    max_guaranteed_bps: int | None = Field(description="null: as `default` says; 0: limited by the links only.")
    customer_weights: dict[str, int]
    default_congestion: str = Field(description="Empty: it says none.")
    ipfix_collector: str = Field(description="Empty: it says none.")
    quick_start_request_bps: int | None = Field(description="null: as `default` says; 0: nothing is asked for.")
    in_force: PolicyInForce


class PolicyPage(Page):
    """Policies by id."""

    items: list[Policy]


class SensingConfigurationBody(Input):
    """A sensing configuration (Brassil et al., The CHART System, section 6)."""

    source_node: NodeId = Field(description="Node whose sensor pod runs the sensor.")
    destination_node: NodeId
    destination_address: str = Field(max_length=64, description="Address to probe.", examples=["10.1.0.3"])
    sensor: str = Field(pattern=r"^[a-z][a-z0-9-]{0,31}$", description="ping, pathchirp, ...", examples=["ping"])
    parameters: SensorParameters = Field(default_factory=dict, max_length=32, examples=[{"count": "10"}])
    period_ms: int = Field(ge=100, le=30 * 86_400_000, description="Time between two runs.", examples=[10000])
    tolerance_ms: int = Field(
        default=0,
        ge=0,
        le=MAX_SAFE_INTEGER,
        description="Use stored results up to this age, milliseconds; 0: half the period.",
    )
    priority: int = Field(default=0, ge=0, le=255, description="255 runs first.")
    valid_until: InputTimestamp | None = Field(default=None, description="null: until removed.")

    @field_validator("destination_address")
    @classmethod
    def _address_reads(cls, value: str) -> str:
        try:
            ipaddress.ip_address(value)
        except ValueError:
            raise PydanticCustomError("address", "must be an IP address, such as 10.1.0.3") from None
        return value


class SensingConfiguration(Output):
    """A sensing configuration with its revision."""

    id: str
    revision: Revision
    source_node: str
    destination_node: str
    destination_address: str
    sensor: str
    parameters: dict[str, str]
    period_ms: int
    tolerance_ms: int
    priority: int
    valid_until: Timestamp | None
    owner: str
    mesh: str | None = Field(description="The mesh that keeps it; null: it was set by itself.")


class SensingConfigurationPage(Page):
    """Sensing configurations by id."""

    items: list[SensingConfiguration]
