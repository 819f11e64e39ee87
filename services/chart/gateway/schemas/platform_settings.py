"""What operators set for the whole platform."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from chart.gateway.schemas.common import Input, Output, Page, Revision

Share = Annotated[float, Field(ge=0, le=1)]
Owner = Annotated[str, Field(min_length=1, max_length=128)]


class ApplicationLimits(Input):
    """What an owner's sensing configurations and single runs may take of each sensor pod; null: no limit of its own."""

    configurations: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Configurations on one pod."
    )
    priority: Annotated[int, Field(ge=0, le=255)] | None = Field(default=None, description="Highest priority.")
    period_ms: Annotated[int, Field(ge=0, le=30 * 86_400_000)] | None = Field(
        default=None, description="Shortest period."
    )
    one_shots_per_minute: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    probe_share: Share | None = Field(default=None, description="Part of each link's probing budget.")


class PlatformSettingsBody(Input):
    """Settings of the whole platform. What is null or left out is what the services were started with; the default of
    each is in its description.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"probe_share": 0.005, "application_limits": {"*": {"configurations": 100, "priority": 10}}}]
        }
    )

    oversubscription: Annotated[float, Field(ge=1, le=1000)] | None = Field(
        default=None,
        description="Maximum and guaranteed rates together, in multiples of the admission limit of a link (4).",
    )
    lease_idle_share: Share | None = Field(
        default=None,
        description="Share of the admission limit that a link leases for in-band requests while nobody draws (0.1).",
    )
    lease_greatest_share: Share | None = Field(
        default=None, description="Share of the admission limit that a link leases for in-band requests at most (0.5)."
    )
    snapshot_period_s: Annotated[float, Field(ge=0, le=366 * 86_400)] | None = Field(
        default=None, description="Between two snapshots of all pairs (14400); 0: none by themselves."
    )
    probe_share: Annotated[float, Field(ge=0.0001, le=0.5)] | None = Field(
        default=None, description="Part of each link's capacity that probes may take, all sensor pods together (0.01)."
    )
    application_limits: dict[Owner, ApplicationLimits] | None = Field(
        default=None,
        max_length=1000,
        description="Limits of sensing by owner, `*`: of all others; {}: none.",
    )
    inference_fraction: Annotated[float, Field(ge=0.001, le=1)] | None = Field(
        default=None, description="Share of the pairs that shall be measured in the end (0.13)."
    )
    inference_active_pairs: Annotated[int, Field(ge=0, le=200)] | None = Field(
        default=None, description="Pairs that inference has measured in each period (0: none)."
    )
    inference_active_valid_s: Annotated[float, Field(ge=10, le=3600)] | None = Field(
        default=None, description="Time that such a pair has to be measured (120)."
    )
    inference_active_priority: Annotated[int, Field(ge=0, le=255)] | None = Field(
        default=None, description="Its priority (10)."
    )
    authority_unauthorised: Literal["drop", "free"] | None = Field(
        default=None,
        description="What nodes do with in-band requests without an authorisation: drop, or an available rate (free).",
    )
    authority_free_available_bps: Annotated[int, Field(ge=0, le=10**13)] | None = Field(
        default=None, description="Available rate that these are granted (10000000)."
    )


class PlatformSettings(Output):
    """What is set, with its revision; null: what the services were started with."""

    id: str = Field(description="`platform`.")
    revision: Revision
    oversubscription: float | None
    lease_idle_share: float | None
    lease_greatest_share: float | None
    snapshot_period_s: float | None
    probe_share: float | None
    application_limits: dict[str, ApplicationLimits] | None
    inference_fraction: float | None
    inference_active_pairs: int | None
    inference_active_valid_s: float | None
    inference_active_priority: int | None
    authority_unauthorised: str | None
    authority_free_available_bps: int | None


class PlatformSettingsPage(Page):
    """The one item."""

    items: list[PlatformSettings]
