"""`chart session-rule`: what nodes ask in band for every session of a kind."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer

from chart_client.commands.common import (
    JsonOption,
    Rate,
    ServerOption,
    TokenOption,
    out,
    print_table,
    rate_option,
    session,
    show_all,
    show_one,
    tag_of,
    told,
)
from chart_client.commands.trust import Service
from chart_client.session_rules import SessionRule, SessionSelector
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

app = typer.Typer(help="What nodes ask in band for every session of a kind.", no_args_is_help=True)

RuleId = Annotated[str, typer.Argument(metavar="RULE", help="telephony, video, or one of your own.")]

SessionClass = StrEnum("SessionClass", ["voice", "video", "data"])

_SELECTOR_FIELDS = {
    "protocol": "protocol",
    "local-ports": "local_ports",
    "remote-ports": "remote_ports",
    "local": "local_prefix",
    "remote": "remote_prefix",
    "dscp": "dscp",
}


def selector_of(text: str) -> dict[str, Any]:
    """A selector from FIELD=VALUE,...

    Raises:
        typer.BadParameter: it does not read so.
    """
    selector: dict[str, Any] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        field = _SELECTOR_FIELDS.get(name)
        if field is None or not value or (field == "dscp" and not value.isdecimal()):
            known = ", ".join(_SELECTOR_FIELDS)
            raise typer.BadParameter(f"{part!r} must be FIELD=VALUE, with one of {known}")
        selector[field] = int(value) if field == "dscp" else value
    return selector


def selector_words(selector: SessionSelector) -> str:
    """A selector as `selector_of` reads it."""
    values = selector.model_dump(exclude_none=True)
    return ",".join(f"{name}={values[field]}" for name, field in _SELECTOR_FIELDS.items() if field in values)


def _rates(rule: SessionRule) -> str:
    rates = [format_bps(rate) for rate in (rule.guaranteed_bps, rule.available_bps) if rate]
    return f"{rule.service} {' + '.join(rates)}"


def _nodes(rule: SessionRule) -> str:
    return ", ".join([*rule.nodes, *(f"{name}={value}" for name, value in rule.node_tags.items())]) or "all"


def _state(rule: SessionRule) -> str:
    return ("enabled" if rule.enabled else "disabled") + (", expedited" if rule.expedited else "")


@app.command("list")
def list_rules(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """Rules with the sessions that run under them now."""
    show_all(
        server,
        token,
        lambda client: client.session_rules.list(),
        ("id", "state", "each session asks", "class", "nodes", "sessions", "expedited"),
        lambda rule: (
            *(rule.id, _state(rule), _rates(rule), rule.session_class, _nodes(rule)),
            *(rule.sessions, rule.expedited_sessions),
        ),
        "no session rules",
        as_json=as_json,
    )


@app.command("show")
def show_rule(
    rule_id: RuleId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """One rule, and what every node reports of it."""
    show_one(server, token, lambda client: client.session_rules.get(rule_id), _show, as_json=as_json)


def _show(rule: SessionRule) -> None:
    title = f" ({rule.name})" if rule.name else ""
    out.print(f"{rule.id}{title}: {_state(rule)}, revision {rule.revision}", markup=False)
    for selector in rule.selectors:
        out.print(f"  sessions       {selector_words(selector)}", markup=False)
    out.print(f"  each asks      {_rates(rule)}", markup=False)
    words = f"delay class {rule.delay_class}, priority {rule.priority}, burst tolerance {rule.burst_tolerance}"
    out.print(f"  with           {words}", markup=False)
    authorised = "carried by the rule" if rule.authorised else "that of each session's addresses"
    out.print(f"  authorisation  {authorised}", markup=False)
    out.print(f"  nodes          {_nodes(rule)}", markup=False)
    print_table(
        ("node", "revision", "asks", "sessions", "expedited", "guaranteed", "fault"),
        [
            (
                *(one.node, "current" if one.current else "older", "yes" if one.asks else "no", one.sessions),
                *(one.expedited_sessions, format_bps(one.guaranteed_bps), one.fault or "-"),
            )
            for one in rule.reported_by
        ],
        "no node has reported it",
    )


@app.command("set")
def set_rule(
    rule_id: RuleId,
    match: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=VALUE,...",
            help="Sessions: protocol, local-ports, remote-ports, local, remote, dscp; repeatable, replaces all.",
        ),
    ] = None,
    service: Annotated[Service | None, typer.Option()] = None,
    rate: Annotated[Rate | None, typer.Option(parser=rate_option, help="Guaranteed to each session, as 82k.")] = None,
    available: Annotated[
        Rate | None, typer.Option(parser=rate_option, help="At most this of the available rate, as 6M.")
    ] = None,
    delay_class: Annotated[
        int | None, typer.Option(min=0, max=7, help="From 4 on, sessions with a guaranteed rate are expedited.")
    ] = None,
    priority: Annotated[int | None, typer.Option(min=0, max=255, help="Pre-emption priority.")] = None,
    burst_tolerance: Annotated[int | None, typer.Option(min=0, max=15, help="(N + 1)/4 round trips.")] = None,
    node: Annotated[list[str] | None, typer.Option(help="Only this node asks; repeatable, replaces all.")] = None,
    node_tag: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Nodes with all these tags ask; repeatable.")
    ] = None,
    all_nodes: Annotated[bool, typer.Option("--all-nodes", help="Every node asks.")] = False,
    session_class: Annotated[SessionClass | None, typer.Option("--class")] = None,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    enabled: Annotated[bool | None, typer.Option("--enabled/--disabled")] = None,
    authorised: Annotated[
        bool | None,
        typer.Option("--authorised/--by-address", help="The rule authorises its sessions, or their addresses must be."),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a session rule; of an existing one, what is left out stays."""
    changes: dict[str, Any] = {
        "selectors": [selector_of(one) for one in match] if match else None,
        "service": service.value if service else None,
        "guaranteed_bps": None if rate is None else int(rate),
        "available_bps": None if available is None else int(available),
        "delay_class": delay_class,
        "priority": priority,
        "burst_tolerance": burst_tolerance,
        "nodes": [] if all_nodes else node,
        "node_tags": {} if all_nodes else (dict(tag_of(one) for one in node_tag) if node_tag else None),
        "session_class": session_class.value if session_class else None,
        "name": name,
        "enabled": enabled,
        "authorised": authorised,
    }
    stated = {field: value for field, value in changes.items() if value is not None}
    with session(server, token, as_json=as_json) as client:
        known = next((one for one in client.session_rules.list() if one.id == rule_id), None)
        if known is None and not match:
            raise typer.BadParameter(f"{rule_id} is new: state --match, which sessions it is for")
        before = known.stated() if known else {"session_class": "data", "service": _service_of(stated)}
        stored = client.session_rules.put(rule_id, revision=known.revision if known else None, **{**before, **stated})
    told(stored, f"{stored.id}: {_state(stored)}, each session asks {_rates(stored)}", as_json=as_json)


def _service_of(stated: dict[str, Any]) -> str:
    """What a new rule asks by the rates that are stated."""
    if stated.get("guaranteed_bps"):
        return "variable" if stated.get("available_bps") else "guaranteed"
    return "available"


@app.command("enable")
def enable_rule(
    rule_id: RuleId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Let sessions ask by a rule, running ones too."""
    _switch(server, token, rule_id, enabled=True, as_json=as_json)


@app.command("disable")
def disable_rule(
    rule_id: RuleId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """No session asks by the rule any more; running ones give their rates back."""
    _switch(server, token, rule_id, enabled=False, as_json=as_json)


def _switch(server: str, token: str, rule_id: str, *, enabled: bool, as_json: bool) -> None:
    with session(server, token, as_json=as_json) as client:
        stored = client.session_rules.enable(rule_id, enabled=enabled)
    told(stored, f"{stored.id}: {_state(stored)}", as_json=as_json)


@app.command("delete")
def delete_rule(
    rule_id: RuleId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Remove a rule of your own; built-in ones can be disabled."""
    with session(server, token, as_json=as_json) as client:
        client.session_rules.delete(rule_id)
    told({"deleted": rule_id}, f"{rule_id} is removed", as_json=as_json)
