"""Answers of the gateway about the overlay: which nodes take part, where packets go, and what happened."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from chart_client.model import Model


class OverlayLinkState(Model):
    """An overlay link as its node sees it."""

    link_id: str
    alive: bool
    rtt_ms: float
    exchange_loss: float
    failures: int
    forwarded_packets: int
    forwarded_bytes: int


class OverlayState(Model):
    """Packets of the overlay at a node, and its overlay links."""

    links: list[OverlayLinkState]
    entered_packets: int
    transit_packets: int
    left_packets: int
    detour_packets: int
    refused_packets: int


class OverlayMembership(Model):
    """A node's part in the overlay, and the networks behind it besides its own addresses."""

    member: bool = False
    prefixes: list[str] = Field(default_factory=list)


class PathQuality(Model):
    """What a node finds of a path by its own probes; None: nobody knows."""

    alive: bool
    taken_by: list[str]
    left_by: list[str]
    rtt_ms: float | None = None
    exchange_loss: float | None = None
    load: float | None = None


class OverlayNextHop(Model):
    """A link of a node, in the order in which they are tried."""

    link_id: str
    next_node: str
    alive: bool


class OverlayRoute(Model):
    """By which links packets of one colour go on."""

    colour: int
    choice: bool
    next_hops: list[OverlayNextHop]
    link_ids: list[str]
    capacity_bps: int
    quality: PathQuality


class OverlayDestination(Model):
    """An overlay node, what is behind it, and how it is reached."""

    node: str
    prefixes: list[str]
    routes: list[OverlayRoute]


class OverlayRoutes(Model):
    """The path table of a node."""

    node: str
    at: datetime
    generation: int
    reported: bool
    destinations: list[OverlayDestination]


class OverlaySkip(Model):
    """A next hop that was not taken: failed, or back."""

    link_id: str
    reason: str


class OverlayHop(Model):
    """From a node to the next."""

    node: str
    link_id: str
    next_node: str
    skipped: list[OverlaySkip]
    all_failed: bool
    reported: bool


class OverlayTracedPath(Model):
    """Where packets of one colour go: arrives, circles, no-table or no-path."""

    colour: int
    choice: bool
    hops: list[OverlayHop]
    outcome: str
    detours: bool
    planned_link_ids: list[str]
    capacity_bps: int
    quality: PathQuality
    why: list[str]

    @property
    def nodes(self) -> list[str]:
        """The nodes on it, in their order."""
        return [hop.node for hop in self.hops[:1]] + [hop.next_node for hop in self.hops]


class OverlayTrace(Model):
    """Where packets from a node to a destination go; owner None: by the kernel's routes."""

    source: str
    destination: str
    owner: str | None = None
    prefix: str | None = None
    at: datetime
    past: bool
    paths: list[OverlayTracedPath]
    why: list[str]


class OverlayEvent(Model):
    """What happened to a link or path of a node."""

    at: datetime
    node: str
    kind: str
    link_id: str | None = None
    owner: str | None = None
    colour: int | None = None
    flow_classes: list[str]
    rtt_ms: float
    exchange_loss: float
    interface_down: bool
