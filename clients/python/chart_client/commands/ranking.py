"""`chart estimate closest`, `rank`, `relays`: which node is best, by measured values and estimates."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from chart_client.commands.common import (
    JsonOption,
    ServerOption,
    TokenOption,
    out,
    print_json,
    print_table,
    session,
    value_words,
)
from chart_client.commands.sensing import estimate
from chart_client.sensing_models import RankedNode, RankedNodes, RankedRelays
from chart_client.transport import DEFAULT_SERVER

# The commands of `chart estimate`, those of this module and of sensing.py.
app = estimate

CandidateOption = Annotated[
    list[str] | None, typer.Option("--candidate", help="Only this node; repeatable. Not stated: every node.")
]
MetricArgument = Annotated[str, typer.Option(help="Metric, such as rtt_us or available_bandwidth_bps.")]
COLUMNS = ("node", "value", "90 % interval", "may be the best", "method", "age")


def _row(one: RankedNode, unit: str, name: str | None = None) -> tuple[str, ...]:
    return (
        name or one.node,
        value_words(one.value, unit),
        f"{value_words(one.interval_low, unit)} .. {value_words(one.interval_high, unit)}",
        "yes" if one.may_be_best else "no",
        one.method,
        f"{one.age_s:.0f} s",
    )


def _show(found: RankedNodes, *, as_json: bool) -> None:
    if as_json:
        print_json(found)
        return
    rows = [_row(one, found.unit) for one in found.items]
    if isinstance(found, RankedRelays) and found.direct is not None:
        rows.append(_row(found.direct, found.unit, "without a relay"))
    print_table(COLUMNS, rows, "no estimates yet")
    if found.unknown:
        out.print(f"no data of: {', '.join(found.unknown)}")


@app.command("closest")
def closest(
    node: Annotated[str, typer.Argument(help="Node that asks.")],
    candidate: CandidateOption = None,
    count: Annotated[int, typer.Option(min=1, max=1000)] = 1,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the nodes with the least round-trip time from a node."""
    with session(server, token, as_json=as_json) as client:
        _show(client.sensing.closest(node, count, candidates=candidate or ()), as_json=as_json)


@app.command("rank")
def rank(
    node: Annotated[str, typer.Argument(help="Node that asks.")],
    metric: MetricArgument = "available_bandwidth_bps",
    candidate: CandidateOption = None,
    towards: Annotated[bool, typer.Option("--towards", help="From the candidates to the node, not to them.")] = False,
    count: Annotated[int, typer.Option(min=1, max=1000)] = 10,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Order nodes by a metric, the best first: the best server of some, nodes by bandwidth."""
    way: Literal["from", "to"] = "to" if towards else "from"
    with session(server, token, as_json=as_json) as client:
        found = client.sensing.rank(node, metric, candidates=candidate or (), direction=way, count=count)
        _show(found, as_json=as_json)


@app.command("relays")
def relays(
    source: Annotated[str, typer.Argument(help="Node where paths begin.")],
    destination: Annotated[str, typer.Argument(help="Node where they end.")],
    metric: MetricArgument = "rtt_us",
    candidate: CandidateOption = None,
    count: Annotated[int, typer.Option(min=1, max=1000)] = 3,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the best relays between two nodes, and the path without one."""
    with session(server, token, as_json=as_json) as client:
        found = client.sensing.relays(source, destination, count, metric=metric, candidates=candidate or ())
        _show(found, as_json=as_json)
