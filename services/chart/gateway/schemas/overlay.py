"""The overlay: a node's routes, traces of packets, and what happened to links and paths."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from chart.gateway.overlay import FlowClass, Outcome, Skipped
from chart.gateway.schemas.common import Output, Timestamp

EventKind = Literal[
    "started", "link-failed", "link-returned", "path-failed", "path-returned", "path-left", "path-good-again", "unknown"
]


class OverlayPathQuality(Output):
    """What a node finds of a path by its own probes; null: nobody probes it, or nobody knows of that time."""

    alive: bool = Field(description="Its probes are answered, or nothing says otherwise.")
    taken_by: list[FlowClass] = Field(description="New flows of these classes take it.")
    left_by: list[FlowClass] = Field(description="Flows of these classes leave it: it is worse than another one.")
    rtt_ms: float | None
    exchange_loss: float | None = Field(description="Share of probes without an answer, 0 to 1.")
    load: float | None = Field(description="Share of its capacity that flows of the node take.")


class OverlayNextHop(Output):
    """A link of the node, in the order in which they are tried."""

    link_id: str
    next_node: str
    alive: bool = Field(description="The other end answers probes, or nothing says otherwise.")


class OverlayRoute(Output):
    """By which links packets of one colour go on from the node."""

    colour: int
    choice: bool = Field(description="Flows that enter the overlay at the node may choose it.")
    next_hops: list[OverlayNextHop]
    link_ids: list[str] = Field(description="All links of the path when none fails; empty where it is not chosen.")
    capacity_bps: int = Field(description="Of the weakest link; 0: unknown.")
    quality: OverlayPathQuality


class OverlayDestination(Output):
    """An overlay node and what is behind it."""

    node: str
    prefixes: list[str]
    routes: list[OverlayRoute]


class OverlayRoutes(Output):
    """A node's path table with what the node reports."""

    node: str
    at: Timestamp
    generation: int = Field(description="Revision of the newest change of the topology that it was made from.")
    reported: bool = Field(description="false: nothing that is known says how its links are.")
    destinations: list[OverlayDestination]


class OverlaySkip(Output):
    """A next hop that was not taken."""

    link_id: str
    reason: Skipped = Field(description="failed: does not answer probes; back: packets came from there.")


class OverlayHop(Output):
    """From a node to the next."""

    node: str
    link_id: str
    next_node: str
    skipped: list[OverlaySkip]
    all_failed: bool = Field(description="No next hop answers probes; the first is taken all the same.")
    reported: bool = Field(description="false: the node does not report how its links are.")


class OverlayTracedPath(Output):
    """Where packets of one colour go."""

    colour: int
    choice: bool = Field(description="Flows may choose it.")
    hops: list[OverlayHop]
    outcome: Outcome = Field(
        description="arrives; circles until the TTL ends; no-table: a node has no path table; no-path: it has none."
    )
    detours: bool = Field(description="Some node does not take its first next hop.")
    planned_link_ids: list[str] = Field(description="Links of the path when none fails.")
    capacity_bps: int = Field(description="Of the weakest link; 0: unknown.")
    quality: OverlayPathQuality
    why: list[str] = Field(description="What is to be said about it, one sentence each.")


class OverlayTrace(Output):
    """Where packets from a node to a destination go, path by path."""

    source: str
    destination: str = Field(description="As it was asked for.")
    owner: str | None = Field(description="The overlay node that it is behind; null: the kernel's routes are taken.")
    prefix: str | None = Field(description="Of the owner, by which it was found; null: it was asked for by name.")
    at: Timestamp
    past: bool = Field(description="From the archive: path tables and events of then.")
    paths: list[OverlayTracedPath]
    why: list[str] = Field(description="What is to be said about all of it, one sentence each.")


class OverlayEvent(Output):
    """What happened to a link or path of a node."""

    at: Timestamp
    node: str
    kind: EventKind
    link_id: str | None
    owner: str | None = Field(description="Where the path leads to.")
    colour: int | None
    flow_classes: list[FlowClass] = Field(description="Flows of these classes left the path, or may take it again.")
    rtt_ms: float
    exchange_loss: float
    interface_down: bool = Field(description="The link failed because its interface went down.")


class OverlayEventList(Output):
    """Events, the newest first."""

    items: list[OverlayEvent]
