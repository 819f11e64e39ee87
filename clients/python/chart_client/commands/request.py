"""`chart request`: request a rate, follow it, release it."""

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
    local_time,
    out,
    print_json,
    print_table,
    rate_option,
    session,
    show_all,
    show_one,
)
from chart_client.commands.completion import nodes, requests, services
from chart_client.commands.observed import AUDIT_COLUMNS, audit_row
from chart_client.models import Preview, RateRequest
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

app = typer.Typer(help="Request a rate, follow it, release it.", no_args_is_help=True)

Source = Annotated[str, typer.Option("--from", help="Sending node, address or prefix.", autocompletion=nodes)]
Destination = Annotated[str, typer.Option("--to", help="Receiving node, address or prefix.", autocompletion=nodes)]
RateValue = Annotated[Rate | None, typer.Option("--rate", parser=rate_option, help="Guaranteed rate, such as 60M.")]
Service = Annotated[str, typer.Option(help="available, guaranteed, maximum or variable.", autocompletion=services)]
Minimum = Annotated[
    Rate | None, typer.Option(parser=rate_option, help="Accept at least this rate when --rate cannot be granted.")
]
Maximum = Annotated[Rate | None, typer.Option(parser=rate_option, help="Upper bound of the rate.")]
Protocol = Annotated[str | None, typer.Option(help="tcp or udp; default: any.")]
Port = Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Destination port.")]
SourcePort = Annotated[int | None, typer.Option(min=1, max=65535)]
Priority = Annotated[
    int, typer.Option(min=0, max=255, help="0 lowest to 255; a higher request may pre-empt a lower one.")
]
Duration = Annotated[int | None, typer.Option("--duration", min=1, help="Seconds; default: until released.")]
Start = Annotated[datetime | None, typer.Option(help="Local time; default: now.")]
Description = Annotated[str, typer.Option()]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="name=value; repeatable.")]
Background = Annotated[
    bool,
    typer.Option(
        "--background",
        help="Bulk traffic: uses the rate that foreground requests leave, up to --rate; each change is reported.",
    ),
]
Avoid = Annotated[list[str] | None, typer.Option(help="Node or link that the path must not use; repeatable.")]
RequestId = Annotated[str, typer.Argument(help="Id of the request.", metavar="REQUEST", autocompletion=requests)]


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
    background: bool,
    avoid: list[str] | None,
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
        "traffic_class": "background" if background else "foreground",
        "avoid": avoid or [],
    }


def parse_tags(pairs: list[str] | None, *, values: bool = True) -> dict[str, str]:
    """Tags from "name=value"; without `values` a name alone is accepted."""
    found = {}
    for pair in pairs or ():
        name, separator, value = pair.partition("=")
        if not name or (values and not separator):
            raise typer.BadParameter(f"{pair!r} is not a tag: write name=value", param_hint="--tag")
        found[name] = value
    return found


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
    background: Background = False,
    avoid: Avoid = None,
    tag: Tag = None,
    callback: Annotated[str | None, typer.Option(help="URL that receives a signed callback for each change.")] = None,
    hold: Annotated[
        bool, typer.Option("--hold", help="Hold the request for up to 900 s until `chart request commit`.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every node on the path enforces the rate.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.")] = 10.0,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Request a rate: `chart request create --from alpha --to delta --rate 60M --port 5201 --wait`."""
    fields = _fields(
        *(rate, service, minimum, maximum, protocol, port, source_port, priority, duration, start, description),
        background=background,
        avoid=avoid,
    )
    fields |= {"tags": parse_tags(tag), "callback_url": callback, "hold": hold}
    if hold and wait:
        raise typer.BadParameter("a held request is enforced only after `chart request commit`", param_hint="--wait")
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
    background: Background = False,
    avoid: Avoid = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what `create` would be granted now; exit status 1 when it would be refused."""
    fields = _fields(
        *(rate, service, minimum, maximum, protocol, port, source_port, priority, duration, start, ""),
        background=background,
        avoid=avoid,
    )
    with session(server, token, as_json=as_json) as client:
        answer = client.rate_requests.preview(source, destination, **fields)
    show_preview(answer, as_json=as_json)
    if not answer.granted:
        raise typer.Exit(1)


