"""`chart request`: ask for a rate, follow it, release it."""

from __future__ import annotations

import itertools
from datetime import datetime
from typing import Annotated, Any

import typer

from chart_client.commands.common import (
    JsonOption,
    Rate,
    ServerOption,
    TokenOption,
    console,
    out,
    print_json,
    print_table,
    rate_option,
    session,
)
from chart_client.models import RateRequest
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

app = typer.Typer(help="Ask for a rate, follow it, release it.", no_args_is_help=True)

Source = Annotated[str, typer.Option("--from", help="Sending node, address or prefix.")]
Destination = Annotated[str, typer.Option("--to", help="Receiving node, address or prefix.")]
RateValue = Annotated[Rate | None, typer.Option("--rate", parser=rate_option, help="Guaranteed rate, such as 60M.")]
Service = Annotated[str, typer.Option(help="available, guaranteed, maximum or variable.")]
Minimum = Annotated[Rate | None, typer.Option(parser=rate_option, help="Accept this much when --rate does not fit.")]
Maximum = Annotated[Rate | None, typer.Option(parser=rate_option, help="Never more than this.")]
Protocol = Annotated[str | None, typer.Option(help="tcp or udp; any when left out.")]
Port = Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Destination port.")]
SourcePort = Annotated[int | None, typer.Option(min=1, max=65535)]
Priority = Annotated[int, typer.Option(min=0, max=255, help="Higher takes from lower.")]
Duration = Annotated[int | None, typer.Option("--duration", min=1, help="Seconds; until released when left out.")]
Start = Annotated[datetime | None, typer.Option(help="Local time; now when left out.")]
Description = Annotated[str, typer.Option()]
RequestId = Annotated[str, typer.Argument(help="Id of the request.", metavar="REQUEST")]


def _fields(
    rate: int | None,
    service: str,
    minimum: int | None,
    maximum: int | None,
    protocol: str | None,
    port: int | None,
    source_port: int | None,
    priority: int,
    duration: int | None,
    start: datetime | None,
    description: str,
) -> dict[str, Any]:
    if protocol is None and (port is not None or source_port is not None):
        protocol = "tcp"
    return {
        "guaranteed_bps": int(rate or 0),
        "service": service,
        "minimum_bps": minimum,
        "maximum_bps": maximum,
        "protocol": protocol,
        "destination_port": port,
        "source_port": source_port,
        "priority": priority,
        "duration_s": duration,
        "start": start.astimezone() if start else None,
        "description": description,
    }


@app.command()
def create(
    source: Source,
    destination: Destination,
    rate: RateValue = None,
    service: Service = "variable",
    minimum: Minimum = None,
    maximum: Maximum = None,
    protocol: Protocol = None,
    port: Port = None,
    source_port: SourcePort = None,
    priority: Priority = 0,
    duration: Duration = None,
    start: Start = None,
    description: Description = "",
    wait: Annotated[bool, typer.Option("--wait", help="Return when every node on the path enforces it.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.")] = 10.0,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Ask for a rate: `chart request create --from alpha --to delta --rate 60M --port 5201 --wait`."""
    fields = _fields(
        rate, service, minimum, maximum, protocol, port, source_port, priority, duration, start, description
    )
    with session(server, token, as_json=as_json) as client:
        request = client.rate_requests.create(source, destination, **fields)
        if wait:
            if not as_json:
                console.print(f"granted {format_bps(request.granted_bps)}, waiting for the nodes on the path")
            request = client.rate_requests.wait_enforced(request.id, timeout_s=timeout)
    show_request(request, as_json=as_json)


@app.command()
def preview(
    source: Source,
    destination: Destination,
    rate: RateValue = None,
    service: Service = "variable",
    minimum: Minimum = None,
    maximum: Maximum = None,
    protocol: Protocol = None,
    port: Port = None,
    source_port: SourcePort = None,
    priority: Priority = 0,
    duration: Duration = None,
    start: Start = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """What `create` would get now; exit status 1 when it would be refused."""
    fields = _fields(rate, service, minimum, maximum, protocol, port, source_port, priority, duration, start, "")
    with session(server, token, as_json=as_json) as client:
        answer = client.rate_requests.preview(source, destination, **fields)
    if as_json:
        print_json(answer)
    else:
        if answer.granted:
            out.print(f"would be granted: {format_bps(answer.granted_bps)}")
        else:
            out.print("would be refused:", answer.refusal.detail if answer.refusal else "no reason given")
            for text in (answer.refusal.suggestions if answer.refusal else None) or ():
                out.print("  ", text, sep="")
        out.print(f"path:       {' > '.join(answer.path) or '-'}")
        out.print(f"bottleneck: {answer.bottleneck_link_id or '-'}")
        out.print(f"at most:    {format_bps(answer.ceiling_bps)}")
    if not answer.granted:
        raise typer.Exit(1)


@app.command("list")
def list_requests(
    lifecycle: Annotated[str | None, typer.Option(help="HELD, RESERVED, ACTIVE, RELEASED, EXPIRED, CANCELLED.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Greatest number shown.")] = 100,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Requests, newest first."""
    with session(server, token, as_json=as_json) as client:
        found = list(itertools.islice(client.rate_requests.list(lifecycle=lifecycle), limit))
    if as_json:
        print_json(found)
        return
    print_table(
        ("id", "from", "to", "service", "granted", "lifecycle", "enforcement", "owner", "description"),
        [
            (
                request.id,
                request.request.source,
                request.request.destination,
                request.request.service,
                format_bps(request.granted_bps),
                request.lifecycle,
                request.enforcement,
                request.owner,
                request.request.description,
            )
            for request in found
        ],
        "no requests",
    )


@app.command()
def show(
    request_id: RequestId,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """One request, with what each node said."""
    with session(server, token, as_json=as_json) as client:
        request = client.rate_requests.get(request_id)
    show_request(request, as_json=as_json)


@app.command()
def release(
    request_id: RequestId,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Give the rate back."""
    with session(server, token, as_json=as_json) as client:
        request = client.rate_requests.release(request_id)
    show_request(request, as_json=as_json)


def show_request(request: RateRequest, *, as_json: bool) -> None:
    """Print a request."""
    if as_json:
        print_json(request)
        return
    asked = request.request
    out.print(f"[bold]{request.id}[/bold]  {asked.source} > {asked.destination}  {asked.service}")
    out.print(f"  granted      {format_bps(request.granted_bps)} of {format_bps(asked.guaranteed_bps)}")
    states = f"{request.lifecycle}, {request.enforcement}, {request.service_state}"
    out.print(f"  state        {states}{': ' + request.reason if request.reason else ''}", markup=False)
    out.print(f"  path         {' > '.join(request.path) or '-'}")
    for confirmation in request.confirmations:
        words = f"{confirmation.state.lower()}, kernel {format_bps(confirmation.kernel_rate_bps)}, "
        words += f"{confirmation.matching_flows} flows, {confirmation.sent_bytes} bytes"
        out.print(f"  {confirmation.node:12} {words} {confirmation.reason}", markup=False)
    if request.enforced_at:
        elapsed_ms = (request.enforced_at - request.created_at).total_seconds() * 1000
        out.print(f"  enforced     {elapsed_ms:.0f} ms after it was made")
