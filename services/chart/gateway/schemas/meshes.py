"""Meshes: these nodes measure each other with these sensors; what they came to, and how fresh their results are."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from chart.gateway.schemas.common import Input, NodeId, Output, Page, Revision, SensorParameters, Tags, Timestamp

SensorName = Literal["ping", "traceroute", "tulip", "pathchirp", "pathrate", "spruce"]


class MeshSensorBody(Input):
    """What every pair measures, and how often."""

    sensor: SensorName
    period_ms: int = Field(ge=100, le=30 * 86_400_000, description="Time between two runs of a pair.", examples=[10000])
    parameters: SensorParameters = Field(default_factory=dict, max_length=32, examples=[{"count": "5"}])


class MeshBody(Input):
    """Nodes that measure each other (Brassil et al., The CHART System, section 6)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "description": "All sites",
                    "node_tags": {"role": "site"},
                    "sensors": [
                        {"sensor": "ping", "period_ms": 10_000},
                        {"sensor": "pathchirp", "period_ms": 300_000},
                    ],
                    "budget_share": 0.005,
                }
            ]
        }
    )

    description: str = Field(default="", max_length=200)
    nodes: list[NodeId] = Field(default_factory=list, max_length=1000, description="Members by id.")
    node_tags: Tags = Field(
        default_factory=dict,
        description="Nodes with all these tags are members too. No nodes and no tags: every node with a sensor pod.",
    )
    sensors: list[MeshSensorBody] = Field(min_length=1, max_length=8)
    budget_share: float = Field(
        default=0.005,
        gt=0,
        le=0.01,
        description="Most of each link's capacity that its probes and their answers take, 0 to 0.01. Where the sensors"
        " would take more, the periods of the pairs that cross the link are longer than asked for.",
    )
    priority: int = Field(default=0, ge=0, le=255, description="255 runs first.")
    enabled: bool = Field(default=True, description="false: nothing is measured.")
    active: bool = Field(
        default=True,
        description="Where not all pairs can be measured as often as asked for, a fifth of the budget is for pairs of"
        " which inference expects to learn most.",
    )


class MeshSensor(Output):
    """A sensor of a mesh."""

    sensor: str
    period_ms: int
    parameters: dict[str, str]


class MeshMember(Output):
    """A member and its state."""

    node: str
    state: str = Field(
        description="measuring; silent: its sensor pod does not report; without-address; unknown: not registered."
    )


class MeshLink(Output):
    """What a mesh takes of a link, answers to its probes included."""

    link: str
    capacity_bps: int | None = Field(description="null: unknown, planned as 1 Mbit/s.")
    planned_bytes: int = Field(description="Bytes a minute.")
    limit_bytes: int = Field(description="Bytes a minute that the mesh may take.")
    share: float = Field(description="Planned bytes over what the link carries in a minute, 0 to 1.")


class MeshPlan(Output):
    """What measures now because of a mesh; follows nodes, links and sensor pods within 10 s."""

    members: list[MeshMember]
    configurations: int = Field(description="Sensing configurations of the mesh: one per pair and sensor.")
    chosen: int = Field(description="Configurations among them of pairs that inference chose.")
    links: list[MeshLink] = Field(description="By link.")
    slowest: float = Field(description="The longest period over the one asked for; 1: the budget has room for all.")
    changed_at: Timestamp | None = Field(description="null: not since the registry started.")
    remarks: list[str] = Field(description="What cannot be measured as it was asked for.")


class Mesh(Output):
    """A mesh with its revision and its plan."""

    id: str
    revision: Revision
    description: str
    nodes: list[str]
    node_tags: dict[str, str]
    sensors: list[MeshSensor]
    budget_share: float
    priority: int
    enabled: bool
    active: bool
    owner: str
    plan: MeshPlan


class MeshPage(Page):
    """Meshes by id."""

    items: list[Mesh]


class CoveredPair(Output):
    """The latest result of one sensor of one pair."""

    source_node: str
    destination_node: str
    sensor: str
    metric: str
    period_ms: int = Field(description="As planned.")
    value: float | None = Field(description="null: no good result.")
    unit: str
    measured_at: Timestamp | None
    fresh: bool = Field(description="Measured without an error less than two periods ago.")
    error: str = Field(description="Why the last run gave no result.")


class Coverage(Output):
    """How much of a mesh is measured."""

    mesh: str
    pairs: int
    fresh: int = Field(description="Pairs of which every sensor's result is fresh.")
    items: list[CoveredPair] = Field(description="By source, destination and sensor.")
