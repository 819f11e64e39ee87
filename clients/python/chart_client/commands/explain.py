"""`chart explain REQUEST|FLOW`. Of a rate request: match, path, bottleneck, grant, kernel value, measured rate, first
cause of a shortfall. Of a flow that asks in band (`10.0.0.1:40000-10.0.0.4:5001` or a part of it): its rate, and of
every hop the state and the epoch of the key that it signs with. Of one that was told a rate by SCONE or Quick-Start:
what and where. Of all: ends of tunnels, proxies and edges on the way.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import typer

from chart_client.client import Client
from chart_client.commands.common import (
    JsonOption,
    ServerOption,
    TokenOption,
    console,
    out,
    print_json,
    print_table,
    session,
)
from chart_client.commands.completion import requests
from chart_client.commands.explain_way import Part, ends_of_flow, networks, way
from chart_client.commands.room import rooms
from chart_client.models import Confirmation, Link, Node, RateRequest
from chart_client.observed import AdvisedFlow, InBandFlow, InBandHop
from chart_client.rate_requests import shortfall
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

# Agents report every grant about once a second when it carries traffic; a report may be on its way for a while.
WATCH_S = 8.0
# Two reports this far apart say what a flow sends.
APART_S = 0.8
# Payload over a whole packet, and a little less: the share of its rate from which a flow counts as served.
GOOD_SHARE = 0.9


@dataclass(frozen=True)
class Explanation:
    """Explanation of a request's rate."""

    match: str
    path: list[Link]
    bottleneck: str | None
    granted_bps: int
    kernel_rate_bps: int | None
    measured_bps: float | None
    cause: str | None
    way: list[Part] = field(default_factory=list)
    rooms: list[dict[str, Any]] = field(default_factory=list)


def match_words(request: RateRequest) -> str:
    """Which packets the grant is for."""
    asked = request.request
    words = [asked.protocol or "any protocol"]
    from_port = f" port {asked.source_port}" if asked.source_port else ""
    to_port = f" port {asked.destination_port}" if asked.destination_port else ""
    sources = " or ".join(asked.source_prefixes) or asked.source_prefix or asked.source
    destinations = " or ".join(asked.destination_prefixes) or asked.destination_prefix or asked.destination
    words.append(f"from {sources}{from_port}")
    words.append(f"to {destinations}{to_port}")
    if asked.dscp is not None:
        words.append(f"DSCP {asked.dscp}")
    if asked.cgroup_id is not None:
        words.append(f"sockets of cgroup {asked.cgroup_id}")
    return ", ".join(words)


def bottleneck(path: list[Link]) -> Link | None:
    """The link with the lowest fair share on the path; without a link rate, its admission limit counts."""
    return min(path, key=_allows_bps, default=None)


def _allows_bps(link: Link) -> float:
    return float(link.rate.available_bps) if link.rate else link.capacity_bps * link.admission_share


def sender(request: RateRequest) -> Confirmation | None:
    """The status that the sending node reported: its kernel paces the flow."""
    first = request.path[0].split(":")[0] if request.path else None
    return next((one for one in request.confirmations if one.node == first), None)


def first_cause(request: RateRequest, path: list[Link], measured_bps: float | None) -> str | None:
    """The first cause of a shortfall, checked from admission to the wire; None when there is none."""
    if request.lifecycle != "ACTIVE":
        return f"the request is {request.lifecycle.lower()}{': ' + request.reason if request.reason else ''}"
    if request.granted_bps < request.request.guaranteed_bps:
        asked = format_bps(request.request.guaranteed_bps)
        return f"admitted {format_bps(request.granted_bps)} of {asked}: {request.reason or 'links are full'}"
    if request.service_state != "GRANTED":
        return f"the service is {request.service_state.lower()}: {request.reason or 'no reason reported'}"
    if request.enforcement != "ENFORCED":
        return f"not enforced: {shortfall(request)}"
    if request.state == "OFF_PATH":
        return request.warning
    known = sender(request)
    if known is not None and known.matching_flows == 0:
        return f"no flow on {known.node} matches: {match_words(request)}"
    without = [link.id for link in path if link.rate is None]
    if without and request.request.service != "guaranteed":
        return f"no valid link rate for {', '.join(without)}: is the allocator running?"
    if known is not None and known.kernel_rate_bps < request.granted_bps:
        return f"the kernel of {known.node} enforces {format_bps(known.kernel_rate_bps)}, less than granted"
    if known is not None and measured_bps is not None and measured_bps < GOOD_SHARE * known.kernel_rate_bps:
        return _path_cause(path, known, measured_bps)
    return None


