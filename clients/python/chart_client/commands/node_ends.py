"""`chart node end` and `chart node proxy`: tunnel ends and proxied traffic of nodes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from chart_client.client import Client
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
from chart_client.commands.network import node
from chart_client.commands.stated import NodeId
from chart_client.models import Node, ProxiedTraffic, TunnelEnd
from chart_client.transport import DEFAULT_SERVER

end = typer.Typer(help="Ends of elastic tunnels that run on nodes.", no_args_is_help=True)

TunnelName = Annotated[str, typer.Argument(metavar="TUNNEL", help="Name of the tunnel, such as west-east.")]
# What a node is registered with besides what these commands change.
_KEPT = {"description", "addresses", "sensor_pod_target", "tags", "map_position"}
_NEW_END: dict[str, Any] = {"interface": "chart-itm0", "port": 7400}


def class_of(text: str) -> dict[str, Any]:
    """A class from NAME=WEIGHT:SELECTOR.

    Raises:
        typer.BadParameter: it does not read so.
    """
    name, _, rest = text.partition("=")
    weight, colon, selector = rest.partition(":")
    if not name or not weight.isdecimal() or not colon or not selector:
        raise typer.BadParameter(f"{text!r} must be NAME=WEIGHT:SELECTOR, such as gold=3:from=10.1.0.0/16")
    return {"name": name, "weight": int(weight), "selector": selector}


def with_end(ends: list[TunnelEnd], tunnel: str, changes: dict[str, Any]) -> list[dict[str, Any]]:
    """The ends of a node with one of them added or changed; what is not said stays as it was.

    Raises:
        typer.BadParameter: a new end lacks what it must have.
    """
    listed = [one.model_dump(mode="json") for one in ends]
    before = next((one for one in listed if one["tunnel"] == tunnel), None)
    if before is None:
        missing = [f"--{name}" for name in ("role", "address", "peer") if _field(name) not in changes]
        if missing:
            raise typer.BadParameter(f"{tunnel} is new on this node: state {' and '.join(missing)}")
    changed = {"tunnel": tunnel, **_NEW_END, **(before or {}), **changes}
    return [*(one for one in listed if one["tunnel"] != tunnel), changed]


def with_application(
    ends: list[TunnelEnd], tunnel: str, name: str, changes: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """The ends of a node with an application of one of them added or changed, or taken away (None).

    Raises:
        typer.BadParameter: the end or application is not found, or a new one lacks its file.
    """
    listed = [one.model_dump(mode="json") for one in ends]
    of = next((one for one in listed if one["tunnel"] == tunnel), None)
    if of is None:
        names = ", ".join(one.tunnel for one in ends) or "none"
        raise typer.BadParameter(f"this node has no end of {tunnel}; its ends: {names}")
    before = next((one for one in of["applications"] if one["name"] == name), None)
    if before is None and (changes is None or "file" not in changes):
        names = ", ".join(one["name"] for one in of["applications"]) or "none"
        raise typer.BadParameter(f"{name} is no application of {tunnel} ({names}): state --file for a new one")
    if changes is None:
        of["applications"].remove(before)
    elif before is None:
        of["applications"].append({"name": name, **changes})
    else:
        before |= changes
    return listed


def _field(option: str) -> str:
    return "peer_node" if option == "peer" else option


def _put(client: Client, known: Node, **fields: Any) -> Node:
    kept = known.model_dump(mode="json", include=_KEPT)
    return client.nodes.put(known.id, revision=known.revision, **kept, **fields)


def _applications(one: TunnelEnd) -> str:
    return ", ".join(f"{of.name}={of.file}{'' if of.on else ' (off)'}" for of in one.applications)


def _row(name: str, one: TunnelEnd) -> tuple[Any, ...]:
    classes = ", ".join(f"{of.name}={of.weight}:{of.selector}" for of in one.classes)
    origin = f"{one.period_ms} ms, {one.congestion}" if one.role == "origin" else "-"
    return (
        *(name, one.tunnel, one.role, f"{one.address} {one.port}", one.peer_node, one.interface),
        *(origin, ", ".join(one.prefixes) or "-", classes or "-", _applications(one) or "-"),
    )


@end.command("list")
def list_ends(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List the tunnel ends of all nodes."""
    with session(server, token, as_json=as_json) as client:
        nodes = list(client.nodes.list())
    if as_json:
        print_json({one.id: dump(one.tunnel_ends) for one in nodes if one.tunnel_ends})
        return
    print_table(
        ("node", "tunnel", "role", "destination", "peer", "device", "origin", "networks", "classes", "applications"),
        [_row(one.id, of) for one in nodes for of in one.tunnel_ends],
        "no tunnel ends",
    )


