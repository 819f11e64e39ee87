"""The `chart` command. Other distributions add sub-commands by entry points of the group `chart.commands`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from typing import Annotated, Any

import typer

from chart_client.commands import (
    admission,
    alerts,
    apply,
    completion,
    edges,
    identity,
    mesh,
    network,
    node_ends,
    observed,
    overlay,
    pair_group,
    ranking,
    receipt,
    request,
    sensing,
    session_rule,
    settings,
    stated,
    tenant,
    trust,
    tunnels,
)
from chart_client.commands.common import JsonOption, ServerOption, console, print_json, reported
from chart_client.commands.doctor import doctor
from chart_client.commands.explain import explain
from chart_client.commands.run import run
from chart_client.errors import ChartError
from chart_client.transport import DEFAULT_SERVER, Transport, development_token

GROUP = "chart.commands"

Add = Callable[[typer.Typer], None]

_PASS_ON = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def token(
    subject: Annotated[str, typer.Option(help="Subject of the token.")] = "chart-cli",
    role: Annotated[list[str] | None, typer.Option(help="viewer, application, operator, admin; repeatable.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Print a token from the development platform's issuer."""
    with reported(as_json=as_json):
        value = development_token(server, subject=subject, roles=tuple(role or ("operator",)))
    if as_json:
        print_json({"access_token": value})
    else:
        typer.echo(value)


def version(server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """Print the versions of this command and of the gateway, if reachable."""
    found = {"chart": metadata.version("chart-client"), "gateway": None}
    try:
        with Transport(server, None, timeout_s=5, transport=None) as transport:
            found["gateway"] = transport.look("/openapi.json").json()["info"]["version"]
    except (ChartError, ValueError, KeyError, TypeError):
        pass
    if as_json:
        print_json(found)
    else:
        typer.echo(f"chart {found['chart']}, gateway {found['gateway'] or 'unreachable'}")


def _commands() -> dict[str, Add]:
    """The platform's own commands by name, in the order of the help; each adds itself to the application."""
    groups = {
        "request": request.app,
        "node": network.node,
        "link": network.link,
        "policy": network.policy,
        "measurement": network.measurement,
        "session-rule": session_rule.app,
        "tenant": tenant.app,
        "settings": settings.app,
        "tunnels": tunnels.app,
        "overlay": overlay.app,
        "receipt": receipt.app,
        "quota": admission.quota,
        "callback": admission.callback,
        "authorisation": observed.authorisation,
        "enrolment": identity.enrolment,
        "identity": identity.identity,
        "peer": trust.peer,
        "next-hop": trust.next_hop,
        "flow": observed.flow,
        "sensing": sensing.sensing,
        "snapshot": sensing.snapshot,
        "estimate": ranking.app,
        "mesh": mesh.app,
        "pair-group": pair_group.app,
        "alert": alerts.alert,
    }
    single: dict[str, Callable[..., None]] = {
        "path": admission.path,
        "audit": observed.audit,
        "series": stated.series,
        "apply": apply.apply,
        "export": apply.export,
        "events": network.events,
        "explain": explain,
        "doctor": doctor,
        "token": token,
        "version": version,
    }
    adds: dict[str, Add] = {name: partial(_add_group, name=name, group=group) for name, group in groups.items()}
    adds |= {name: partial(_add_command, name=name, command=command) for name, command in single.items()}
    adds["run"] = partial(_add_command, name="run", command=run, context_settings=_PASS_ON)
    return adds


def _add_group(app: typer.Typer, *, name: str, group: typer.Typer) -> None:
    app.add_typer(group, name=name)


def _add_command(
    app: typer.Typer, *, name: str, command: Callable[..., None], context_settings: dict[str, Any] | None = None
) -> None:
    app.command(name, context_settings=context_settings)(command)


network.node.add_typer(edges.edge, name="edge")
network.node.add_typer(node_ends.end, name="end")
_OWN = _commands()


def build(arguments: Sequence[str] = ()) -> typer.Typer:
    """The application, with the one command that is named, as making the parsers of all takes a third of a second; with
    all of them when none is named, or one that the platform does not have (of other distributions, or mistyped).
    """
    app = typer.Typer(
        help="CHART: explicit rates for every flow.", no_args_is_help=True, pretty_exceptions_enable=False
    )
    # With a callback the application is a group, also with one command.
    app.callback()(_no_options)
    first = next((argument for argument in arguments if not argument.startswith("-")), None)
    if first in _OWN:
        _OWN[first](app)
        return app
    for add in _OWN.values():
        add(app)
    _add_others(app, first)
    return app


def _no_options() -> None:
    """Options of the command itself: none besides the help."""


def _add_others(app: typer.Typer, wanted: str | None) -> None:
    """Sub-commands of other distributions; those with the same name become one group."""
    groups: dict[str, typer.Typer] = {}
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda found: (found.name, found.value)):
        if wanted is not None and entry.name != wanted:
            continue
        try:
            loaded: typer.Typer = entry.load()
        except ImportError as error:
            if wanted is not None:
                console.print(f"[red]chart {entry.name}[/red] cannot be loaded: ", str(error), sep="")
                sys.exit(1)
            continue
        group = groups.get(entry.name)
        if group is None:
            groups[entry.name] = group = typer.Typer(help=loaded.info.help, no_args_is_help=True)
            app.add_typer(group, name=entry.name)
        group.registered_commands.extend(loaded.registered_commands)
        group.registered_groups.extend(loaded.registered_groups)


def main() -> None:
    """Entry point of the console script."""
    build(completion.words() if completion.completing() else sys.argv[1:])(prog_name="chart")


if __name__ == "__main__":
    main()
