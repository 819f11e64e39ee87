"""What the gateway answers, as typed models. Rates are bits per second, times are aware datetimes in UTC.

Unknown fields are kept out of sight, so that a newer gateway does not break an older client.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from chart_client.model import Model as Model
from chart_client.overlay_models import OverlayMembership, OverlayState

ServiceType = Literal["available", "guaranteed", "maximum", "variable"]
EnforcementMode = Literal["off", "observe", "enforce"]


class EgressLink(Model):
    """A link of a node that packets of a grant were seen to leave by; `share` of the newest interval, 0 to 1."""

    link: str
    sent_bytes: int = 0
    share: float = 0.0


class Confirmation(Model):
    """Status of a grant at one node of its path."""

    node: str
    state: str
    reason: str = ""
    applied_at: datetime | None = None
    kernel_rate_bps: int = 0
    matching_flows: int = 0
    sent_bytes: int = 0
    delivered_bytes: int = 0
    counted_at: datetime | None = None
    egress: list[EgressLink] = Field(default_factory=list)
    against_routes: bool = False


class RequestedRate(Model):
    """The body of a rate request as the gateway understood it."""

    source: str
    destination: str
    protocol: str | None = None
    source_port: int | None = None
    destination_port: int | None = None
    dscp: int | None = None
    cgroup_id: int | None = None
    source_prefix: str | None = None
    destination_prefix: str | None = None
    source_prefixes: list[str] = Field(default_factory=list)
    destination_prefixes: list[str] = Field(default_factory=list)
    service: str
    guaranteed_bps: int = 0
    minimum_bps: int | None = None
    maximum_bps: int | None = None
    priority: int = 0
    delay_priority: int = 0
    burst_tolerance: int = 0
    start: datetime | None = None
    end: datetime | None = None
    duration_s: int | None = None
    traffic_class: str = "foreground"
    hold: bool = False
    callback_url: str | None = None
    avoid: list[str] = Field(default_factory=list)
    tags: dict[str, str] = Field(default_factory=dict)
    description: str = ""


class RateRequest(Model):
    """A rate request and its states."""

    id: str
    revision: int
    owner: str
    state: str = ""
    lifecycle: str
    enforcement: str
    service_state: str
    callback_state: str = "NONE"
    granted_bps: int
    path: list[str]
    confirmations: list[Confirmation]
    confirming_nodes: list[str]
    reason: str = ""
    matching_flows: int = 0
    unmatched_since: datetime | None = None
    warning: str = ""
    waits_until: datetime | None = None
    draining_until: datetime | None = None
    draining_nodes: list[str] = Field(default_factory=list)
    created_at: datetime
    updated_at: datetime
    enforced_at: datetime | None = None
    start: datetime | None = None
    end: datetime | None = None
    hold_until: datetime | None = None
    request: RequestedRate


class Problem(Model):
    """A problem document (RFC 9457)."""

    type: str = "about:blank"
    title: str = ""
    status: int = 0
    detail: str = ""
    instance: str | None = None
    field: str | None = None
    floor: int | float | None = None
    ceiling: int | float | None = None
    suggestions: list[str] | None = None
    request_id: str | None = None


class Window(Model):
    """A time in which a rate fits."""

    start: datetime
    end: datetime | None = None
    free_bps: int


class Preview(Model):
    """What a request would be granted."""

    granted: bool
    granted_bps: int
    path: list[str]
    bottleneck_link_id: str | None = None
    floor_bps: int | None = None
    ceiling_bps: int | None = None
    preempts: int = 0
    waits_until: datetime | None = None
    windows: list[Window] = Field(default_factory=list)
    refusal: Problem | None = None


class GrantedRate(Model):
    """A granted rate and since when."""

    start: datetime
    granted_bps: int
    service_state: str


class ReceiptNode(Model):
    """Counters of one agent."""

    node: str
    sent_bytes: int
    delivered_bytes: int
    applied_at: datetime | None = None


class Receipt(Model):
    """What was granted and delivered; not complete while the request lasts."""

    request_id: str
    owner: str
    complete: bool
    lifecycle: str
    reason: str = ""
    path: list[str]
    start: datetime
    ended_at: datetime | None = None
    enforced_at: datetime | None = None
    granted_bits: int
    rates: list[GrantedRate]
    nodes: list[ReceiptNode]
    stated_at: datetime


class Callback(Model):
    """A callback and its delivery."""

    id: str
    request_id: str
    event: str
    url: str
    state: str
    attempts: int
    created_at: datetime
    next_attempt_at: datetime | None = None
    delivered_at: datetime | None = None
    last_error: str = ""
    body: str = ""


class FoundPath(Model):
    """A path between two nodes."""

    kinds: list[str]
    links: list[str]
    nodes: list[str]
    free_bps: int
    admissible_bps: int
    bottleneck_link_id: str
    delay_us: int | None = None
    # "routed", "partly-routed" (`silent_nodes` report no route), "computed", or "steered" by the overlay.
    source: str = "computed"
    silent_nodes: list[str] = Field(default_factory=list)
    # Packets may take any of several equal-cost ways.
    branches: bool = False


class CapacityStep(Model):
    """From start until the next step."""

    start: datetime
    committed_bps: int
    maximum_bps: int = 0
    free_bps: int


class LinkCapacity(Model):
    """Commitments of a link over a time range."""

    link_id: str
    capacity_bps: int
    admissible_bps: int
    lease_bps: int = 0
    lease_draining_bps: int = 0
    lease_draining_until: datetime | None = None
    in_band_bps: int = 0
    steps: list[CapacityStep]


class Quota(Model):
    """Quota of one application; None: unlimited."""

    application: str
    revision: int
    max_requests: int | None = None
    max_total_bps: int | None = None
    max_priority: int | None = None
    horizon_s: int | None = None
    max_held_bps: int | None = None
    used_requests: int | None = None
    used_total_bps: int | None = None
    used_held_bps: int | None = None


class MapPosition(Model):
    """Where a node is drawn, 0..1."""

    x: float
    y: float


class NodeEdge(Model):
    """An interface of a node that polices incoming traffic."""

    interface: str
    aggregate_bps: int = 0
    exceed: str = "remark"
    depth_ms: int = 100


class NodeRoom(Model):
    """How much of one kind ("grants", "selectors") a node can hold, and what it holds."""

    kind: str
    held: int
    total: int


class NodeState(Model):
    """State that a node's agent reported."""

    enforcement: str
    agent_version: str
    capabilities: list[str]
    faults: list[str]
    # Empty: its agent, or the platform, does not report it.
    room: list[NodeRoom] = Field(default_factory=list)
    # None: the overlay does not run there, or the platform does not know it.
    overlay: OverlayState | None = None
    reported_at: datetime
    stale: bool


