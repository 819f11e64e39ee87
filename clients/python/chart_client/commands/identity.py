"""`chart node enrol`, `chart node revoke`, `chart enrolment`, `chart identity`: who gets a certificate, who has one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from chart_client.commands.common import (
    JsonOption,
    ServerOption,
    TokenOption,
    dump,
    local_time,
    out,
    print_json,
    session,
    show_all,
)
from chart_client.commands.completion import nodes
from chart_client.commands.network import node
from chart_client.identities import NewEnrolment
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import parse_duration_s

enrolment = typer.Typer(help="One-time tokens that nodes and services enrol with.", no_args_is_help=True)
identity = typer.Typer(help="Who has a certificate of the authority.", no_args_is_help=True)


class Seconds(int):
    """A duration option: seconds."""


def seconds_option(text: str) -> Seconds:
    """Parser of duration options."""
    try:
        return Seconds(parse_duration_s(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


NodeName = Annotated[str, typer.Argument(metavar="NAME", autocompletion=nodes, help="The node's id.")]
IdentityName = Annotated[str, typer.Argument(metavar="IDENTITY", help="node/NAME or service/NAME.")]
Life = Annotated[
    Seconds | None,
    typer.Option(parser=seconds_option, metavar="TIME", help="How long the token may wait: 30m, 2h, 1d; default 1h."),
]
TokenFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the token there (0600) instead of showing it.")
]
CaFile = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the authority's certificate there.")]
Reason = Annotated[str, typer.Option(help="For the audit and the list of revocations.")]


def _when(moment: datetime | None) -> str:
    return local_time(moment) if moment else "-"


@node.command("enrol")
def enrol_node(
    name: NodeName,
    life: Life = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make a one-time token for a node, and show the command that enrols it there."""
    _enrol(f"node/{name}", life, token_file, ca_file, _agent_command, server, token, as_json=as_json)


@identity.command("enrol")
def enrol_identity(
    name: IdentityName,
    life: Life = None,
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make a one-time token for a node or a service."""
    words = _agent_command if name.startswith("node/") else None
    _enrol(name, life, token_file, ca_file, words, server, token, as_json=as_json)


def _agent_command(made: NewEnrolment, token_file: str, ca_file: str) -> str:
    """What is run on the node."""
    words = ["chart-agent", "--node", made.identity.removeprefix("node/"), "--state-dir", "/var/lib/chart"]
    words += ["--cgroup", "/sys/fs/cgroup", "--authority", made.authority_url, "--authority-ca", ca_file]
    return shlex.join([*words, "--enrolment-token-file", token_file])


def _open_private(path: Path) -> int:
    """A file that only its owner reads, emptied; what is no plain file is refused."""
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        os.fchmod(file, 0o600)
        os.ftruncate(file, 0)
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}") from None
    return file


def _enrol(
    name: str,
    life: Seconds | None,
    token_file: Path | None,
    ca_file: Path | None,
    command_of: Callable[[NewEnrolment, str, str], str] | None,
    server: str,
    token: str,
    *,
    as_json: bool,
) -> None:
    # The file first: a token that was made and cannot be kept would be lost.
    file = _open_private(token_file) if token_file is not None else None
    try:
        with session(server, token, as_json=as_json) as client:
            made = client.enrolments.create(name, life_s=3600 if life is None else int(life))
        if file is not None:
            os.write(file, made.token.encode() + b"\n")
    finally:
        if file is not None:
            os.close(file)
    if ca_file is not None:
        ca_file.write_text(made.authority_ca_pem)
    command = command_of(made, str(token_file or "token"), str(ca_file or "authority-ca.pem")) if command_of else None
    if as_json:
        shown = dump(made)
        if token_file is not None:
            shown["token"], shown["token_file"] = None, str(token_file)
        print_json({**shown, "command": command})
        return
    until = f"good until {local_time(made.expires_at)}, enrols once"
    if token_file is None:
        typer.echo(f"{made.identity}: one-time token, {until}, not shown again:")
        typer.echo(made.token)
    else:
        typer.echo(f"{made.identity}: one-time token in {token_file}, {until}")
    if command is None:
        return
    typer.echo("On the node, with the token in the one file (0600) and the authority's certificate in the other:")
    typer.echo(command)
    if ca_file is None:
        typer.echo("The authority's certificate is written by --ca-file FILE.")


@node.command("revoke")
def revoke_node(
    name: NodeName,
    reason: Reason = "",
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Revoke every certificate of a node and end its keys."""
    _revoke(f"node/{name}", None, reason, server, token, as_json=as_json)


@identity.command("revoke")
def revoke_identity(
    name: Annotated[
        str | None, typer.Argument(metavar="[IDENTITY]", help="node/NAME, user/NAME, service/NAME.")
    ] = None,
    serial: Annotated[str | None, typer.Option(help="Only the certificate with this serial number.")] = None,
    reason: Reason = "",
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Revoke every certificate of an identity, or one by its serial number."""
    if (name is None) == (serial is None):
        raise typer.BadParameter("state an identity or --serial, one of them")
    _revoke(name, serial, reason, server, token, as_json=as_json)


def _revoke(name: str | None, serial: str | None, reason: str, server: str, token: str, *, as_json: bool) -> None:
    with session(server, token, as_json=as_json) as client:
        client.identities.revoke(name, serial=serial, reason=reason)
    if as_json:
        print_json({"revoked": name or serial})
    else:
        out.print(f"{name or f'certificate {serial}'} is revoked", markup=False)


@identity.command("list")
def list_identities(
    server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Everybody who was ever given a certificate, with the newest one."""
    show_all(
        server,
        token,
        lambda client: client.identities.list(),
        ("identity", "state", "sender id", "certificate", "until", "revoked", "reason"),
        lambda one: (
            one.identity,
            one.state,
            one.element_id or "-",
            one.certificate_serial or "-",
            _when(one.certificate_expires_at),
            _when(one.revoked_at),
            one.reason,
        ),
        "nobody has a certificate",
        as_json=as_json,
    )


@identity.command("revocations")
def list_revocations(
    server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Certificates that were revoked, the newest revocation first."""
    show_all(
        server,
        token,
        lambda client: client.identities.revocations(),
        ("revoked", "identity", "certificate", "reason", "enrolled again"),
        lambda one: (
            local_time(one.revoked_at),
            one.identity,
            one.serial,
            one.reason,
            "yes" if one.enrolled_again else "no",
        ),
        "nothing was revoked",
        as_json=as_json,
    )


@enrolment.command("list")
def list_enrolments(
    server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Open ones and those that are over, the newest first; tokens are not kept."""
    show_all(
        server,
        token,
        lambda client: client.enrolments.list(),
        ("id", "identity", "state", "made by", "token until", "used", "certificate"),
        lambda one: (
            one.id,
            one.identity,
            one.state,
            one.created_by,
            local_time(one.expires_at),
            _when(one.used_at),
            (one.certificate_serial or "-") + (" (revoked)" if one.certificate_revoked_at else ""),
        ),
        "no enrolments",
        as_json=as_json,
    )


@enrolment.command("withdraw")
def withdraw_enrolment(
    enrolment_id: Annotated[str, typer.Argument(metavar="ENROLMENT")],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Its token enrols nobody any more."""
    with session(server, token, as_json=as_json) as client:
        client.enrolments.withdraw(enrolment_id)
    if as_json:
        print_json({"withdrawn": enrolment_id})
    else:
        out.print(f"{enrolment_id} is withdrawn", markup=False)
