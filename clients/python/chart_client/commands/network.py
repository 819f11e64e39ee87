"""`chart node`, `chart link`, `chart policy`, `chart measurement`, `chart events`: live state of the network."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from chart_client.commands.common import (
    DestinationOption,
    JsonOption,
    MetricOption,
    ServerOption,
    SourceOption,
    TokenOption,
    out,
    print_all,
    session,
    show_all,
    value_words,
    weight_of,
)
from chart_client.models import Link, Node, Policy
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

node = typer.Typer(help="Nodes and their agents.", no_args_is_help=True)
link = typer.Typer(help="Links with their live state.", no_args_is_help=True)
policy = typer.Typer(help="Off, observe, enforce.", no_args_is_help=True)
measurement = typer.Typer(help="Results of the sensors.", no_args_is_help=True)


class Mode(StrEnum):
    """Enforcement modes."""

    off = "off"
    observe = "observe"
    enforce = "enforce"


class Controller(StrEnum):
    """Link rate controllers."""

    nec = "nec"
    rcp = "rcp"


@node.command("list")
def list_nodes(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List nodes with the state of their agents."""
    columns = ("id", "addresses", "agent", "faults", "description")
    show_all(server, token, lambda client: client.nodes.list(), columns, _node_row, "no nodes", as_json=as_json)


def _node_row(item: Node) -> tuple[object, ...]:
    state = item.state
    said = "no agent" if state is None else ("not reporting" if state.stale else state.enforcement)
    faults = "; ".join(state.faults) if state else ""
    return (item.id, ", ".join(item.addresses), said, faults, item.description)


@link.command("list")
def list_links(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List links with load, fair share and measurements."""
    columns = ("id", "to", "capacity", "sent", "used", "fair share", "RTT", "round-trip loss")
    show_all(server, token, lambda client: client.links.list(), columns, _link_row, "no links", as_json=as_json)


def _link_row(item: Link) -> tuple[object, ...]:
    rtt = item.measured.rtt_us if item.measured else None
    loss = item.measured.loss_ratio if item.measured else None
    return (
        item.id,
        item.to_node,
        format_bps(item.capacity_bps),
        format_bps(item.load.sent_bps) if item.load else "-",
        f"{item.load.utilisation:.0%}" if item.load else "-",
        format_bps(item.rate.available_bps) if item.rate else "-",
        f"{rtt.value / 1000:.1f} ms" if rtt else "-",
        f"{loss.value:.2%}" if loss else "-",
    )


@policy.command()
def show(
    policy_id: Annotated[str | None, typer.Argument(metavar="[POLICY]")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List policies, or show one."""
    with session(server, token, as_json=as_json) as client:
        found = [client.policies.get(policy_id)] if policy_id else list(client.policies.list())
    _show_policies(found, as_json=as_json)


@policy.command("set")
def set_policy(
    policy_id: Annotated[
        str, typer.Argument(metavar="[POLICY]", help="Id of a node; default: the policy of all other nodes.")
    ] = "default",
    enforcement: Annotated[
        Mode | None, typer.Option(help="off: every flow returns to its default congestion control.")
    ] = None,
    link_controller: Annotated[Controller | None, typer.Option()] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="CUSTOMER=WEIGHT", help="Weight of a tunnel customer; repeatable, replaces all."),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change a policy; options that are left out keep their values."""
    if enforcement is None and link_controller is None and not weight:
        raise typer.BadParameter("set at least one of --enforcement, --link-controller, --weight")
    with session(server, token, as_json=as_json) as client:
        known = {item.id: item for item in client.policies.list()}
        before = known.get(policy_id) or known.get("default")
        mode = enforcement.value if enforcement else (before.enforcement if before else "enforce")
        controller = link_controller.value if link_controller else (before.link_controller if before else "nec")
        changed = client.policies.put(
            policy_id,
            enforcement=mode,  # type: ignore[arg-type]  # one of the three, as the enum and the gateway say
            link_controller=controller,  # type: ignore[arg-type]
            max_guaranteed_bps=before.max_guaranteed_bps if before else 0,
            customer_weights=dict(weight_of(one) for one in weight) if weight else None,
        )
    _show_policies([changed], as_json=as_json)


def _show_policies(found: list[Policy], *, as_json: bool) -> None:
    print_all(
        found,
        ("id", "enforcement", "link controller", "maximum guaranteed rate", "customers' weights"),
        lambda item: (
            item.id,
            item.enforcement,
            item.link_controller,
            format_bps(item.max_guaranteed_bps) if item.max_guaranteed_bps else "unlimited",
            ", ".join(f"{customer} {weight}" for customer, weight in sorted(item.customer_weights.items())) or "-",
        ),
        "no policies",
        as_json=as_json,
    )


@measurement.command("list")
def list_measurements(
    source: SourceOption = None,
    destination: DestinationOption = None,
    metric: MetricOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the latest results of the sensors."""
    show_all(
        server,
        token,
        lambda client: client.measurements.list(source=source, destination=destination, metric=metric),
        ("from", "to", "metric", "value", "sensor", "at"),
        lambda item: (
            item.source_node,
            item.destination_node,
            item.metric,
            item.error or value_words(item.value, item.unit),
            item.sensor,
            item.measured_at.astimezone().strftime("%H:%M:%S") + (" (stale)" if item.stale else ""),
        ),
        "no measurements yet",
        as_json=as_json,
    )


def events(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[EVENT]...", help="Types of events to show, such as link-load; default: all."),
    ] = None,
    count: Annotated[int, typer.Option(min=0, help="Stop after this many; 0: never.")] = 0,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Follow the live event stream."""
    with session(server, token, as_json=as_json) as client:
        for number, event in enumerate(client.events(names), start=1):
            if as_json:
                typer.echo(json.dumps({"id": event.id, "event": event.name, "data": event.data}))
            else:
                out.print(f"[cyan]{event.name:13}[/cyan] ", end="")
                out.print(json.dumps(event.data), markup=False, soft_wrap=True)
            if number == count:
                return