class TunnelEndClass(Model):
    """Packets of one customer of a tunnel."""

    name: str
    weight: int = 1
    selector: str = "any"


class TunnelEndApplication(Model):
    """A traffic controller at an end of a tunnel; ``on`` false: loaded, and asked nothing."""

    name: str
    file: str
    argument: str = ""
    limit_ms: int = 20
    on: bool = True


class TunnelEnd(Model):
    """One end of an elastic tunnel on a node; classes, period, congestion control and prefixes are the origin's."""

    tunnel: str
    role: Literal["origin", "destination"]
    interface: str = "chart-itm0"
    address: str
    port: int = 7400
    peer_node: str
    classes: list[TunnelEndClass] = Field(default_factory=list)
    period_ms: int | None = None
    congestion: str | None = None
    prefixes: list[str] = Field(default_factory=list)
    applications: list[TunnelEndApplication] = Field(default_factory=list)


class ProxiedTraffic(Model):
    """TCP connections that a node's proxy takes; without interfaces: none."""

    interfaces: list[str] = Field(default_factory=list)
    prefixes: list[str] = Field(default_factory=list)
    mode: Literal["same-ports", "new-ports"] = "same-ports"


class Node(Model):
    """A node."""

    id: str
    revision: int
    description: str
    addresses: list[str]
    sensor_pod_target: str
    tags: dict[str, str]
    map_position: MapPosition | None = None
    edges: list[NodeEdge] = Field(default_factory=list)
    tunnel_ends: list[TunnelEnd] = Field(default_factory=list)
    proxied_traffic: ProxiedTraffic = ProxiedTraffic()
    overlay: OverlayMembership = OverlayMembership()
    state: NodeState | None = None


class LinkLoad(Model):
    """Load of a link over its last report interval."""

    sent_bps: int
    explicit_rate_bps: int
    legacy_bps: int
    utilisation: float
    queue_bytes: int
    dropped_packets: int
    at: datetime


class LinkRate(Model):
    """Link rate: fair share and explicit-rate capacity of a link."""

    available_bps: int
    explicit_rate_capacity_bps: int
    valid_until: datetime


class MeasuredValue(Model):
    """Latest result of a sensor."""

    value: float
    at: datetime
    stale: bool


