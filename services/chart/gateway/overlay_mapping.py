"""The overlay as REST shows it, with sentences that say why packets go where they go. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from chart.gateway.overlay import CLASSES, Hop, PathFacts, PathId, Traced, View
from chart.gateway.schemas import overlay as schemas
from chart.gateway.schemas.common import timestamp
from chart.v1 import archive_pb2, node_state_pb2
from chart.v1.path_table_pb2 import OverlayOwner, OverlayPath, PathTable

_KIND_PREFIX = "OVERLAY_EVENT_KIND_"


def _quality(facts: PathFacts) -> schemas.OverlayPathQuality:
    return schemas.OverlayPathQuality(
        alive=facts.alive,
        taken_by=list(facts.taken_by),
        left_by=list(facts.left_by),
        rtt_ms=facts.rtt_ms,
        exchange_loss=facts.exchange_loss,
        load=facts.load,
    )


def routes(view: View, table: PathTable) -> schemas.OverlayRoutes:
    """A node's path table."""
    neighbours = {link.link_id: link.neighbour for link in table.links}

    def route(owner: OverlayOwner, path: OverlayPath) -> schemas.OverlayRoute:
        return schemas.OverlayRoute(
            colour=path.colour,
            choice=path.choice,
            next_hops=[
                schemas.OverlayNextHop(
                    link_id=link_id,
                    next_node=neighbours.get(link_id, ""),
                    alive=(table.node, link_id) not in view.failed,
                )
                for link_id in path.next_hops
            ],
            link_ids=list(path.link_ids),
            capacity_bps=path.capacity_bps,
            quality=_quality(view.facts(PathId(table.node, owner.node, path.colour))),
        )

    return schemas.OverlayRoutes(
        node=table.node,
        at=timestamp(view.at_us),
        generation=table.generation,
        reported=table.node not in view.silent,
        destinations=[
            schemas.OverlayDestination(
                node=owner.node, prefixes=list(owner.prefixes), routes=[route(owner, path) for path in owner.paths]
            )
            for owner in table.owners
            if owner.node != table.node
        ],
    )


def traced(view: View, one: Traced, *, chosen: bool = True) -> schemas.OverlayTracedPath:
    """A path with its sentences. ``chosen``: flows choose between others than this."""
    return schemas.OverlayTracedPath(
        colour=one.colour,
        choice=one.choice,
        hops=[_hop(view, hop) for hop in one.hops],
        outcome=one.outcome,
        detours=one.detours,
        planned_link_ids=list(one.planned),
        capacity_bps=one.capacity_bps,
        quality=_quality(one.facts),
        why=_why(one, chosen=chosen),
    )


def _hop(view: View, hop: Hop) -> schemas.OverlayHop:
    return schemas.OverlayHop(
        node=hop.node,
        link_id=hop.link_id,
        next_node=hop.next_node,
        skipped=[schemas.OverlaySkip(link_id=link_id, reason=reason) for link_id, reason in hop.skipped],
        all_failed=hop.all_failed,
        reported=hop.node not in view.silent,
    )


def _why(one: Traced, *, chosen: bool) -> list[str]:
    facts = one.facts
    said = []
    if not one.choice and chosen:
        said.append("Flows that agree on rates in band take it, and packets of which no flow is known.")
    if facts.taken_by:
        said.append(f"New flows of {_listed(facts.taken_by)} take it.")
    elif one.choice and facts.measured and facts.alive:
        said.append("No new flows take it now; it stands by.")
    if not facts.alive:
        said.append("Its probes are not answered: its flows take another path.")
    if facts.left_by:
        said.append(f"Flows of {_listed(facts.left_by)} leave it: it is worse than another one.")
    for hop in one.hops:
        failed = [link_id for link_id, reason in hop.skipped if reason == "failed"]
        if hop.all_failed:
            said.append(f"At {hop.node} no next hop answers probes: packets go by the first, {hop.link_id}.")
        elif failed:
            said.append(f"At {hop.node} {_listed(failed)} failed: packets go by {hop.link_id}.")
        elif hop.skipped:
            said.append(f"At {hop.node} packets do not go back where they came from: they go by {hop.link_id}.")
    if one.outcome == "circles":
        said.append("Packets circle until their TTL ends, or until the next path table.")
    elif one.outcome != "arrives":
        last = one.hops[-1].next_node if one.hops else ""
        words = "has no path table" if one.outcome == "no-table" else "has no path there"
        said.append(f"{last or 'The node'} {words}: packets take the kernel's routes from there.")
    return said


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def why_of_all(view: View, source: str, owner: str | None, paths: Sequence[Traced]) -> list[str]:
    """What is to be said about a trace as a whole."""
    if source not in view.tables:
        return [f"{source} has no path table: packets from there take the kernel's routes."]
    if owner is None:
        return ["No overlay node has a prefix for it: packets take the kernel's routes."]
    if owner == source:
        return [f"It is behind {source} itself: packets do not enter the overlay."]
    if not paths:
        return [f"No overlay links lead from {source} to {owner}: packets take the kernel's routes."]
    said = []
    if not any(one.choice for one in paths):
        said.append("There is one path only: flows have nothing to choose.")
    if source in view.silent:
        said.append(f"{source} does not report: which flows take which path is not known.")
    return said


def event(message: archive_pb2.NodeOverlayEvent) -> schemas.OverlayEvent:
    """An event of the archive."""
    stated = message.event
    known = stated.kind in node_state_pb2.OverlayEventKind.values() and stated.kind != 0
    name = node_state_pb2.OverlayEventKind.Name(stated.kind) if known else "UNKNOWN"
    kind = name.removeprefix(_KIND_PREFIX).lower().replace("_", "-")
    return schemas.OverlayEvent(
        at=timestamp(stated.at_us),
        node=message.node,
        kind=cast(schemas.EventKind, kind),
        link_id=stated.link_id or None,
        owner=stated.owner or None,
        colour=stated.colour if stated.owner else None,
        flow_classes=[CLASSES[one] for one in stated.flow_classes if one in CLASSES],
        rtt_ms=stated.rtt_us / 1000,
        exchange_loss=stated.exchange_loss,
        interface_down=stated.interface_down,
    )
