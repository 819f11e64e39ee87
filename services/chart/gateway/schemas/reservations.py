"""What admission knows of the network, and what operators let applications have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from chart.gateway.schemas.common import MAX_BPS, Input, Output, Page, Revision, Timestamp

PathKind = Literal["widest-shortest", "shortest", "widest", "fewest-hops", "disjoint", "routed", "steered"]
PathSource = Literal["routed", "partly-routed", "computed", "steered"]
MAX_HORIZON_S = 20 * 366 * 86_400


class FoundPath(Output):
    """A path between two nodes."""

    kinds: list[PathKind] = Field(
        description="In which respects it is the best: routed is the one that packets take and what a request gets,"
        " widest-shortest what it gets where no node reports its routes, shortest has the least delay, disjoint shares"
        " no link with the first, steered is another path by which the overlay can send its packets."
    )
    links: list[str]
    nodes: list[str]
    free_bps: int = Field(description="Free rate over the whole time range, bits per second.")
    admissible_bps: int = Field(description="Admission limit of the path, bits per second.")
    bottleneck_link_id: str
    delay_us: int | None = Field(
        description="One-way propagation delay, microseconds; null: unknown for a link of the path, or packets may take"
        " one way or another."
    )
    source: PathSource = Field(
        description="routed: by the next hops that every node on the way reports of its kernel. partly-routed: some"
        " report none and are crossed on a path of fewest hops. computed: from the registry; where another path is"
        " routed, packets do not take this one and no request gets it. steered: by the overlay, which sends a request's"
        " packets by this path when it is the request's."
    )
    silent_nodes: list[str] = Field(description="Nodes of a partly routed path that report no route.")
    branches: bool = Field(
        description="Packets may take any of several equal-cost ways; a rate is committed on every link of them."
    )


class PathList(Output):
    """Paths; the first is the one that a request gets."""

    items: list[FoundPath]


class CapacityStep(Output):
    """From start until the next step."""

    start: Timestamp
    committed_bps: int = Field(description="Guaranteed rates and the lease for in-band requests.")
    maximum_bps: int = Field(description="Maximum rates, which may be oversubscribed.")
    free_bps: int


class LinkCapacity(Output):
    """Commitments of a link over a time, as steps."""

    link_id: str
    capacity_bps: int
    admissible_bps: int = Field(description="Admission limit, bits per second.")
    lease_bps: int = Field(description="Part of the commitments leased to in-band requests, bits per second.")
    lease_draining_bps: int = Field(
        description=(
            "Part of the commitments that earlier, larger leases hold besides: agents that are cut off may still let"
            " in-band requests draw it. Bits per second."
        )
    )
    lease_draining_until: Timestamp | None = Field(description="Until when at the latest; null: nothing drains.")
    in_band_bps: int = Field(description="Part of the lease in use, bits per second.")
    steps: list[CapacityStep]


class QuotaBody(Input):
    """Quota of one application; null: unlimited."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_requests": 100, "max_total_bps": 500000000}]})

    max_requests: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Most requests at a time."
    )
    max_total_bps: Annotated[int, Field(ge=1, le=MAX_BPS)] | None = Field(
        default=None, description="Highest sum of guaranteed rates, bits per second."
    )
    max_priority: Annotated[int, Field(ge=0, le=255)] | None = Field(default=None, description="Highest priority.")
    horizon_s: Annotated[int, Field(ge=1, le=MAX_HORIZON_S)] | None = Field(
        default=None,
        description="Seconds from now within which a request must end; one that states no end gets the latest.",
    )
    max_held_bps: Annotated[int, Field(ge=1, le=MAX_BPS)] | None = Field(
        default=None, description="Highest sum of rates that are held, waiting for a commit, bits per second."
    )


class Quota(Output):
    """A quota and its current use."""

    application: str = Field(
        description="Subject of the application's token; default: all applications without their own, not operators."
    )
    revision: Revision
    max_requests: int | None
    max_total_bps: int | None
    max_priority: int | None
    horizon_s: int | None
    max_held_bps: int | None
    used_requests: int | None = Field(description="null for default.")
    used_total_bps: int | None
    used_held_bps: int | None


class QuotaPage(Page):
    """One page of quotas, by application."""

    items: list[Quota]
