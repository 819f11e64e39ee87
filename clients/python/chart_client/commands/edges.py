"""`chart node edge`: interfaces at which a node polices what comes in from other domains."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from chart_client.client import Client
from chart_client.commands.common import (
    JsonOption,
    Rate,
    ServerOption,
    TokenOption,
    dump,
    print_json,
    print_table,
    rate_option,
    session,
    told,
)
from chart_client.commands.stated import NodeId
from chart_client.models import Node, NodeEdge
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

edge = typer.Typer(help="Interfaces at which nodes police incoming traffic.", no_args_is_help=True)

# What a node is registered with, besides its edges.
KEPT = {"description", "addresses", "sensor_pod_target", "tags", "map_position"}
Interface = Annotated[str, typer.Argument(metavar="INTERFACE", help="Interface of the node, such as eth1.")]


def with_edge(edges: list[NodeEdge], interface: str, changes: dict[str, Any]) -> list[NodeEdge]:
    """The edges with one of them added or changed; what is not said stays as it was."""
    before = next((one for one in edges if one.interface == interface), NodeEdge(interface=interface))
    changed = NodeEdge(**{**before.model_dump(), **changes})
    return [*(one for one in edges if one.interface != interface), changed]


def _put(client: Client, node: Node, edges: list[NodeEdge]) -> Node:
    fields = node.model_dump(mode="json", include=KEPT)
    return client.nodes.put(node.id, revision=node.revision, **fields, edges=[one.model_dump() for one in edges])


@edge.command("list")
def list_edges(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List the edges of all nodes."""
    with session(server, token, as_json=as_json) as client:
        nodes = list(client.nodes.list())
    if as_json:
        print_json({node.id: dump(node.edges) for node in nodes if node.edges})
        return
    rows = [
        (
            node.id,
            one.interface,
            format_bps(one.aggregate_bps) if one.aggregate_bps else "unmarked",
            one.exceed,
            f"{one.depth_ms} ms",
        )
        for node in nodes
        for one in node.edges
    ]
    print_table(("node", "interface", "EF without a grant", "above the rate", "bucket depth"), rows, "no edges")


@edge.command("set")
def set_edge(
    node_id: NodeId,
    interface: Interface,
    aggregate: Annotated[
        Rate | None, typer.Option(parser=rate_option, help="Rate of EF packets without a grant, such as 10M; 0: none.")
    ] = None,
    exceed: Annotated[str | None, typer.Option(metavar="remark|drop", help="What is above its rate.")] = None,
    depth_ms: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Depth of the buckets, ms at the rate.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Police an interface, or change how; options that are left out keep their values."""
    if exceed not in (None, "remark", "drop"):
        raise typer.BadParameter(f"--exceed {exceed}: must be remark or drop")
    said = {"aggregate_bps": None if aggregate is None else int(aggregate), "exceed": exceed, "depth_ms": depth_ms}
    changes = {name: value for name, value in said.items() if value is not None}
    with session(server, token, as_json=as_json) as client:
        known = client.nodes.get(node_id)
        stored = _put(client, known, with_edge(known.edges, interface, changes))
    told(stored, f"{stored.id}: polices {', '.join(one.interface for one in stored.edges)}", as_json=as_json)


@edge.command("delete")
def delete_edge(
    node_id: NodeId,
    interface: Interface,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Police an interface no longer."""
    with session(server, token, as_json=as_json) as client:
        known = client.nodes.get(node_id)
        left = [one for one in known.edges if one.interface != interface]
        if len(left) == len(known.edges):
            names = ", ".join(one.interface for one in known.edges) or "none"
            raise typer.BadParameter(f"{interface} is no edge of {node_id}; its edges: {names}")
        stored = _put(client, known, left)
    told(stored, f"{stored.id}: {interface} is no longer policed", as_json=as_json)