@end.command("set")
def set_end(
    node_id: NodeId,
    tunnel: TunnelName,
    role: Annotated[str | None, typer.Option(metavar="origin|destination")] = None,
    address: Annotated[str | None, typer.Option(help="Address of the destination, for both ends.")] = None,
    peer: Annotated[str | None, typer.Option(help="The node of the other end.")] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="TCP port of the destination.")] = None,
    interface: Annotated[str | None, typer.Option(help="The TUN device that the end makes.")] = None,
    prefix: Annotated[
        list[str] | None, typer.Option(help="Network led into the tunnel; repeatable, replaces all.")
    ] = None,
    customer: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="NAME=WEIGHT:SELECTOR", help="Class of packets; repeatable, replaces all."),
    ] = None,
    period_ms: Annotated[int | None, typer.Option(min=10, max=60000, help="Measurement period, ms.")] = None,
    congestion: Annotated[str | None, typer.Option(metavar="cubic|reno")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Let a node run an end of a tunnel, or change it; options that are left out keep their values."""
    said = {
        "role": role,
        "address": address,
        "peer_node": peer,
        "port": port,
        "interface": interface,
        "prefixes": prefix,
        "classes": [class_of(one) for one in customer] if customer else None,
        "period_ms": period_ms,
        "congestion": congestion,
    }
    changes = {name: value for name, value in said.items() if value is not None}
    with session(server, token, as_json=as_json) as client:
        known = client.nodes.get(node_id)
        stored = _put(client, known, tunnel_ends=with_end(known.tunnel_ends, tunnel, changes))
    told(stored, f"{stored.id}: {', '.join(one.tunnel for one in stored.tunnel_ends)}", as_json=as_json)


@end.command("delete")
def delete_end(
    node_id: NodeId,
    tunnel: TunnelName,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Let a node run an end of a tunnel no longer."""
    with session(server, token, as_json=as_json) as client:
        known = client.nodes.get(node_id)
        left = [one.model_dump(mode="json") for one in known.tunnel_ends if one.tunnel != tunnel]
        if len(left) == len(known.tunnel_ends):
            names = ", ".join(one.tunnel for one in known.tunnel_ends) or "none"
            raise typer.BadParameter(f"{node_id} has no end of {tunnel}; its ends: {names}")
        stored = _put(client, known, tunnel_ends=left)
    told(stored, f"{stored.id}: no end of {tunnel}", as_json=as_json)


@end.command("application")
def set_application(
    node_id: NodeId,
    tunnel: TunnelName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the application, such as pacing.")],
    file: Annotated[
        str | None, typer.Option(metavar="FILE.so", help="In the node's directory of applications; replaces it.")
    ] = None,
    argument: Annotated[str | None, typer.Option(help="Its parameters; may change while it runs.")] = None,
    limit_ms: Annotated[int | None, typer.Option(min=1, max=40, help="Longest answer, ms.")] = None,
    on: Annotated[bool | None, typer.Option("--on/--off", help="Off: loaded, and asked nothing.")] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove it.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Load a traffic controller at an end of a tunnel, or change, replace, switch or remove it, while packets go on."""
    said = {"file": file, "argument": argument, "limit_ms": limit_ms, "on": on}
    changes = {field: value for field, value in said.items() if value is not None}
    if not delete and not changes:
        raise typer.BadParameter("set what is to change: --file, --argument, --limit-ms, --on, --off or --delete")
    with session(server, token, as_json=as_json) as client:
        known = client.nodes.get(node_id)
        ends = with_application(known.tunnel_ends, tunnel, name, None if delete else changes)
        stored = _put(client, known, tunnel_ends=ends)
    [changed] = [one for one in stored.tunnel_ends if one.tunnel == tunnel]
    told(stored, f"{stored.id}, {tunnel}: {_applications(changed) or 'no applications'}", as_json=as_json)


@node.command("proxy")
def set_proxy(
    node_id: NodeId,
    interface: Annotated[
        list[str] | None, typer.Option(help="Where connections come in; repeatable, replaces all.")
    ] = None,
    prefix: Annotated[list[str] | None, typer.Option(help="Of the hosts; repeatable, replaces all.")] = None,
    mode: Annotated[str | None, typer.Option(metavar="same-ports|new-ports")] = None,
    off: Annotated[bool, typer.Option("--off", help="Proxy nothing.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show or set what a node's proxy takes; options that are left out keep their values."""
    said: dict[str, Any] = {"interfaces": interface, "prefixes": prefix, "mode": mode}
    changes = {name: value for name, value in said.items() if value is not None}
    with session(server, token, as_json=as_json) as client:
        shown = client.nodes.get(node_id)
        if off or changes:
            before = {} if off else shown.proxied_traffic.model_dump(mode="json")
            shown = _put(client, shown, proxied_traffic={**before, **({} if off else changes)})
    told(shown.proxied_traffic, f"{shown.id}: {_proxied_words(shown.proxied_traffic)}", as_json=as_json)


def _proxied_words(proxied: ProxiedTraffic) -> str:
    if not proxied.interfaces:
        return "nothing is proxied"
    ports: dict[Literal["same-ports", "new-ports"], str] = {
        "same-ports": "from the hosts' own ports",
        "new-ports": "from new ports",
    }
    hosts = ", ".join(proxied.prefixes) or "all hosts"
    return f"connections of {hosts} through {', '.join(proxied.interfaces)}, {ports[proxied.mode]}"