def _path_cause(path: list[Link], known: Confirmation, measured_bps: float) -> str:
    for link in path:
        if link.load and link.load.dropped_packets:
            return f"{link.id} drops packets: {link.load.dropped_packets} in its last report"
    rates = f"it sends {format_bps(measured_bps)} of its rate of {format_bps(known.kernel_rate_bps)}"
    return f"{rates}: limited by the application, the receive window or loss outside the path's links"


def measure(client: Client, request: RateRequest) -> tuple[RateRequest, float | None]:
    """The rate that the sender sends, bits per second, from two reports of its agent; None when no report came."""
    known = sender(request)
    if known is None or request.lifecycle != "ACTIVE":
        return request, None
    end = time.monotonic() + WATCH_S
    first = known
    while time.monotonic() < end:
        time.sleep(0.1)
        request = client.rate_requests.get(request.id)
        known = sender(request)
        if known is None or known.counted_at is None:
            continue
        if first.counted_at is None:
            first = known
        elif (apart_s := (known.counted_at - first.counted_at).total_seconds()) >= APART_S:
            return request, (known.sent_bytes - first.sent_bytes) * 8 / apart_s
    return request, None


def build(client: Client, request_id: str) -> tuple[RateRequest, Explanation]:
    """All data about a request."""
    request, measured_bps = measure(client, client.rate_requests.get(request_id))
    links = {link.id: link for link in client.links.list()}
    nodes = list(client.nodes.list())
    path = [links[link_id] for link_id in request.path if link_id in links]
    narrow = bottleneck(path)
    known = sender(request)
    return request, Explanation(
        match=match_words(request),
        path=path,
        bottleneck=narrow.id if narrow else None,
        granted_bps=request.granted_bps,
        kernel_rate_bps=known.kernel_rate_bps if known else None,
        measured_bps=measured_bps,
        cause=first_cause(request, path, measured_bps),
        way=way_of_request(client, request, nodes),
        rooms=rooms(nodes, request.path),
    )


def way_of_request(client: Client, request: RateRequest, nodes: Sequence[Node]) -> list[Part]:
    """Ends of tunnels, proxies and edges that its flows meet."""
    asked = request.request
    addresses = {node.id: node.addresses for node in nodes}
    sources = [*asked.source_prefixes, asked.source_prefix or "", asked.source, *addresses.get(asked.source, ())]
    destinations = [*asked.destination_prefixes, asked.destination_prefix or "", asked.destination]
    destinations += addresses.get(asked.destination, ())
    path = [*(link.split(":")[0] for link in request.path), asked.destination]
    return way(nodes, client.tunnels.list(), networks(sources), networks(destinations), path)


def show_way(parts: Sequence[Part]) -> None:
    """A table, when there is anything."""
    if parts:
        rows = [(one.kind, one.node, one.by, one.state, one.why_not or "-") for one in parts]
        print_table(("on its way", "node", "by", "state", "why not"), rows, "")


def is_flow(text: str) -> bool:
    """Whether a flow is meant: it has a port, and ids of requests have no colon."""
    return ":" in text


def hop_words(hop: InBandHop) -> tuple[str, ...]:
    """A line of the table of hops."""
    signs = f"epoch {hop.key_epoch} with {hop.neighbour or 'its neighbour'}" if hop.key_epoch else "no key"
    kept = format_bps(hop.kept_bps) if hop.kept_bps else "-"
    return hop.node + (" (stale)" if hop.stale else ""), hop.role, hop.state, signs, kept, f"{hop.age_ms} ms ago"


def show_in_band(flow: InBandFlow) -> None:
    """An in-band flow for people."""
    origin = next((hop for hop in flow.hops if hop.role == "origin"), None)
    out.print(f"[bold]{flow.source} -> {flow.destination}[/bold]  {flow.protocol}, rate asked in band", highlight=False)
    if origin is None:
        out.print("rate        its sender's node has not reported", highlight=False)
    elif origin.state == "agreed":
        left = f"its lease ended {origin.lease_ms / 1000:.1f} s later unless renewed"
        out.print(f"rate        {format_bps(origin.agreed_bps)} by {origin.carrier}; when reported, {left}")
    else:
        out.print(f"rate        none: {origin.state}", highlight=False)
    print_table(
        ("hop", "role", "state", "key", "guarantee kept", "signalled"), [hop_words(one) for one in flow.hops], ""
    )