@app.command("list")
def list_requests(
    lifecycle: Annotated[str | None, typer.Option(help="HELD, RESERVED, ACTIVE, RELEASED, EXPIRED, CANCELLED.")] = None,
    enforcement: Annotated[str | None, typer.Option(help="PENDING, ENFORCED, FAILED.")] = None,
    state: Annotated[str | None, typer.Option(help="GRANTED, PREEMPTED, DEGRADED.")] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", help="name=value or name; repeatable.")] = None,
    search: Annotated[
        str | None, typer.Option("--search", "-q", help="Text in description, source, destination, tags or owner.")
    ] = None,
    link: Annotated[str | None, typer.Option(help="Only requests with this link in their path.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most rows shown.")] = 100,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List requests, newest first."""
    wanted: dict[str, Any] = {
        "lifecycle": lifecycle.upper() if lifecycle else None,
        "enforcement": enforcement.upper() if enforcement else None,
        "service_state": state.upper() if state else None,
        "tags": parse_tags(tag, values=False),
        "search": search,
        "link": link,
    }
    show_all(
        server,
        token,
        lambda client: itertools.islice(client.rate_requests.list(**wanted), limit),
        ("id", "from", "to", "service", "granted", "lifecycle", "enforcement", "owner", "description"),
        lambda request: (
            request.id,
            request.request.source,
            request.request.destination,
            request.request.service,
            format_bps(request.granted_bps),
            request.lifecycle,
            request.enforcement,
            request.owner,
            request.request.description,
        ),
        "no requests",
        as_json=as_json,
    )


@app.command()
def show(
    request_id: RequestId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Show one request with the status from each node."""
    show_one(server, token, lambda client: client.rate_requests.get(request_id), show_words, as_json=as_json)


@app.command()
def release(
    request_id: RequestId,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Release a request."""
    show_one(server, token, lambda client: client.rate_requests.release(request_id), show_words, as_json=as_json)


@app.command()
def commit(
    request_id: RequestId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Commit a held request."""
    show_one(server, token, lambda client: client.rate_requests.commit(request_id), show_words, as_json=as_json)


@app.command()
def change(
    request_id: RequestId,
    rate: RateValue = None,
    minimum: Minimum = None,
    maximum: Maximum = None,
    end: Annotated[datetime | None, typer.Option(help="Local time of the new end.")] = None,
    endless: Annotated[bool, typer.Option("--endless", help="Keep it until it is released.")] = False,
    priority: Annotated[int | None, typer.Option(min=0, max=255)] = None,
    description: Annotated[str | None, typer.Option()] = None,
    tag: Tag = None,
    look: Annotated[bool, typer.Option("--preview", help="Show the outcome without changing anything.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Change rate, end, priority, tags or description of a request; its flows keep running."""
    fields: dict[str, Any] = {
        "guaranteed_bps": rate,
        "minimum_bps": minimum,
        "maximum_bps": maximum,
        "end": end.astimezone() if end else None,
        "priority": priority,
        "description": description,
        "tags": parse_tags(tag) if tag else None,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    if endless:
        fields["end"] = None
    if not fields:
        raise typer.BadParameter("set at least one of --rate, --end, --endless, --priority, --tag, --description")
    with session(server, token, as_json=as_json) as client:
        if look:
            answer = client.rate_requests.preview_change(request_id, **fields)
            show_preview(answer, as_json=as_json)
            raise typer.Exit(0 if answer.granted else 1)
        request = client.rate_requests.change(request_id, **fields)
    show_request(request, as_json=as_json)


@app.command()
def clone(
    request_id: RequestId,
    rate: RateValue = None,
    duration: Duration = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Create a new request, starting now, with the values of another one."""
    changes = {"guaranteed_bps": rate, "duration_s": duration}
    stated = {name: value for name, value in changes.items() if value is not None}
    show_one(
        server, token, lambda client: client.rate_requests.clone(request_id, **stated), show_words, as_json=as_json
    )


@app.command()
def receipt(
    request_id: RequestId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Show granted, sent and delivered volumes from the agents' counters."""
    with session(server, token, as_json=as_json) as client:
        found = client.rate_requests.receipt(request_id)
    if as_json:
        print_json(found)
        return
    ended = local_time(found.ended_at) if found.ended_at else "not ended"
    out.print(f"[bold]{found.request_id}[/bold]  {found.lifecycle.lower()}, {ended}")
    for one in found.rates:
        since = local_time(one.start, "milliseconds")
        out.print(f"  from {since}  {format_bps(one.granted_bps)}, {one.service_state.lower()}")
    rows = [(one.node, one.sent_bytes, one.delivered_bytes) for one in found.nodes]
    print_table(("node", "bytes sent", "bytes delivered"), rows, "no node has reported")


@app.command()
def history(
    request_id: RequestId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """List changes of a request, newest first."""
    show_all(
        server,
        token,
        lambda client: client.audit.of_request(request_id),
        AUDIT_COLUMNS,
        audit_row,
        "no records of this request",
        as_json=as_json,
    )


def show_preview(answer: Preview, *, as_json: bool) -> None:
    """Print what a request would be granted."""
    if as_json:
        print_json(answer)
        return
    if answer.granted:
        out.print(f"would be granted: {format_bps(answer.granted_bps)}")
    else:
        out.print("would be refused:", answer.refusal.detail if answer.refusal else "no reason reported")
        for text in (answer.refusal.suggestions if answer.refusal else None) or ():
            out.print("  ", text, sep="")
    out.print(f"path:       {' > '.join(answer.path) or '-'}")
    out.print(f"bottleneck: {answer.bottleneck_link_id or '-'}")
    out.print(f"at most:    {format_bps(answer.ceiling_bps)}")
    if answer.preempts:
        out.print(f"{answer.preempts} requests of lower priority would be pre-empted")
    for window in answer.windows:
        end = local_time(window.end) if window.end else "open"
        out.print(f"fits:       {local_time(window.start)} until {end}")


def show_request(request: RateRequest, *, as_json: bool) -> None:
    """Print a request."""
    if as_json:
        print_json(request)
    else:
        show_words(request)


def show_words(request: RateRequest) -> None:
    """Print a request for people."""
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
        out.print(f"  enforced     {elapsed_ms:.0f} ms after it was created")
