"""`chart node`, `chart link`, `chart policy`, `chart measurement`, `chart events`: live state of the network."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from chart_client.commands.common import (
    DestinationOption,
    JsonOption,
    MetricOption,
    Rate,
    ServerOption,
    SourceOption,
    TokenOption,
    out,
    print_all,
    rate_option,
    session,
    show_all,
    told,
    value_words,
    weight_of,
)
from chart_client.commands.room import room_words
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
    inherit = "inherit"


class Controller(StrEnum):
    """Link rate controllers."""

    nec = "nec"
    rcp = "rcp"
    inherit = "inherit"


INHERIT = Mode.inherit.value


def bound_option(text: str) -> str | Rate:
    """Parser of a bound: a rate, "unlimited", or "inherit"."""
    return text if text == INHERIT else Rate(0) if text == "unlimited" else rate_option(text)


def request_option(text: str) -> str | Rate:
    """Parser of what is asked for by Quick-Start: a rate, "none", or "inherit"."""
    return text if text == INHERIT else Rate(0) if text == "none" else rate_option(text)


@node.command("list")
def list_nodes(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List nodes with the state of their agents."""
    columns = ("id", "addresses", "agent", "room", "faults", "description")
    show_all(server, token, lambda client: client.nodes.list(), columns, _node_row, "no nodes", as_json=as_json)


def _node_row(item: Node) -> tuple[object, ...]:
    state = item.state
    said = "no agent" if state is None else ("not reporting" if state.stale else state.enforcement)
    faults = "; ".join(state.faults) if state else ""
    return (item.id, ", ".join(item.addresses), said, room_words(item), faults, item.description)


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
        Mode | None,
        typer.Option(help="off: every flow returns to its default congestion control. inherit: as the default policy."),
    ] = None,
    link_controller: Annotated[Controller | None, typer.Option()] = None,
    max_guaranteed: Annotated[
        str | None,
        typer.Option(
            parser=bound_option, metavar="RATE", help="Highest guaranteed rate of a request; unlimited, or inherit."
        ),
    ] = None,
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="CUSTOMER=WEIGHT", help="Weight of a tunnel customer; repeatable, replaces all."),
    ] = None,
    quick_start: Annotated[
        str | None,
        typer.Option(
            parser=request_option,
            metavar="RATE",
            help="What new TCP connections ask of routers by Quick-Start; none, or inherit. Experimental.",
        ),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change a policy; options that are left out keep their values. What the policy of a node does not say follows the
    default policy.
    """
    said = {
        "enforcement": enforcement,
        "link_controller": link_controller,
        "max_guaranteed_bps": max_guaranteed,
        "quick_start_request_bps": quick_start,
    }
    changes = {name: None if value == INHERIT else value for name, value in said.items() if value is not None}
    if not changes and not weight:
        raise typer.BadParameter(
            "set at least one of --enforcement, --link-controller, --max-guaranteed, --weight, --quick-start"
        )
    with session(server, token, as_json=as_json) as client:
        own = next((item for item in client.policies.list() if item.id == policy_id), None)
        kept = {name: getattr(own, name) for name in said} if own else {}
        weights = dict(weight_of(one) for one in weight) if weight else None
        fields: dict[str, Any] = {**kept, **changes}
        changed = client.policies.put(policy_id, customer_weights=weights, **fields)
    _show_policies([changed], as_json=as_json)


@policy.command("delete")
def delete_policy(
    policy_id: Annotated[str, typer.Argument(metavar="NODE")],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove the policy of a node; the node follows the default policy."""
    with session(server, token, as_json=as_json) as client:
        client.policies.delete(policy_id)
    told({"deleted": policy_id}, f"{policy_id} follows the default policy", as_json=as_json)


def _show_policies(found: list[Policy], *, as_json: bool) -> None:
    print_all(
        found,
        ("id", "enforcement", "link controller", "maximum guaranteed rate", "customers' weights"),
        lambda item: (
            item.id,
            _said(item, "enforcement"),
            _said(item, "link_controller"),
            _said(item, "max_guaranteed_bps"),
            ", ".join(f"{customer} {weight}" for customer, weight in sorted(item.customer_weights.items())) or "-",
        ),
        "no policies",
        as_json=as_json,
    )


def _said(item: Policy, name: str) -> str:
    """A value of a policy; of what it follows of the default policy, that and what it is."""

    def words(value: str | int) -> str:
        return (format_bps(value) if value else "unlimited") if isinstance(value, int) else value

    own = getattr(item, name)
    if own is not None:
        return words(own)
    return f"default ({words(getattr(item.in_force, name))})" if item.in_force else "default"


@measurement.command("list")
def list_measurements(
    source: SourceOption = None,
    destination: DestinationOption = None,
    metric: MetricOption = None,
    prometheus: Annotated[bool, typer.Option("--prometheus", help="As text that Prometheus reads.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List the latest results of the sensors."""
    if prometheus:
        with session(server, token) as client:
            sys.stdout.write(client.measurements.prometheus(source=source, destination=destination, metric=metric))
        return
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
