"""`chart overlay`: which nodes route for the overlay, how its links are, where packets go, and what happened."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer

from chart_client.commands.common import (
    JsonOption,
    ServerOption,
    TokenOption,
    dump,
    local_time,
    out,
    print_json,
    print_table,
    session,
    show_all,
    show_one,
    told,
)
from chart_client.commands.edges import KEPT
from chart_client.commands.stated import NodeId
from chart_client.models import Node
from chart_client.overlay_models import (
    OverlayEvent,
    OverlayRoute,
    OverlayRoutes,
    OverlayTrace,
    OverlayTracedPath,
    PathQuality,
)
from chart_client.transport import DEFAULT_SERVER

app = typer.Typer(help="The overlay: paths that pass failed links.", no_args_is_help=True)

Row = tuple[str, str, str, str, str, str, str]

AtOption = Annotated[
    datetime | None, typer.Option("--at", help="Local time of the past, from the archive; default: now.")
]
# How an event is told of; what it happened to comes before.
_HAPPENED = {
    "started": "the overlay began to run",
    "link-failed": "failed",
    "link-returned": "answers probes",
    "path-failed": "is not answered: its flows take another path",
    "path-returned": "answers probes",
    "path-left": "is worse than another: flows of {} leave it",
    "path-good-again": "is good again: flows of {} may take it",
}


def rows_of(node: Node) -> list[Row]:
    """A line for each overlay link of a node; one that says why there is none."""
    behind = ", ".join(node.overlay.prefixes)
    state = node.state.overlay if node.state is not None and not node.state.stale else None
    if state is None:
        return [(node.id, behind, "no report of the overlay", "", "", "", "")]
    if not state.links:
        return [(node.id, behind, "no overlay links", "", "", "", "")]
    return [
        (
            node.id if number == 0 else "",
            behind if number == 0 else "",
            link.link_id,
            "alive" if link.alive else "failed",
            f"{link.rtt_ms:.1f} ms",
            f"{link.exchange_loss:.1%}",
            str(link.forwarded_packets),
        )
        for number, link in enumerate(state.links)
    ]


@app.command("status")
def status(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List overlay nodes with their overlay links."""
    with session(server, token, as_json=as_json) as client:
        nodes = [node for node in client.nodes.list() if node.overlay.member]
    if as_json:
        print_json(
            {
                node.id: {
                    "prefixes": node.overlay.prefixes,
                    "state": dump(node.state.overlay) if node.state is not None and node.state.overlay else None,
                }
                for node in nodes
            }
        )
        return
    head = ("node", "prefixes behind it", "overlay link", "state", "RTT", "round-trip loss", "packets")
    print_table(head, [row for node in nodes for row in rows_of(node)], "no overlay nodes: chart overlay join NODE")


