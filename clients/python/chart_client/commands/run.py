"""`chart run --rate 50M --to X -- CMD`: gives a command a rate by its cgroup, before any port is known."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from chart_client.client import Client
from chart_client.commands.common import Rate, ServerOption, TokenOption, console, rate_option, reported
from chart_client.commands.namespaces import Network, NotPossibleError, make_cgroup, own_addresses
from chart_client.errors import NotEnforcedError, UnreachableError
from chart_client.models import Node, RateRequest
from chart_client.transport import DEFAULT_SERVER, is_loopback
from chart_client.units import format_bps

ENFORCE_LIMIT_S = 5.0


def node_here(nodes: list[Node], addresses: set[str], named: str | None) -> Node:
    """The CHART node that this is, by its addresses or by name.

    Raises:
        NotPossibleError: none, or one without an agent.
    """
    if named is not None:
        matching = [node for node in nodes if node.id == named]
    else:
        matching = [
            node
            for node in nodes
            if any(str(ipaddress.ip_interface(address).ip) in addresses for address in node.addresses)
        ]
    if not matching:
        known = ", ".join(node.id for node in nodes) or "none"
        msg = f"this is not a CHART node (known: {known}); in the lab: chart lab exec NODE -- chart run ..."
        raise NotPossibleError(msg)
    node = matching[0]
    if node.state is None or node.state.stale:
        msg = f"no report from the agent of {node.id}: start chart-agent there, then `chart node list` shows it"
        raise NotPossibleError(msg)
    return node


def destination_for(node: Node, nodes: list[Node], wanted: str | None) -> str:
    """Where the command sends to; only needed when there is a choice.

    Raises:
        typer.BadParameter: there is one.
    """
    if wanted is not None:
        return wanted
    others = [other.id for other in nodes if other.id != node.id]
    if len(others) == 1:
        return others[0]
    raise typer.BadParameter(
        f"--to is required: the node that the command sends to, one of {', '.join(others) or '(no other node)'}"
    )


def start(command: list[str], folder: Path, network: Network) -> subprocess.Popen[bytes]:
    """Start the command inside the cgroup, in the network namespace that the caller was in."""

    def enter() -> None:
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        network.return_home()

    return subprocess.Popen(command, preexec_fn=enter)


def wait(process: subprocess.Popen[bytes]) -> int:
    """The command's exit status; signals to this process are forwarded."""

    def pass_on(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        status = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - status if status < 0 else status


def reachable(server: str, token: str, network: Network) -> Client:
    """A client whose gateway answers; from a lab node the local platform is reached in the machine's own."""
    client = Client(server, token or None)
    try:
        client.ready()
    except UnreachableError:
        if not (is_loopback(server) and network.visit_outside()):
            raise
        client.close()
        client = Client(server, token or None)
        client.ready()
    return client


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run.")],
    rate: Annotated[Rate, typer.Option("--rate", parser=rate_option, help="Guaranteed rate, such as 50M.")],
    destination: Annotated[str | None, typer.Option("--to", help="Receiver: node, address or prefix.")] = None,
    node_name: Annotated[str | None, typer.Option("--node", envvar="CHART_NODE", help="Id of this node.")] = None,
    service: Annotated[str, typer.Option(help="guaranteed or variable.")] = "variable",
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    wait_s: Annotated[
        float,
        typer.Option(
            "--wait", min=0, max=600, help="Seconds to wait for enforcement; then the command starts without the rate."
        ),
    ] = ENFORCE_LIMIT_S,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the request as JSON on stderr before the start.")
    ] = False,
) -> None:
    """Run a command with a rate for its traffic, released when it ends. Exits with the command's status."""
    network = Network()
    folder: Path | None = None
    try:
        with reported():
            addresses = own_addresses()
            folder = make_cgroup()
            with reachable(server, token, network) as client:
                nodes = list(client.nodes.list())
                here = node_here(nodes, addresses, node_name)
                target = destination_for(here, nodes, destination)
                request = client.rate_requests.create(
                    here.id,
                    target,
                    guaranteed_bps=int(rate),
                    service=service,  # type: ignore[arg-type]  # the gateway says which there are
                    cgroup_id=folder.stat().st_ino,
                    description=f"chart run: {' '.join(command)}"[:500],
                )
                status = _run_granted(client, request, command, folder, network, wait_s=wait_s, as_json=as_json)
    except NotPossibleError as error:
        console.print("[red]chart run:[/red] ", str(error), sep="")
        raise typer.Exit(1) from error
    finally:
        network.close()
        if folder is not None:
            _remove(folder)
    sys.exit(status)


def _run_granted(
    client: Client,
    request: RateRequest,
    command: list[str],
    folder: Path,
    network: Network,
    *,
    wait_s: float,
    as_json: bool,
) -> int:
    try:
        try:
            request = client.rate_requests.wait_enforced(request.id, timeout_s=wait_s)
        except NotEnforcedError as error:
            # Traffic never depends on CHART: the command runs under its default control.
            console.print("[yellow]chart run:[/yellow] ", str(error), "; running without the rate", sep="")
        else:
            if as_json:
                typer.echo(json.dumps(request.model_dump(mode="json")), err=True)
            else:
                console.print(
                    f"chart run: {request.id}, {format_bps(request.granted_bps)} to {request.request.destination}"
                )
        try:
            return wait(start(command, folder, network))
        except (OSError, subprocess.SubprocessError) as error:
            msg = f"{command[0]} cannot be started: {error}"
            raise NotPossibleError(msg) from error
    finally:
        client.rate_requests.release(request.id)


def _remove(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        console.print(f"chart run: processes of the command are still running; their cgroup {folder} is kept")
