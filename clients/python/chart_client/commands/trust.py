"""`chart peer`, `chart next-hop`, `chart authorisation policy`: what the authority tells the elements."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from chart_client.commands.common import (
    JsonOption,
    Rate,
    ServerOption,
    TokenOption,
    local_time,
    print_all,
    rate_option,
    session,
    show_all,
    show_one,
    told,
)
from chart_client.commands.identity import Seconds, seconds_option
from chart_client.commands.observed import authorisation
from chart_client.identities import AuthorisationPolicy, NextHop
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

peer = typer.Typer(help="Neighbouring domains.", no_args_is_help=True)
next_hop = typer.Typer(help="Next elements towards prefixes.", no_args_is_help=True)
policy = typer.Typer(help="Who may be authorised for what.", no_args_is_help=True)
authorisation.add_typer(policy, name="policy")

Domain = Annotated[str, typer.Argument(metavar="DOMAIN", help="Such as example.net.")]
Element = Annotated[str, typer.Argument(metavar="ELEMENT", help="The node whose next hop it is.")]
Prefix = Annotated[str, typer.Argument(metavar="PREFIX", help="Such as 10.9.0.0/16.")]
PolicyId = Annotated[str, typer.Argument(metavar="POLICY")]


def pair_of(text: str) -> tuple[str, str]:
    """SENDER,RECEIVER.

    Raises:
        typer.BadParameter: it does not read so.
    """
    sender, comma, receiver = text.partition(",")
    if not comma or not sender or not receiver:
        raise typer.BadParameter(f"{text!r} must be SENDER,RECEIVER, such as edge,border@example.net")
    return sender, receiver


@peer.command("list")
def list_peers(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """Neighbouring domains and the pairs that share keys with them."""
    show_all(
        server,
        token,
        lambda client: client.peers.list(),
        ("domain", "authority", "pairs", "fingerprint of its certificate"),
        lambda one: (one.domain, one.url, ", ".join(" > ".join(pair) for pair in one.pairs) or "-", one.ca_sha256),
        "no neighbouring domains",
        as_json=as_json,
    )


@peer.command("set")
def set_peer(
    domain: Domain,
    url: Annotated[str, typer.Option(help="https://HOST:PORT of its authority.")],
    ca: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="Certificate of its authority, PEM.")],
    pair: Annotated[
        list[str] | None,
        typer.Option(metavar="SENDER,RECEIVER", help="Ours by name, theirs as name@domain; repeatable, replaces all."),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """State a neighbouring domain; it counts when its operator enters ours too."""
    pairs = [pair_of(one) for one in pair or ()]
    with session(server, token, as_json=as_json) as client:
        stored = client.peers.put(domain, url=url, ca_pem=ca.read_text(), pairs=pairs)
    told(stored, f"{stored.domain}: {len(stored.pairs)} pairs, certificate {stored.ca_sha256}", as_json=as_json)


@peer.command("delete")
def delete_peer(
    domain: Domain, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Its certificates are believed no more."""
    with session(server, token, as_json=as_json) as client:
        client.peers.delete(domain)
    told({"deleted": domain}, f"{domain} is no neighbour any more", as_json=as_json)