@app.command("join")
def join(
    node_id: NodeId,
    prefix: Annotated[
        list[str] | None, typer.Option("--prefix", help="Network behind the node, CIDR; may be repeated.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Let a node route for the overlay, with these networks behind it besides its own addresses."""
    with session(server, token, as_json=as_json) as client:
        known = client.nodes.get(node_id)
        fields = known.model_dump(mode="json", include=KEPT)
        part = {"member": True, "prefixes": prefix or []}
        stored = client.nodes.put(node_id, revision=known.revision, **fields, overlay=part)
    behind = ", ".join(stored.overlay.prefixes) or "only its own addresses"
    told(stored, f"{stored.id} is an overlay node; behind it: {behind}", as_json=as_json)


@app.command("leave")
def leave(
    node_id: NodeId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Let a node route for the overlay no longer."""
    with session(server, token, as_json=as_json) as client:
        known = client.nodes.get(node_id)
        fields = known.model_dump(mode="json", include=KEPT)
        stored = client.nodes.put(node_id, revision=known.revision, **fields, overlay={"member": False})
    told(stored, f"{stored.id} is no overlay node", as_json=as_json)


class Of(StrEnum):
    """What something happened to."""

    LINKS = "links"
    PATHS = "paths"


def _local(at: datetime | None) -> datetime | None:
    return at.astimezone() if at is not None else None


def _quality(quality: PathQuality) -> tuple[str, str, str]:
    """RTT, loss and load."""
    return (
        "-" if quality.rtt_ms is None else f"{quality.rtt_ms:.1f} ms",
        "-" if quality.exchange_loss is None else f"{quality.exchange_loss:.1%}",
        "-" if quality.load is None else f"{quality.load:.0%}",
    )


def _hops(route: OverlayRoute) -> str:
    return ", ".join(f"{hop.link_id}{'' if hop.alive else ' (failed)'}" for hop in route.next_hops)


def _state(route: OverlayRoute) -> str:
    """Of a path that flows may choose; the others nobody probes."""
    quality = route.quality
    if not route.choice:
        return "-"
    words = [] if quality.alive else ["failed"]
    words += [f"left by {', '.join(quality.left_by)}"] if quality.left_by else []
    return "; ".join(words) or "alive"


def _print_routes(found: OverlayRoutes, destination: str) -> None:
    shown = [one for one in found.destinations if destination in ("", one.node)]
    print_table(
        ("to", "prefixes behind it", "path", "next hops", "state", "taken by", "RTT", "round-trip loss", "load"),
        [
            (
                one.node if number == 0 else "",
                ", ".join(one.prefixes) if number == 0 else "",
                route.colour,
                _hops(route),
                _state(route),
                ", ".join(route.quality.taken_by) or "-",
                *_quality(route.quality),
            )
            for one in shown
            for number, route in enumerate(one.routes)
        ],
        f"{found.node} has no path{f' to {destination}' if destination else ''}",
    )
    if not found.reported:
        out.print(f"{found.node} does not report how its links are", markup=False)


@app.command("routes")
def routes(
    node_id: NodeId,
    destination: Annotated[str, typer.Option("--to", help="Only to this overlay node.")] = "",
    at: AtOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List by which links a node sends packets to each other overlay node, and how its paths are."""
    show_one(
        server,
        token,
        lambda client: client.overlay.routes(node_id, at=_local(at)),
        lambda found: _print_routes(found, destination),
        as_json=as_json,
    )


def lines_of(path: OverlayTracedPath) -> list[str]:
    """A path of a trace in words."""
    rtt, loss, load = _quality(path.quality)
    known = "" if path.quality.rtt_ms is None else f"   RTT {rtt}, round-trip loss {loss}, load {load}"
    lines = [f"path {path.colour}  {' > '.join(path.nodes) or 'no hop'}{known}"]
    for hop in path.hops:
        passed = ", ".join(f"not {one.link_id}: {one.reason}" for one in hop.skipped)
        silent = "" if hop.reported else "  (does not report)"
        lines.append(f"    {hop.node} by {hop.link_id}{f' ({passed})' if passed else ''}{silent}")
    return [*lines, *(f"    {sentence}" for sentence in path.why)]


def _print_trace(found: OverlayTrace) -> None:
    behind = f"{found.owner}, {found.prefix}" if found.prefix else found.owner or "no overlay node"
    when = f" at {local_time(found.at)}" if found.past else ""
    out.print(f"{found.source} to {found.destination} (behind {behind}){when}", markup=False)
    lines: Sequence[str] = [line for path in found.paths for line in lines_of(path)]
    for line in [*found.why, *lines]:
        out.print(line, markup=False, soft_wrap=True)


@app.command("trace")
def trace(
    source: Annotated[str, typer.Argument(metavar="FROM", help="The overlay node at which packets enter.")],
    destination: Annotated[str, typer.Argument(metavar="TO", help="Another overlay node, or an address.")],
    at: AtOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show hop by hop where packets go, path by path, and why: which flows take it, which links are passed over."""
    show_one(
        server,
        token,
        lambda client: client.overlay.trace(source, destination, at=_local(at)),
        _print_trace,
        as_json=as_json,
    )


def event_row(event: OverlayEvent) -> tuple[str, str, str]:
    """When, where and what."""
    happened = _HAPPENED.get(event.kind, event.kind).format(" and ".join(event.flow_classes) or "?")
    if event.link_id:
        cause = ": its interface is down" if event.interface_down else ""
        what = f"link {event.link_id} {happened}{cause}"
    elif event.owner:
        measured = f" (RTT {event.rtt_ms:.1f} ms, round-trip loss {event.exchange_loss:.1%})"
        what = f"path {event.colour} to {event.owner} {happened}{measured}"
    else:
        what = happened
    return local_time(event.at, "milliseconds"), event.node, what


@app.command("events")
def events(
    node: Annotated[str, typer.Option(help="Only of this node.")] = "",
    link: Annotated[str, typer.Option(help="Only of this link.")] = "",
    of: Annotated[Of | None, typer.Option(help="Only of links, with starts, or only of paths.")] = None,
    destination: Annotated[str, typer.Option("--to", help="Only of paths to this overlay node.")] = "",
    hours: Annotated[float, typer.Option(min=0.01, max=24 * 366, help="How far back.")] = 24.0,
    until: Annotated[datetime | None, typer.Option(help="Local time; default: now.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Most events, the newest.")] = 100,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List failures and returns of overlay links and paths, and paths that flows left, the newest first."""
    end = (until or datetime.now()).astimezone()
    show_all(
        server,
        token,
        lambda client: client.overlay.events(
            node=node,
            link=link,
            owner=destination,
            of=of.value if of is not None else None,
            start=end - timedelta(hours=hours),
            until=None if until is None else end,
            limit=limit,
        ),
        ("when", "node", "what"),
        event_row,
        "nothing happened to the overlay in this time",
        as_json=as_json,
    )
