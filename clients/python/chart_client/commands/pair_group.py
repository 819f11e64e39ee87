"""`chart pair-group`: pairs that are looked at together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from chart_client.commands.common import (
    JsonOption,
    ServerOption,
    TokenOption,
    local_time,
    out,
    print_json,
    session,
    show_all,
    show_one,
    told,
    value_words,
)
from chart_client.pair_groups import PairGroup, PairSeries
from chart_client.transport import DEFAULT_SERVER

app = typer.Typer(help="Groups of pairs: their series, history as files, and a subscription.", no_args_is_help=True)

GroupId = Annotated[str, typer.Argument(metavar="GROUP")]
MetricOption = Annotated[str, typer.Option(help="Metric, such as rtt_us.")]
HoursOption = Annotated[float, typer.Option("--hours", min=0.02, help="How far back.")]


class Resolution(StrEnum):
    """What a line of the file is."""

    measurement = "measurement"
    minute = "minute"
    hour = "hour"


def pair_of(text: str) -> dict[str, Any]:
    """A pair from SOURCE,DESTINATION.

    Raises:
        typer.BadParameter: it does not read so.
    """
    source, comma, destination = text.partition(",")
    if not (source and comma and destination):
        raise typer.BadParameter(f"{text!r} must be SOURCE,DESTINATION, such as alpha,bravo")
    return {"source_node": source, "destination_node": destination}


def _pairs(group: PairGroup) -> str:
    words = [f"{one.source_node} to {one.destination_node}" for one in group.pairs]
    if group.source_nodes or group.destination_nodes or not group.pairs:
        ends = (", ".join(nodes) or "any" for nodes in (group.source_nodes, group.destination_nodes))
        words.insert(0, " to ".join(ends))
    return "; ".join(words)


@app.command("list")
def list_groups(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List groups of pairs."""
    show_all(
        server,
        token,
        lambda client: client.pair_groups.list(),
        ("id", "pairs", "owner", "description"),
        lambda group: (group.id, _pairs(group), group.owner, group.description),
        "no groups: `chart pair-group set branches --to charlie`",
        as_json=as_json,
    )


@app.command("show")
def show_group(
    group_id: GroupId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """One group of pairs."""

    def words(group: PairGroup) -> None:
        out.print(f"{group.id}: {_pairs(group)}; revision {group.revision}, of {group.owner}", markup=False)

    show_one(server, token, lambda client: client.pair_groups.get(group_id), words, as_json=as_json)


@app.command("set")
def set_group(
    group_id: GroupId,
    sources: Annotated[
        list[str] | None, typer.Option("--from", help="A source; repeatable. Default: any node.")
    ] = None,
    destinations: Annotated[
        list[str] | None, typer.Option("--to", help="A destination; repeatable. Default: any node.")
    ] = None,
    pairs: Annotated[
        list[str] | None, typer.Option("--pair", help="SOURCE,DESTINATION: a single pair besides; repeatable.")
    ] = None,
    description: Annotated[str, typer.Option()] = "",
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a group: every source with every destination, and single pairs."""
    single = [pair_of(one) for one in pairs or []]
    with session(server, token, as_json=as_json) as client:
        stored = client.pair_groups.put(
            group_id,
            source_nodes=sources or [],
            destination_nodes=destinations or [],
            pairs=single,
            description=description,
        )
    told(stored, f"{stored.id}: {_pairs(stored)}, revision {stored.revision}", as_json=as_json)


@app.command("delete")
def delete_group(
    group_id: GroupId, server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False
) -> None:
    """Remove a group; what was measured stays."""
    with session(server, token, as_json=as_json) as client:
        client.pair_groups.delete(group_id)
    told({"deleted": group_id}, f"{group_id} is removed; its results are kept", as_json=as_json)


@app.command("series")
def series(
    group_id: GroupId,
    metric: MetricOption = "rtt_us",
    hours: HoursOption = 24.0,
    step_s: Annotated[int, typer.Option("--step", min=0, help="Seconds, whole minutes; 0: the platform's choice.")] = 0,
    by_pair: Annotated[bool, typer.Option("--by-pair", help="One line for each pair: the whole time.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show a group over time: all pairs together, or each pair."""
    now = datetime.now(UTC)
    with session(server, token, as_json=as_json) as client:
        found = client.pair_groups.series(
            group_id, metric, start=now - timedelta(hours=hours), until=now, step_ms=step_s * 1000, by_pair=by_pair
        )
    if as_json:
        print_json(found)
    elif not found:
        out.print("no results in this time range")
    elif by_pair:
        for one in found:
            mean = sum(m * n for m, n in zip(one.mean, one.count, strict=True)) / sum(one.count)
            ends = f"{value_words(min(one.minimum), one.unit)} to {value_words(max(one.maximum), one.unit)}"
            out.print(
                f"{one.source_node} to {one.destination_node}: mean {value_words(mean, one.unit)}, {ends},"
                f" {sum(one.count)} results",
                markup=False,
            )
    else:
        for line in _lines(found[0]):
            out.print(line, markup=False)


def _lines(one: PairSeries) -> list[str]:
    """A line for each step of all pairs."""
    return [
        f"{local_time(at)}  mean {value_words(one.mean[n], one.unit)}, median of pairs"
        f" {value_words(one.p50[n], one.unit)}, p95 {value_words(one.p95[n], one.unit)},"
        f" {value_words(one.minimum[n], one.unit)} to {value_words(one.maximum[n], one.unit)}; {one.pairs[n]} pairs,"
        f" {one.count[n]} results"
        for n, at in enumerate(one.at)
    ]


@app.command("download")
def download(
    group_id: GroupId,
    target: Annotated[Path, typer.Argument(help="File; .parquet or .csv.")],
    metric: MetricOption = "rtt_us",
    hours: HoursOption = 24.0,
    resolution: Annotated[Resolution, typer.Option()] = Resolution.measurement,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
) -> None:
    """Write the history of a group to a file."""
    if target.suffix not in (".parquet", ".csv"):
        raise typer.BadParameter(f"{target.name} must end in .parquet or .csv")
    now = datetime.now(UTC)
    with session(server, token) as client:
        size_bytes = client.pair_groups.download(
            target, group_id, metric, start=now - timedelta(hours=hours), until=now, resolution=resolution.value
        )
    out.print(f"{target}: {size_bytes} bytes", markup=False)


@app.command("watch")
def watch(
    group_id: GroupId,
    metric: MetricOption = "rtt_us",
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Follow a group: each whole minute of all pairs, until interrupted."""
    with session(server, token, as_json=as_json) as client:
        for one in client.pair_groups.minutes(group_id, metric):
            if as_json:
                print_json(one)
            else:
                for line in _lines(one):
                    out.print(line, markup=False)
