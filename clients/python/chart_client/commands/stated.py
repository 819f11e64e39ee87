"""What operators state of nodes and links, what a link has committed, and series: more of `chart node` and of
`chart link`, and `chart series`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from chart_client.commands.common import (
    JsonOption,
    Rate,
    ServerOption,
    TokenOption,
    dump,
    local_time,
    print_json,
    print_table,
    rate_option,
    session,
    show_all,
    told,
    value_words,
)
from chart_client.commands.completion import nodes
from chart_client.commands.network import link, node
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

NodeId = Annotated[str, typer.Argument(metavar="NODE", autocompletion=nodes)]
LinkId = Annotated[str, typer.Argument(metavar="LINK", help="FROM:INTERFACE")]


@node.command("set")
def set_node(
    node_id: NodeId,
    address: Annotated[
        list[str] | None, typer.Option(help="Address, such as 10.1.0.1/32; repeatable, replaces all.")
    ] = None,
    description: Annotated[str | None, typer.Option()] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Register or change a node; options that are left out keep their values."""
    with session(server, token, as_json=as_json) as client:
        known = next((one for one in client.nodes.list() if one.id == node_id), None)
        kept = ("description", "addresses", "sensor_pod_target", "tags", "map_position")
        fields: dict[str, Any] = known.model_dump(mode="json", include=set(kept)) if known else {}
        fields |= {"addresses": address} if address is not None else {}
        fields |= {"description": description} if description is not None else {}
        stored = client.nodes.put(node_id, **fields)
    told(stored, f"{stored.id}: {', '.join(stored.addresses) or 'no address'}", as_json=as_json)


@node.command("delete")
def delete_node(
    node_id: NodeId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Remove a node; remove its links first."""
    with session(server, token, as_json=as_json) as client:
        client.nodes.delete(node_id)
    told({"deleted": node_id}, f"{node_id} is removed", as_json=as_json)


@node.command("keys")
def keys(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List the nodes' signalling keys and refused signals."""
    show_all(
        server,
        token,
        lambda client: client.node_keys.list(),
        ("node", "key epoch", "refused signals", "reported"),
        lambda one: (
            one.node,
            one.key_epoch or "none",
            ", ".join(f"{why.count} {why.reason}" for why in one.refused_signals) or "-",
            local_time(one.reported_at) + (" (stale)" if one.stale else ""),
        ),
        "no agent has reported yet",
        as_json=as_json,
    )


@node.command("records")
def records(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """Show whether records in the nodes' names are authentic, as the gateway checked them."""
    with session(server, token, as_json=as_json) as client:
        found = client.node_keys.record_checks()
    if as_json:
        print_json(dump(found))
        return
    if found.since is None:
        typer.echo("records of nodes are not checked: CHART_RECORD_AUTHENTICATION is off")
        return
    refused = sum(one.count for one in found.items)
    what = "dropped" if found.authentication == "require" else "accepted all the same"
    typer.echo(f"since {local_time(found.since)}: {found.good} authentic, {refused} not ({what})")
    rows = [(one.topic, one.reason, one.count, one.node, local_time(one.at), one.detail) for one in found.items]
    print_table(("stream", "reason", "records", "newest about", "at", "why"), rows, "none refused")


@link.command("set")
def set_link(
    link_id: LinkId,
    to: Annotated[str, typer.Option("--to", help="Receiving node.", autocompletion=nodes)],
    capacity: Annotated[Rate, typer.Option(parser=rate_option, help="Link capacity, such as 100M.")],
    delay_us: Annotated[int | None, typer.Option(min=0, help="One-way delay, microseconds.")] = None,
    admission_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Admission limit: share of the capacity for guaranteed rates.")
    ] = None,
    scone: Annotated[
        bool | None, typer.Option("--scone/--no-scone", help="Advise QUIC connections of their rate in SCONE packets.")
    ] = None,
    quick_start: Annotated[
        bool | None, typer.Option("--quick-start/--no-quick-start", help="Answer Quick-Start requests (RFC 4782).")
    ] = None,
    quick_start_threshold: Annotated[
        float | None, typer.Option(min=0, max=1, help="Share of the capacity up to which they are approved.")
    ] = None,
    quick_start_share: Annotated[
        float | None, typer.Option(min=0, max=1, help="Greatest share of what is spare that one of them gets.")
    ] = None,
    scone_police: Annotated[
        bool | None,
        typer.Option("--scone-police/--no-scone-police", help="Drop what exceeds SCONE advice over its period."),
    ] = None,
    advice_prefix: Annotated[
        list[str] | None,
        typer.Option(help="Advise only flows from or to this prefix; may be repeated; 'all' ends it."),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Register or change a link in one direction."""
    stated = {
        "delay_us": delay_us,
        "admission_share": admission_share,
        "scone": scone,
        "quick_start": quick_start,
        "quick_start_threshold": quick_start_threshold,
        "quick_start_share": quick_start_share,
        "scone_police": scone_police,
        "advice_prefixes": [] if advice_prefix == ["all"] else advice_prefix or None,
    }
    fields = {name: value for name, value in stated.items() if value is not None}
    with session(server, token, as_json=as_json) as client:
        stored = client.links.put(link_id, to_node=to, capacity_bps=int(capacity), **fields)
    told(stored, f"{stored.id} to {stored.to_node}: {format_bps(stored.capacity_bps)}", as_json=as_json)


@link.command("delete")
def delete_link(
    link_id: LinkId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Remove a link; requests on it are admitted on another path or become degraded."""
    with session(server, token, as_json=as_json) as client:
        client.links.delete(link_id)
    told({"deleted": link_id}, f"{link_id} is removed", as_json=as_json)


@link.command("capacity")
def capacity(
    link_id: LinkId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Show the committed and free rate of a link from now on."""
    with session(server, token, as_json=as_json) as client:
        found = client.links.capacity(link_id)
    if as_json:
        print_json(found)
        return
    rows = [(local_time(one.start), format_bps(one.committed_bps), format_bps(one.free_bps)) for one in found.steps]
    print_table(("from", "committed", "free"), rows, "no commitments")


def series(
    kind: Annotated[Literal["measurement", "link", "grant"], typer.Argument()],
    subject: Annotated[str, typer.Argument(help="Id of a link or request, or SOURCE,DESTINATION.")],
    metric: Annotated[str, typer.Argument(help="Metric, such as sent_bps or rtt_us.")],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the last hour of one metric."""
    with session(server, token, as_json=as_json) as client:
        found = client.series(kind, subject, metric)
    if as_json:
        print_json(found)
        return
    rows = [(local_time(one.at), value_words(one.value, found.unit)) for one in found.points]
    print_table(("at", "mean"), rows, "no data in this time range")
