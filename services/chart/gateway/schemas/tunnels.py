"""Elastic tunnels: settings and state (Guirguis et al., 2003)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from chart.gateway.schemas.common import (
    Bps,
    CustomerName,
    Input,
    InputTimestamp,
    Output,
    Page,
    Revision,
    Timestamp,
    Weight,
)

TunnelControllerName = Literal["none", "naive", "p", "pi"]
TunnelTargetSourceName = Literal["none", "operator", "grant", "schedule"]
Gain = Annotated[float | None, Field(ge=0, le=1e6, allow_inf_nan=False)]


class TunnelScheduleEntryBody(Input):
    """A target for a time range; where several overlap, the last applies."""

    start: InputTimestamp
    end: InputTimestamp | None = Field(default=None, description="Exclusive end; null: open.")
    target_bps: Bps


class TunnelBody(Input):
    """Target of a tunnel and the controller of its number of connections."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"controller": "pi", "target_bps": 20_000_000}]})

    controller: TunnelControllerName = Field(
        default="pi", description="pi: computed gains. naive, p: for comparison. none: not controlled."
    )
    target_bps: Bps = Field(
        default=0, description="Used while neither schedule nor grant sets a target; 0: one connection."
    )
    request_id: str = Field(
        default="",
        max_length=64,
        pattern=r"^[A-Za-z0-9-]*$",
        description="A rate request: the target is its guaranteed rate while its grant is valid.",
    )
    schedule: list[TunnelScheduleEntryBody] = Field(default_factory=list, max_length=100)
    capacity_bps: Bps = Field(
        default=0, description="Capacity of the bottleneck; 0: from the grant's links, or estimated between the ends."
    )
    window_min_segments: float = Field(
        default=4.0,
        ge=0,
        le=1000,
        allow_inf_nan=False,
        description="Guard: no new connection while a window is smaller; 0: no guard.",
    )
    connections_maximum: int = Field(
        default=0, ge=0, le=256, description="Most connections; 0: the tunnel's own limit."
    )
    kp: Gain = Field(default=None, description="Connections per Mbit/s of error; null: computed.")
    ki: Gain = Field(default=None, description="Connections per Mbit/s of error and period; null: computed.")
    connections: int = Field(
        default=0, ge=0, le=256, description="Number of connections under the controller none; 0: unchanged."
    )
    weights: dict[CustomerName, Weight] = Field(
        default_factory=dict, max_length=64, description="Weights of customers by name."
    )


class TunnelScheduleEntry(Output):
    """A target for a time."""

    start: Timestamp
    end: Timestamp | None
    target_bps: int


class TunnelSettings(Output):
    """Settings of a tunnel with their revision."""

    revision: Revision
    controller: TunnelControllerName
    target_bps: int
    request_id: str
    schedule: list[TunnelScheduleEntry]
    capacity_bps: int
    window_min_segments: float
    connections_maximum: int
    kp: float | None
    ki: float | None
    connections: int
    weights: dict[str, int]


class TunnelCustomer(Output):
    """A customer: one class of packets in the tunnel."""

    name: str
    weight: int
    rate_bps: int
    queue_packets: int
    dropped_packets: int = Field(description="Since the tunnel started.")


class TunnelState(Output):
    """The last report of the tunnel."""

    at: Timestamp
    origin: str
    destination: str
    connections_wanted: int
    connections_established: int
    window_mean_segments: float | None
    rtt_mean_us: float | None
    queue_packets: int
    queue_bytes: int
    dropped_packets: int
    late_packets: int
    connection_changes: int
    congestion: str
    tls: bool
    decaying: bool = Field(description="The lease on its connections expired: it closes them, down to one.")
    last_error: str
    customers: list[TunnelCustomer]


class TunnelDecision(Output):
    """The controller's decision after one measurement period."""

    at: Timestamp
    rate_bps: int
    target_bps: int
    connections_before: int
    connections: int
    wanted: float = Field(description="Before rounding.")
    guarded: bool = Field(description="No new connection because a window is below window_min_segments.")
    starved: bool = Field(description="No new connection because the offered load does not fill the present ones.")
    kp: float | None
    ki: float | None
    alpha: float | None = Field(description="A connection's share of the capacity, as measured.")
    tau_s: float | None = Field(description="Time constant, as measured.")
    spectral_radius: float | None = Field(description="Largest pole of the sampled loop; below 1 is stable.")
    equation_14_stable: bool | None = Field(description="Equation (14) of Guirguis et al., for comparison.")
    capacity_bps: int


class TunnelStep(Output):
    """Response between one change of target or controller and the next; in measurement periods."""

    start: Timestamp
    end: Timestamp | None = Field(description="null: the current step.")
    target_bps: int
    controller: TunnelControllerName
    periods: int
    settling_periods: int | None = Field(
        description="Periods until the mean of three stayed within 5 % of the target for three; null: not settled."
    )
    overshoot: float = Field(description="Share of the target.")
    steady_error: float = Field(description="|mean - target| / target over the last 30 periods since settling.")
    connections_peak: int
    connections_final: float
    connection_changes: int


class Tunnel(Output):
    """An elastic tunnel."""

    id: str
    rate_bps: int = Field(description="At the destination in the last period, IP headers included.")
    target_bps: int
    target_source: TunnelTargetSourceName
    reason: str = Field(description="Why it is not controlled as configured; empty when it is.")
    settings: TunnelSettings | None = Field(description="null: no settings; the tunnel is monitored only.")
    state: TunnelState | None = Field(description="null: no report yet.")
    decision: TunnelDecision | None = Field(description="The newest; null: none yet.")


class TunnelDetail(Tunnel):
    """A tunnel with the figures of its steps and its last periods."""

    steps: list[TunnelStep] = Field(description="Newest first.")
    history: list[TunnelDecision] = Field(description="Oldest first.")


class TunnelPage(Page):
    """Tunnels by id."""

    items: list[Tunnel]
