"""Groups of pairs: which pairs are looked at together, and what was measured between them."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from chart.gateway.schemas.common import Input, NodeId, Output, Revision, Timestamp

HistoryResolution = Literal["measurement", "minute", "hour"]


class NodePairBody(Input):
    """A single pair."""

    source_node: NodeId
    destination_node: NodeId


class PairGroupBody(Input):
    """Every source with every destination, and single pairs; at most 10,000 pairs."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"description": "Branches to the data centre", "destination_nodes": ["charlie", "delta"]}]
        }
    )

    description: str = Field(default="", max_length=200)
    source_nodes: list[NodeId] = Field(default_factory=list, max_length=1000, description="Empty: any node.")
    destination_nodes: list[NodeId] = Field(default_factory=list, max_length=1000, description="Empty: any node.")
    pairs: list[NodePairBody] = Field(
        default_factory=list,
        max_length=10_000,
        description="Single pairs besides; with single pairs alone sources and destinations mean none.",
    )


class NodePair(Output):
    """A single pair."""

    source_node: str
    destination_node: str


class PairGroup(Output):
    """A group of pairs with its revision."""

    id: str
    revision: Revision
    description: str
    source_nodes: list[str]
    destination_nodes: list[str]
    pairs: list[NodePair]
    owner: str = Field(description="Who may change it besides operators.")


class PairGroups(Output):
    """By id."""

    items: list[PairGroup]


class PairSeries(Output):
    """Series of a pair or of all pairs of a group; the lists have one value for each step that has results."""

    source_node: str | None = Field(description="null: of all pairs.")
    destination_node: str | None
    unit: str
    at: list[Timestamp] = Field(description="Starts of the steps.")
    mean: list[float] = Field(description="Over all results of the step.")
    minimum: list[float]
    maximum: list[float]
    count: list[int] = Field(description="Results in the step.")
    p50: list[float] = Field(description="Of all pairs only: median of the pairs' means.")
    p95: list[float] = Field(description="Of all pairs only.")
    pairs: list[int] = Field(description="Of all pairs only: pairs with results in the step.")


class PairSeriesList(Output):
    """One of all pairs, or one for each pair that has results."""

    items: list[PairSeries]
