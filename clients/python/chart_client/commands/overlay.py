"""`chart overlay`: which nodes route for the overlay, and whether their overlay links answer."""

from __future__ import annotations

from typing import Annotated

import typer

from chart_client.commands.common import (
    JsonOption,
    ServerOption,
    TokenOption,
    dump,
    print_json,
    print_table,
    session,
    told,
)
from chart_client.commands.edges import KEPT
from chart_client.commands.stated import NodeId
from chart_client.models import Node
from chart_client.transport import DEFAULT_SERVER

app = typer.Typer(help="The overlay: paths that pass failed links.", no_args_is_help=True)

Row = tuple[str, str, str, str, str, str, str]


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