class LinkMeasured(Model):
    """Measurements between the two ends of a link."""

    rtt_us: MeasuredValue | None = None
    loss_ratio: MeasuredValue | None = None
    available_bandwidth_bps: MeasuredValue | None = None


class Link(Model):
    """A directed link, `<from>:<interface>`."""

    id: str
    revision: int
    from_node: str
    interface: str
    to_node: str
    capacity_bps: int
    capacity_from_interface: bool = False
    delay_us: int
    admission_share: float
    scone: bool = False
    quick_start: bool = False
    quick_start_threshold: float = 0.9
    quick_start_share: float = 1.0
    scone_police: bool = False
    advice_prefixes: list[str] = Field(default_factory=list)
    tags: dict[str, str]
    load: LinkLoad | None = None
    rate: LinkRate | None = None
    measured: LinkMeasured | None = None


class PolicyInForce(Model):
    """What holds for a node: what its policy says, else what the default policy says."""

    enforcement: str
    link_controller: str
    max_guaranteed_bps: int
    quick_start_request_bps: int = 0


class Policy(Model):
    """A policy; None: as the default policy says."""

    id: str
    revision: int
    enforcement: str | None
    link_controller: str | None
    max_guaranteed_bps: int | None
    customer_weights: dict[str, int] = Field(default_factory=dict)
    default_congestion: str = ""
    ipfix_collector: str = ""
    quick_start_request_bps: int | None = None
    in_force: PolicyInForce | None = None


class SensingConfiguration(Model):
    """A sensing configuration."""

    id: str
    revision: int
    source_node: str
    destination_node: str
    destination_address: str
    sensor: str
    parameters: dict[str, str]
    period_ms: int
    tolerance_ms: int
    priority: int
    valid_until: datetime | None = None
    owner: str
    # The mesh that keeps it.
    mesh: str | None = None


class Measurement(Model):
    """Latest result for one pair of nodes and one metric."""

    source_node: str
    destination_node: str
    metric: str
    sensor: str
    value: float
    unit: str
    measured_at: datetime
    error: str = ""
    stale: bool = False


class SeriesPoint(Model):
    """One step of a series."""

    at: datetime
    value: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    count: int = 0


class Series(Model):
    """History of one metric."""

    unit: str
    points: list[SeriesPoint]


class Event(Model):
    """One event of the live stream."""

    id: str
    name: str
    data: dict[str, Any]


class TunnelScheduleEntry(Model):
    """A target for a time."""

    start: datetime
    end: datetime | None = None
    target_bps: int


class TunnelSettings(Model):
    """Settings of a tunnel."""

    revision: int
    controller: str
    target_bps: int = 0
    request_id: str = ""
    schedule: list[TunnelScheduleEntry] = Field(default_factory=list)
    capacity_bps: int = 0
    window_min_segments: float = 0.0
    connections_maximum: int = 0
    kp: float | None = None
    ki: float | None = None
    connections: int = 0
    weights: dict[str, int] = Field(default_factory=dict)


class TunnelState(Model):
    """The last report of a tunnel."""

    at: datetime
    origin: str
    destination: str
    connections_wanted: int
    connections_established: int
    window_mean_segments: float | None = None
    rtt_mean_us: float | None = None
    queue_packets: int = 0
    dropped_packets: int = 0
    decaying: bool = False
    last_error: str = ""


class TunnelDecision(Model):
    """The controller's decision after one measurement period."""

    at: datetime
    rate_bps: int
    target_bps: int
    connections_before: int
    connections: int
    wanted: float
    guarded: bool = False
    starved: bool = False
    kp: float | None = None
    ki: float | None = None
    alpha: float | None = None
    tau_s: float | None = None
    spectral_radius: float | None = None
    equation_14_stable: bool | None = None


class TunnelStep(Model):
    """What happened between a change of target or controller and the next, in measurement periods."""

    start: datetime
    end: datetime | None = None
    target_bps: int
    controller: str
    periods: int
    settling_periods: int | None = None
    overshoot: float
    steady_error: float
    connections_peak: int
    connections_final: float
    connection_changes: int


class Tunnel(Model):
    """An elastic tunnel; steps and history only when one tunnel was requested."""

    id: str
    rate_bps: int
    target_bps: int
    target_source: str
    reason: str = ""
    settings: TunnelSettings | None = None
    state: TunnelState | None = None
    decision: TunnelDecision | None = None
    steps: list[TunnelStep] = Field(default_factory=list)
    history: list[TunnelDecision] = Field(default_factory=list)
