"""`chart path`, `chart quota`, `chart callback`: what could be committed, what may be, and what was told."""

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
from chart_client.models import Quota
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

quota = typer.Typer(help="What applications may have at once.", no_args_is_help=True)
callback = typer.Typer(help="What applications were told.", no_args_is_help=True)

Application = Annotated[str, typer.Argument(metavar="[APPLICATION]", help="Its token's subject; others: default.")]


def path(
    source: Annotated[str, typer.Argument(metavar="FROM")],
    destination: Annotated[str, typer.Argument(metavar="TO")],
    avoid: Annotated[list[str] | None, typer.Option(help="Node or link not to use; repeatable.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Paths between two nodes, with what may still be committed on them; the first is what a request gets."""
    show_all(
        server,
        token,
        lambda client: client.paths(source, destination, avoid=avoid or ()),
        ("best in", "nodes", "free", "of", "bottleneck", "delay"),
        lambda one: (
            ", ".join(one.kinds),
            " > ".join(one.nodes),
            format_bps(one.free_bps),
            format_bps(one.admissible_bps),
            one.bottleneck_link_id,
            f"{one.delay_us / 1000:g} ms" if one.delay_us else "-",
        ),
        "no path",
        as_json=as_json,
    )


@quota.command("list")
def list_quotas(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """Quotas and what of them is used."""
    with session(server, token, as_json=as_json) as client:
        found = list(client.quotas.list())
    _show(found, as_json=as_json)


@quota.command("set")
def set_quota(
    application: Application = "default",
    requests: Annotated[int | None, typer.Option(min=1, help="Live requests.")] = None,
    total: Annotated[Rate | None, typer.Option(parser=rate_option, help="Sum of guaranteed rates, such as 1G.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=255, help="Greatest priority.")] = None,
    horizon: Annotated[int | None, typer.Option(min=1, help="Seconds ahead that a request may end.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """State a quota; what is left out has no bound."""
    with session(server, token, as_json=as_json) as client:
        stated = client.quotas.put(
            application, max_requests=requests, max_total_bps=total, max_priority=priority, horizon_s=horizon
        )
    _show([stated], as_json=as_json)


@quota.command("delete")
def delete_quota(
    application: Annotated[str, typer.Argument()],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove a quota; the default one holds again."""
    with session(server, token, as_json=as_json) as client:
        client.quotas.delete(application)


def _show(found: list[Quota], *, as_json: bool) -> None:
    print_all(
        found,
        ("application", "requests", "rate", "priority", "horizon"),
        lambda one: (
            one.application,
            f"{'-' if one.used_requests is None else one.used_requests} of {one.max_requests or 'any'}",
            f"{format_bps(one.used_total_bps or 0)} of {format_bps(one.max_total_bps) if one.max_total_bps else 'any'}",
            "any" if one.max_priority is None else one.max_priority,
            f"{one.horizon_s} s" if one.horizon_s else "any",
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
    """Newest first; DEAD ones were given up after a day."""
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
    """Send one again."""
    with session(server, token, as_json=as_json) as client:
        sent = client.callbacks.retry(callback_id)
    told(sent, f"{sent.id} is sent again to {sent.url}", as_json=as_json)


@callback.command("secret")
def secret(
    replace: Annotated[
        bool, typer.Option("--replace", help="Make a new one; the old one signs too for a day.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """The secret that your callbacks are signed with."""
    with session(server, token, as_json=as_json) as client:
        value = client.callbacks.secret(replace=replace)
    if as_json:
        print_json({"secret": value})
    else:
        typer.echo(value)
