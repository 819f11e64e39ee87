"""Answers of the gateway about the overlay: which nodes take part, and how their overlay links are."""

from __future__ import annotations

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
