"""`chart path`, `chart quota`, `chart callback`: free rates of paths, quotas, and callbacks."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer

from chart_client.commands.common import (
    JsonOption,
    Rate,
    ServerOption,
    TokenOption,
    print_all,
    print_json,
    rate_option,
    session,
    show_all,
    told,
)
from chart_client.models import FoundPath, Quota
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

quota = typer.Typer(help="Quotas of applications.", no_args_is_help=True)
callback = typer.Typer(help="Callbacks to applications and their delivery.", no_args_is_help=True)

Application = Annotated[
    str, typer.Argument(metavar="[APPLICATION]", help="The subject of its token; default: the quota of all others.")
]


def path(
    source: Annotated[str, typer.Argument(metavar="FROM")],
    destination: Annotated[str, typer.Argument(metavar="TO")],
    avoid: Annotated[list[str] | None, typer.Option(help="Node or link not to use; repeatable.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List paths between two nodes with their free rate; a request gets the first.

    Where nodes report their routes the first is the one that packets take ("routed"), with every link that equal-cost
    routes may lead over; the others ("computed") are what there would be. Between nodes of the overlay several paths
    can be "steered": a request gets the first on which its rate fits.
    """
    show_all(
        server,
        token,
        lambda client: client.paths(source, destination, avoid=avoid or ()),
        ("best in", "source", "nodes", "free", "of", "bottleneck", "delay"),
        lambda one: (
            ", ".join(one.kinds),
            _source_words(one),
            " > ".join(one.nodes),
            format_bps(one.free_bps),
            format_bps(one.admissible_bps),
            one.bottleneck_link_id,
            f"{one.delay_us / 1000:g} ms" if one.delay_us else "-",
        ),
        "no path",
        as_json=as_json,
    )


def _source_words(path: FoundPath) -> str:
    """Who says that packets take a path."""
    words = f"{path.source}, no report of {', '.join(path.silent_nodes)}" if path.silent_nodes else path.source
    return f"{words}, equal-cost" if path.branches else words


@quota.command("list")
def list_quotas(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List quotas and their use."""
    with session(server, token, as_json=as_json) as client:
        found = list(client.quotas.list())
    _show(found, as_json=as_json)


@quota.command("set")
def set_quota(
    application: Application = "default",
    requests: Annotated[int | None, typer.Option(min=1, help="Most requests at a time.")] = None,
    total: Annotated[Rate | None, typer.Option(parser=rate_option, help="Sum of guaranteed rates, such as 1G.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=255, help="Highest priority.")] = None,
    horizon: Annotated[
        int | None, typer.Option(min=1, help="Seconds from now within which a request must end.")
    ] = None,
    held: Annotated[
        Rate | None, typer.Option(parser=rate_option, help="Sum of rates that wait for a commit, such as 100M.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a quota; a limit that is left out is unlimited."""
    with session(server, token, as_json=as_json) as client:
        stated = client.quotas.put(
            application,
            max_requests=requests,
            max_total_bps=total,
            max_priority=priority,
            horizon_s=horizon,
            max_held_bps=held,
        )
    _show([stated], as_json=as_json)


@quota.command("delete")
def delete_quota(
    application: Annotated[str, typer.Argument()],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove a quota; the default quota applies again."""
    with session(server, token, as_json=as_json) as client:
        client.quotas.delete(application)
    told({"deleted": application}, f"{application} has the default quota again", as_json=as_json)


def _show(found: list[Quota], *, as_json: bool) -> None:
    print_all(
        found,
        ("application", "requests", "rate", "held", "priority", "horizon"),
        lambda one: (
            one.application,
            f"{'-' if one.used_requests is None else one.used_requests} of {one.max_requests or 'unlimited'}",
            f"{format_bps(one.used_total_bps or 0)} of {format_bps(one.max_total_bps) if one.max_total_bps else '-'}",
            f"{format_bps(one.used_held_bps or 0)} of {format_bps(one.max_held_bps) if one.max_held_bps else '-'}",
            "any" if one.max_priority is None else one.max_priority,
            f"{one.horizon_s} s" if one.horizon_s else "unlimited",
        ),
        "no quotas",
        as_json=as_json,
    )


@callback.command("list")
def list_callbacks(
    request: Annotated[str | None, typer.Option(help="Only of this request.")] = None,
    state: Annotated[str | None, typer.Option(help="PENDING, DELIVERED, DEAD.")] = None,
    limit: Annotated[int, typer.Option(min=1)] = 50,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List callbacks, newest first; DEAD: delivery was given up after 24 h."""
    with session(server, token, as_json=as_json) as client:
        listed = client.callbacks.list(request=request, state=state.upper() if state else None)
        found = list(itertools.islice(listed, limit))
    print_all(
        found,
        ("id", "request", "event", "state", "tries", "last error", "to"),
        lambda one: (one.id, one.request_id, one.event, one.state, one.attempts, one.last_error, one.url),
        "no callbacks",
        as_json=as_json,
    )


@callback.command("retry")
def retry(
    callback_id: Annotated[str, typer.Argument(metavar="CALLBACK")],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Send a callback again."""
    with session(server, token, as_json=as_json) as client:
        sent = client.callbacks.retry(callback_id)
    told(sent, f"{sent.id} is sent again to {sent.url}", as_json=as_json)


@callback.command("secret")
def secret(
    replace: Annotated[
        bool, typer.Option("--replace", help="Create a new secret; the old one stays valid for 24 h.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Print the secret that signs your callbacks."""
    with session(server, token, as_json=as_json) as client:
        value = client.callbacks.secret(replace=replace)
    if as_json:
        print_json({"secret": value})
    else:
        typer.echo(value)