@next_hop.command("list")
def list_next_hops(
    element: Annotated[str | None, typer.Option(help="Only of this one.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """What operators stated, what reports proved, and what follows from the topology."""
    show_all(
        server,
        token,
        lambda client: client.next_hops.list(element=element),
        ("element", "towards", "next", "source", "shim address", "until"),
        lambda one: (
            one.element,
            one.prefix,
            one.next_element,
            one.source,
            one.shim_address or "-",
            local_time(one.expires_at) if one.expires_at else "-",
        ),
        "no next hops",
        as_json=as_json,
    )


@next_hop.command("ask")
def ask_next_hop(
    element: Element,
    address: Annotated[str, typer.Argument(metavar="ADDRESS")],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """The next hop of an element towards an address, as the element itself is told."""
    show_one(
        server,
        token,
        lambda client: client.next_hops.get(element, address),
        lambda one: typer.echo(_hop_words(one)),
        as_json=as_json,
    )


def _hop_words(one: NextHop) -> str:
    shim = f", shim at {one.shim_address}" if one.shim_address else ""
    return f"{one.element} towards {one.prefix}: {one.next_element} ({one.source}{shim})"


@next_hop.command("set")
def set_next_hop(
    element: Element,
    prefix: Prefix,
    next_element: Annotated[str, typer.Option("--next", metavar="ELEMENT", help="The next element.")],
    shim: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Where it takes the UDP shim.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """State a next hop; it stands until it is deleted, whatever the topology says."""
    with session(server, token, as_json=as_json) as client:
        stored = client.next_hops.put(element, prefix, next_element=next_element, shim_address=shim)
    told(stored, _hop_words(stored), as_json=as_json)


@next_hop.command("delete")
def delete_next_hop(
    element: Element,
    prefix: Prefix,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Take a next hop back; what the topology says holds again within a minute."""
    with session(server, token, as_json=as_json) as client:
        client.next_hops.delete(element, prefix)
    told({"deleted": [element, prefix]}, f"{element} towards {prefix}: taken back", as_json=as_json)


class Service(StrEnum):
    """What can be asked for."""

    available = "available"
    guaranteed = "guaranteed"
    maximum = "maximum"
    variable = "variable"


@policy.command("list")
def list_policies(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """Policies of authorisations; whom none of them names gets the authority's default."""
    with session(server, token, as_json=as_json) as client:
        found = list(client.authorisation_policies.list())
    _show_policies(found, as_json=as_json)


@policy.command("set")
def set_policy(
    policy_id: PolicyId,
    subject: Annotated[
        list[str] | None, typer.Option(help="user/NAME, role/ROLE or *; repeatable, replaces all.")
    ] = None,
    service: Annotated[list[Service] | None, typer.Option(help="Repeatable, replaces all.")] = None,
    rate: Annotated[Rate | None, typer.Option(parser=rate_option, help="Greatest guaranteed rate, as 60M.")] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=255, help="Greatest priority.")] = None,
    delay_class: Annotated[int | None, typer.Option(min=0, max=7, help="Greatest delay class.")] = None,
    charging: Annotated[int | None, typer.Option(min=0, max=15, help="Charging class.")] = None,
    duration: Annotated[Seconds | None, typer.Option(parser=seconds_option, metavar="TIME", help="Such as 8h.")] = None,
    any_address: Annotated[bool | None, typer.Option(help="Also for other addresses than the asker's own.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set an authorisation policy; of an existing one, what is left out stays."""
    changes: dict[str, Any] = {
        "subjects": subject,
        "services": [one.value for one in service] if service else None,
        "max_guaranteed_bps": None if rate is None else int(rate),
        "max_priority": priority,
        "max_delay_class": delay_class,
        "charging": charging,
        "max_duration_s": None if duration is None else int(duration),
        "any_address": any_address,
    }
    stated = {name: value for name, value in changes.items() if value is not None}
    with session(server, token, as_json=as_json) as client:
        known = next((one for one in client.authorisation_policies.list() if one.id == policy_id), None)
        before = known.model_dump(exclude={"id"}) if known else dict(NEW_POLICY)
        if not known and not subject:
            raise typer.BadParameter(f"{policy_id} is new: state --subject, whom it is for")
        stored = client.authorisation_policies.put(policy_id, **{**before, **stated})
    _show_policies([stored], as_json=as_json)


# What a new policy gives where nothing else is stated.
NEW_POLICY: dict[str, Any] = {
    "services": [one.value for one in Service],
    "max_guaranteed_bps": 100_000_000,
    "max_priority": 127,
    "max_duration_s": 8 * 3600,
}


@policy.command("delete")
def delete_policy(
    policy_id: PolicyId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Remove a policy; authorisations that it gave stand until their end."""
    with session(server, token, as_json=as_json) as client:
        client.authorisation_policies.delete(policy_id)
    told({"deleted": policy_id}, f"{policy_id} is removed", as_json=as_json)


def _show_policies(found: list[AuthorisationPolicy], *, as_json: bool) -> None:
    print_all(
        found,
        ("id", "for", "services", "at most", "priority", "delay class", "for at most", "addresses"),
        lambda one: (
            one.id,
            ", ".join(one.subjects),
            ", ".join(one.services),
            format_bps(one.max_guaranteed_bps),
            one.max_priority,
            one.max_delay_class,
            f"{one.max_duration_s} s",
            "any" if one.any_address else "own",
        ),
        "no policies: the authority's default holds",
        as_json=as_json,
    )
