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
from chart_client.commands.completion import requests
from chart_client.commands.observed import AUDIT_COLUMNS, audit_row
from chart_client.commands.request_options import OPTION_OF, asked_options, parse_tags
from chart_client.models import Preview, RateRequest
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

app = typer.Typer(help="Request a rate, follow it, release it.", no_args_is_help=True)

RateValue = Annotated[Rate | None, typer.Option("--rate", parser=rate_option, help="Guaranteed rate, such as 60M.")]
Minimum = Annotated[
    Rate | None, typer.Option(parser=rate_option, help="Accept at least this rate when --rate cannot be granted.")
]
Maximum = Annotated[Rate | None, typer.Option(parser=rate_option, help="Upper bound of the rate.")]
Duration = Annotated[int | None, typer.Option("--duration", min=1, help="Seconds; default: until released.")]
Tag = Annotated[list[str] | None, typer.Option("--tag", help="name=value; repeatable.")]
RequestId = Annotated[str, typer.Argument(help="Id of the request.", metavar="REQUEST", autocompletion=requests)]


@app.command()
@asked_options()
def create(
    asked: dict[str, Any],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until every node on the path enforces the rate.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.")] = 10.0,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Request a rate: `chart request create --from alpha --to delta --rate 60M --port 5201 --wait`."""
    if asked["hold"] and wait:
        raise typer.BadParameter("a held request is enforced only after `chart request commit`", param_hint="--wait")
    with session(server, token, as_json=as_json, option_of=OPTION_OF) as client:
        request = client.rate_requests.create(**asked)
        if wait:
            if not as_json:
                console.print(f"granted {format_bps(request.granted_bps)}, waiting for the nodes on the path")
            request = client.rate_requests.wait_enforced(request.id, timeout_s=timeout)
    show_request(request, as_json=as_json)


@app.command()
@asked_options(preview=True)
def preview(
    asked: dict[str, Any],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what `create` would be granted now; exit status 1 when it would be refused."""
    with session(server, token, as_json=as_json, option_of=OPTION_OF) as client:
        answer = client.rate_requests.preview(**asked)
    show_preview(answer, as_json=as_json)
    if not answer.granted:
        raise typer.Exit(1)


@app.command("list")
def list_requests(
    lifecycle: Annotated[str | None, typer.Option(help="HELD, RESERVED, ACTIVE, RELEASED, EXPIRED, CANCELLED.")] = None,
    enforcement: Annotated[str | None, typer.Option(help="PENDING, ENFORCED, FAILED, ENDED.")] = None,
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
        ("id", "from", "to", "service", "granted", "state", "flows", "owner", "description"),
        lambda request: (
            request.id,
            request.request.source,
            request.request.destination,
            request.request.service,
            format_bps(request.granted_bps),
            state_words(request),
            request.matching_flows,
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
    callback: Annotated[str | None, typer.Option(help="URL that receives a signed callback; empty: none.")] = None,
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
        "callback_url": callback,
        "description": description,
        "tags": parse_tags(tag) if tag else None,
    }
    fields = {name: value for name, value in fields.items() if value is not None}
    if endless:
        fields["end"] = None
    if callback == "":
        fields["callback_url"] = None
    if not fields:
        words = "--rate, --minimum, --maximum, --end, --endless, --priority, --callback, --tag, --description"
        raise typer.BadParameter(f"set at least one of {words}")
    with session(server, token, as_json=as_json, option_of=OPTION_OF) as client:
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
    if answer.waits_until:
        out.print(f"in force:   {local_time(answer.waits_until)} at the latest: another rate drains on its path")
    for window in answer.windows:
        end = local_time(window.end) if window.end else "open"
        out.print(f"fits:       {local_time(window.start)} until {end}")


def show_request(request: RateRequest, *, as_json: bool) -> None:
    """Print a request."""
    if as_json:
        print_json(request)
    else:
        show_words(request)


def state_words(request: RateRequest) -> str:
    """The states in a word; of an older gateway, which does not say it, the lifecycle and the enforcement."""
    if not request.state:
        return f"{request.lifecycle}, {request.enforcement}".lower()
    return request.state.lower().replace("_", " ")


def show_words(request: RateRequest) -> None:
    """Print a request for people."""
    asked = request.request
    out.print(f"[bold]{request.id}[/bold]  {asked.source} > {asked.destination}  {asked.service}")
    out.print(f"  granted      {format_bps(request.granted_bps)} of {format_bps(asked.guaranteed_bps)}")
    states = f"{request.lifecycle}, {request.enforcement}, {request.service_state}"
    out.print(f"  state        {states}{': ' + request.reason if request.reason else ''}", markup=False)
    if request.warning:
        since = f" since {local_time(request.unmatched_since)}" if request.unmatched_since else ""
        out.print(f"  warning      {request.warning}{since}", markup=False)
    if request.waits_until:
        out.print(f"  in force     {local_time(request.waits_until)} at the latest")
    if request.draining_until:
        nodes = ", ".join(request.draining_nodes)
        out.print(f"  draining     until {local_time(request.draining_until)} at the latest, on {nodes}", markup=False)
    out.print(f"  path         {' > '.join(request.path) or '-'}")
    for confirmation in request.confirmations:
        words = f"{confirmation.state.lower()}, kernel {format_bps(confirmation.kernel_rate_bps)}, "
        words += f"{confirmation.matching_flows} flows, {confirmation.sent_bytes} bytes"
        out.print(f"  {confirmation.node:12} {words} {confirmation.reason}", markup=False)
    if request.enforced_at:
        elapsed_ms = (request.enforced_at - request.created_at).total_seconds() * 1000
        out.print(f"  enforced     {elapsed_ms:.0f} ms after it was created")
