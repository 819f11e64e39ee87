"""`chart alert`: alerts and their rules."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from chart_client.commands.common import (
    DestinationOption,
    JsonOption,
    ServerOption,
    SourceOption,
    TokenOption,
    local_time,
    session,
    show_all,
    told,
)
from chart_client.transport import DEFAULT_SERVER

alert = typer.Typer(help="Alerts and their rules.", no_args_is_help=True)


class Kind(StrEnum):
    """Kind of the rule's condition."""

    above = "above"
    below = "below"
    no_data = "no_data"
    change = "change"


@alert.command("list")
def list_alerts(
    firing: Annotated[bool, typer.Option("--firing", help="Only alerts that are firing.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List alerts, newest first."""
    show_all(
        server,
        token,
        lambda client: client.alerts.list(firing=firing),
        ("state", "since", "rule", "what"),
        lambda item: (
            "resolved" if item.resolved_at else "FIRING",
            local_time(item.fired_at),
            item.rule,
            item.summary,
        ),
        "no alerts",
        as_json=as_json,
    )


@alert.command("rules")
def list_rules(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List alert rules."""
    show_all(
        server,
        token,
        lambda client: client.alerts.rules(),
        ("id", "kind", "metric", "from", "to", "statistic", "threshold", "for"),
        lambda item: (
            item.id,
            item.kind,
            item.metric,
            item.source_node or "any",
            item.destination_node or "any",
            item.statistic or "-",
            f"{item.threshold:g}",
            f"{item.for_s} s",
        ),
        "no alert rules",
        as_json=as_json,
    )


@alert.command("put-rule")
def put_rule(
    rule_id: Annotated[str, typer.Argument(metavar="ID")],
    kind: Annotated[Kind, typer.Option()],
    metric: Annotated[str, typer.Option(help="Metric, such as rtt_us.")],
    source: SourceOption = None,
    destination: DestinationOption = None,
    statistic: Annotated[str | None, typer.Option(help="latest, mean, p50, p95, p99, loss_ratio, ...")] = None,
    threshold: Annotated[
        float, typer.Option(help="In the unit of the metric; for kind change: relative, such as 0.5.")
    ] = 0.0,
    for_s: Annotated[
        int, typer.Option("--for", min=0, help="Seconds that the condition must hold; for kind no_data: without data.")
    ] = 0,
    description: Annotated[str, typer.Option()] = "",
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set an alert rule for one path or for all paths of a metric."""
    with session(server, token, as_json=as_json) as client:
        stored = client.alerts.put_rule(
            rule_id,
            kind=kind.value,
            metric=metric,
            source_node=source,
            destination_node=destination,
            statistic=statistic,
            threshold=threshold,
            for_s=for_s,
            description=description,
        )
    told(stored, f"{stored.id}: {stored.kind}, {stored.metric}, revision {stored.revision}", as_json=as_json)


@alert.command("delete-rule")
def delete_rule(
    rule_id: Annotated[str, typer.Argument(metavar="ID")],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove an alert rule; its alerts are resolved."""
    with session(server, token, as_json=as_json) as client:
        client.alerts.delete_rule(rule_id)
    told({"deleted": rule_id}, f"{rule_id} is removed", as_json=as_json)
