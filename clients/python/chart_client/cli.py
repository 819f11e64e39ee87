"""The `chart` command. Other distributions add sub-commands by entry points of the group `chart.commands`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated

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


def build(arguments: Sequence[str] = ()) -> typer.Typer:
    """The application. Sub-commands of other distributions are imported only when named, or for the list of all."""
    app = typer.Typer(
        help="CHART: explicit rates for every flow.", no_args_is_help=True, pretty_exceptions_enable=False
    )
    app.add_typer(request.app, name="request")
    for name in ("node", "link", "policy", "measurement"):
        app.add_typer(getattr(network, name), name=name)
    network.node.add_typer(edges.edge, name="edge")
    network.node.add_typer(node_ends.end, name="end")
    app.add_typer(session_rule.app, name="session-rule")
    app.add_typer(tenant.app, name="tenant")
    app.add_typer(settings.app, name="settings")
    app.add_typer(tunnels.app, name="tunnels")
    app.add_typer(receipt.app, name="receipt")
    app.add_typer(admission.quota, name="quota")
    app.add_typer(admission.callback, name="callback")
    app.command()(admission.path)
    app.add_typer(observed.authorisation, name="authorisation")
    app.add_typer(identity.enrolment, name="enrolment")
    app.add_typer(identity.identity, name="identity")
    app.add_typer(trust.peer, name="peer")
    app.add_typer(trust.next_hop, name="next-hop")
    app.add_typer(observed.flow, name="flow")
    app.command()(observed.audit)
    app.command()(stated.series)
    for name in ("sensing", "snapshot"):
        app.add_typer(getattr(sensing, name), name=name)
    app.add_typer(ranking.app, name="estimate")
    app.add_typer(mesh.app, name="mesh")
    app.add_typer(pair_group.app, name="pair-group")
    app.add_typer(alerts.alert, name="alert")
    app.command()(apply.apply)
    app.command()(apply.export)
    app.command()(network.events)
    app.command()(explain)
    app.command(context_settings=_PASS_ON)(run)
    app.command()(doctor)
    app.command()(token)
    app.command()(version)
    first = next((argument for argument in arguments if not argument.startswith("-")), None)
    own = {
        *(
            "request",
            "node",
            "link",
            "policy",
            "measurement",
            "tunnels",
            "receipt",
            "events",
            "path",
            "quota",
            "callback",
        ),
        *("sensing", "estimate", "snapshot", "mesh", "pair-group", "alert", "authorisation", "flow", "audit", "series"),
        *("enrolment", "identity", "peer", "next-hop", "session-rule"),
        *("apply", "export"),
        *("explain", "run", "doctor", "token", "version"),
    }
    if first not in own:
        _add_others(app, first)
    return app


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
