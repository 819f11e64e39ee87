"""`chart authorisation`, `chart audit`, `chart flow`: in-band authorisations, the audit log, reported flows."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from chart_client.commands.common import (
    JsonOption,
    Rate,
    ServerOption,
    TokenOption,
    local_time,
    rate_option,
    session,
    show_all,
    told,
)
from chart_client.observed import AuditRecord, Flow
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

authorisation = typer.Typer(help="Authorisations of addresses for in-band requests.", no_args_is_help=True)
flow = typer.Typer(help="Flows that senders reported.", no_args_is_help=True)

Limit = Annotated[int, typer.Option(min=1, max=10_000, help="Most rows shown.")]


@authorisation.command("list")
def list_authorisations(
    server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """List valid authorisations: your own; for operators those of all owners."""
    show_all(
        server,
        token,
        lambda client: client.authorisations.list(),
        ("id", "owner", "address", "service", "maximum rate", "priority"),
        lambda one: (
            one.id,
            one.owner,
            one.client_address,
            one.service,
            format_bps(one.max_guaranteed_bps),
            one.max_priority,
        ),
        "no authorisations",
        as_json=as_json,
    )


@authorisation.command("create")
def create_authorisation(
    address: Annotated[str | None, typer.Option(help="Address; default: the address of this machine.")] = None,
    service: Annotated[Literal["available", "guaranteed", "maximum", "variable"] | None, typer.Option()] = None,
    rate: Annotated[Rate | None, typer.Option(parser=rate_option, help="Maximum guaranteed rate, such as 60M.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=255, help="Highest priority.")] = None,
    delay_class: Annotated[int | None, typer.Option(min=0, max=7)] = None,
    duration: Annotated[int | None, typer.Option(min=1, help="Seconds.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Authorise an address; values that are left out are the policy's maximum."""
    with session(server, token, as_json=as_json) as client:
        made = client.authorisations.create(
            client_address=address,
            service=service,
            max_guaranteed_bps=rate,
            max_priority=priority,
            delay_class=delay_class,
            duration_s=duration,
        )
    told(made, f"{made.id}: {made.client_address} may request {format_bps(made.max_guaranteed_bps)}", as_json=as_json)


@authorisation.command("delete")
def delete_authorisation(
    authorisation_id: Annotated[str, typer.Argument(metavar="AUTHORISATION")],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Revoke an authorisation; running flows become best effort."""
    with session(server, token, as_json=as_json) as client:
        client.authorisations.delete(authorisation_id)
    told({"deleted": authorisation_id}, f"{authorisation_id} is revoked", as_json=as_json)


def audit(
    subject: Annotated[str | None, typer.Option(help="Id of what was changed.")] = None,
    actor: Annotated[str | None, typer.Option(help="Who made the change.")] = None,
    action: Annotated[str | None, typer.Option(help="Action or its prefix, such as rate-request.")] = None,
    limit: Limit = 50,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List changes, newest first."""
    show_all(
        server,
        token,
        lambda client: client.audit.list(subject=subject, actor=actor, action=action, limit=limit),
        AUDIT_COLUMNS,
        audit_row,
        "no changes",
        as_json=as_json,
    )


AUDIT_COLUMNS = ("at", "actor", "action", "subject", "detail")


def audit_row(one: AuditRecord) -> tuple[object, ...]:
    """A line of the audit log."""
    return local_time(one.at, "milliseconds"), one.actor, one.action, one.subject, json.dumps(one.detail)


@flow.command("list")
def list_flows(
    node: Annotated[str | None, typer.Option(help="Only flows that this node sends.")] = None,
    running: Annotated[bool, typer.Option("--running", help="Only flows that have not ended.")] = False,
    limit: Limit = 50,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List flows, highest rate first."""
    show_all(
        server,
        token,
        lambda client: client.flows.list(node=node, running=running, limit=limit),
        ("node", "protocol", "from", "to", "delivered", "granted", "request"),
        _flow_row,
        "no flows",
        as_json=as_json,
    )


def _flow_row(one: Flow) -> tuple[object, ...]:
    return (
        one.node,
        one.protocol,
        f"{one.source_address} port {one.source_port}",
        f"{one.destination_address} port {one.destination_port}",
        format_bps(one.delivered_bps) + (" (ended)" if one.ended else ""),
        "-" if one.granted_bps is None else format_bps(one.granted_bps),
        one.request_id or "-",
    )