def show_advised(flows: Sequence[AdvisedFlow]) -> None:
    """A table of what flows were told, when there is anything."""
    rows = [
        (
            f"{one.source} -> {one.destination}",
            one.standard,
            one.node + (" (stale)" if one.stale else ""),
            one.link or "all of the path",
            format_bps(one.advised_bps),
            f"{one.age_ms / 1000:.0f} s ago",
        )
        for one in flows
    ]
    if rows:
        print_table(("advised", "standard", "node", "link", "rate", "told"), rows, "")


def explain_flow(wanted: str, server: str, token: str, *, as_json: bool) -> None:
    """The in-band flows that fit, and those that were told a rate."""
    with session(server, token, as_json=as_json) as client:
        found = list(client.in_band_flows.list(wanted))
        advised = list(client.advised_flows.list(wanted))
        nodes, tunnels = list(client.nodes.list()), list(client.tunnels.list())
    ways = [
        way(nodes, tunnels, *ends_of_flow(f"{one.source}-{one.destination}"), [hop.node for hop in one.hops])
        for one in found
    ]
    # A flow that does not ask in band may go through a tunnel or a proxy all the same.
    stated = [] if found else way(nodes, tunnels, *ends_of_flow(wanted), [])
    if as_json:
        told = [{**one.model_dump(mode="json"), "way": _parts(parts)} for one, parts in zip(found, ways, strict=True)]
        others = [{"advised": [one.model_dump(mode="json") for one in advised]}] if advised else []
        print_json((told or ([{"flow": wanted, "hops": [], "way": _parts(stated)}] if stated else [])) + others)
    else:
        show_advised(advised)
        for one, parts in zip(found, ways, strict=True):
            show_in_band(one)
            show_way(parts)
        show_way(stated)
    if not found:
        if not advised:
            console.print(f"no flow {wanted} is signalled in band; nodes report every two seconds", markup=False)
        if not stated and not advised:
            raise typer.Exit(1)


def _parts(parts: Sequence[Part]) -> list[dict[str, Any]]:
    return [asdict(one) for one in parts]


def explain(
    request_id: Annotated[
        str,
        typer.Argument(
            metavar="REQUEST|FLOW",
            help="Id of a request, or a flow that has no grant: SOURCE-DESTINATION or a part with a port.",
            autocompletion=requests,
        ),
    ],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Explain the rate of a request (match, path, bottleneck, enforced and measured rate, cause of a shortfall) or of a
    flow that asks in band (state and key epoch of every hop) or was told one by SCONE or Quick-Start; ends of tunnels,
    proxies and edges on the way.
    """
    if is_flow(request_id):
        explain_flow(request_id, server, token, as_json=as_json)
        return
    with session(server, token, as_json=as_json) as client:
        request, found = build(client, request_id)
    if as_json:
        print_json(_plain(request, found))
        return
    out.print(f"[bold]{request.id}[/bold]  {request.lifecycle}, {request.enforcement}, {request.service_state}")
    out.print(f"match       {found.match}", markup=False)
    rows = [
        (
            link.id + (" <- bottleneck" if link.id == found.bottleneck else ""),
            format_bps(link.capacity_bps),
            format_bps(link.load.sent_bps) if link.load else "-",
            format_bps(link.rate.available_bps) if link.rate else "no link rate",
            link.load.dropped_packets if link.load else "-",
        )
        for link in found.path
    ]
    print_table(("path", "capacity", "sent", "fair share", "drops"), rows, "path        none")
    show_way(found.way)
    for one in found.rooms:
        out.print(f"room        {one['node']} holds {one['words']}", markup=False)
    for node in request.confirmations:
        if node.against_routes:
            leaves = ", ".join(f"{one.link} ({one.share:.0%})" for one in node.egress)
            out.print(f"diverted    packets leave {node.node} by {leaves}, against its routes", markup=False)
    out.print(f"granted     {format_bps(found.granted_bps)} of {format_bps(request.request.guaranteed_bps)}")
    out.print(f"kernel      {format_bps(found.kernel_rate_bps)}")
    out.print(f"measured    {format_bps(found.measured_bps)}")
    if found.cause:
        out.print("[yellow]cause[/yellow]       ", found.cause, sep="")
    else:
        out.print("[green]at the requested rate[/green]")


def _plain(request: RateRequest, found: Explanation) -> dict[str, Any]:
    return {
        "request": request.model_dump(mode="json"),
        "match": found.match,
        "path": [link.model_dump(mode="json") for link in found.path],
        "bottleneck": found.bottleneck,
        "granted_bps": found.granted_bps,
        "kernel_rate_bps": found.kernel_rate_bps,
        "measured_bps": found.measured_bps,
        "cause": found.cause,
        "way": _parts(found.way),
        "rooms": [{"node": one["node"], "room": one["room"]} for one in found.rooms],
    }
