"""`chart sensing`, `chart estimate`, `chart snapshot`: measurements and estimates."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from chart_client.commands.common import (
    DestinationOption,
    JsonOption,
    MetricOption,
    ServerOption,
    SourceOption,
    TokenOption,
    local_time,
    out,
    print_all,
    print_json,
    print_table,
    session,
    show_all,
    told,
    value_words,
)
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

sensing = typer.Typer(help="Sensor pods: configurations, single runs, budgets.", no_args_is_help=True)
estimate = typer.Typer(help="Estimates of all pairs from few measurements.", no_args_is_help=True)
snapshot = typer.Typer(help="Snapshots of all pairs at one time.", no_args_is_help=True)

ParameterOption = Annotated[list[str] | None, typer.Option("--parameter", help="name=value of the sensor; repeatable.")]


class Resolution(StrEnum):
    """Length of a roll-up."""

    minute = "minute"
    hour = "hour"


def _parameters(stated: list[str] | None) -> dict[str, str]:
    found = {}
    for text in stated or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{text!r} is not name=value, such as count=10")
        found[name] = value
    return found


# Configurations, single runs, reports


@sensing.command("list")
def list_configurations(
    source: SourceOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List sensing configurations."""
    show_all(
        server,
        token,
        lambda client: client.sensing_configurations.list(source=source),
        ("id", "sensor", "from", "to", "every", "priority", "parameters", "application"),
        lambda item: (
            item.id,
            item.sensor,
            item.source_node,
            f"{item.destination_node} ({item.destination_address})",
            f"{item.period_ms / 1000:g} s",
            item.priority,
            " ".join(f"{name}={value}" for name, value in sorted(item.parameters.items())),
            item.owner,
        ),
        "no sensing configurations",
        as_json=as_json,
    )


@sensing.command("put")
def put_configuration(
    configuration_id: Annotated[str, typer.Argument(metavar="ID")],
    source: Annotated[str, typer.Option("--from", help="Node whose sensor pod measures.")],
    destination: Annotated[str, typer.Option("--to", help="Node at the other end.")],
    address: Annotated[str, typer.Option(help="Address to probe.")],
    sensor: Annotated[str, typer.Option(help="ping, pathchirp, composition, ...")] = "ping",
    period_s: Annotated[float, typer.Option("--period", min=0.1, help="Seconds between two runs.")] = 10.0,
    tolerance_s: Annotated[
        float,
        typer.Option("--tolerance", min=0, help="Reuse a stored result up to this age, seconds; 0: half the period."),
    ] = 0.0,
    priority: Annotated[int, typer.Option(min=0, max=255)] = 0,
    parameter: ParameterOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Set a sensing configuration; the sensor pod merges it with equal measurements."""
    with session(server, token, as_json=as_json) as client:
        stored = client.sensing_configurations.put(
            configuration_id,
            source_node=source,
            destination_node=destination,
            destination_address=address,
            sensor=sensor,
            parameters=_parameters(parameter),
            period_ms=round(period_s * 1000),
            tolerance_ms=round(tolerance_s * 1000),
            priority=priority,
        )
    words = f"{stored.id}: {stored.sensor} from {stored.source_node} to {stored.destination_node}"
    told(stored, words, as_json=as_json)


@sensing.command("delete")
def delete_configuration(
    configuration_id: Annotated[str, typer.Argument(metavar="ID")],
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Remove a sensing configuration; stored results are kept."""
    with session(server, token, as_json=as_json) as client:
        client.sensing_configurations.delete(configuration_id)
    told({"deleted": configuration_id}, f"{configuration_id} is removed; its results are kept", as_json=as_json)


@sensing.command("run")
def run_once(
    source: Annotated[str, typer.Option("--from", help="Node whose sensor pod measures.")],
    destination: Annotated[str, typer.Option("--to", help="Node at the other end.")],
    address: Annotated[str, typer.Option(help="Address to probe.")],
    sensor: Annotated[str, typer.Option(help="ping, pathchirp, ...")] = "ping",
    tolerance_s: Annotated[
        float, typer.Option("--tolerance", min=0, help="Reuse a stored result up to this age, seconds.")
    ] = 0.0,
    priority: Annotated[int, typer.Option(min=0, max=255)] = 0,
    parameter: ParameterOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Run a sensor once, now."""
    with session(server, token, as_json=as_json) as client:
        found = client.sensing.run(
            source,
            destination,
            address,
            sensor,
            parameters=_parameters(parameter),
            tolerance_ms=round(tolerance_s * 1000),
            priority=priority,
        )
    print_all(
        found,
        ("metric", "value"),
        lambda item: (item.metric, item.error or value_words(item.value, item.unit)),
        "the sensor returned no result",
        as_json=as_json,
    )
    if any(item.error for item in found):
        raise typer.Exit(1)


@sensing.command("report")
def report(
    node: Annotated[str, typer.Argument()],
    skips: Annotated[int, typer.Option(min=1, max=10_000, help="Skipped runs to show.")] = 10,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show what a sensor pod measures, merges and skips, and its probing budget on each link."""
    with session(server, token, as_json=as_json) as client:
        found = client.sensing.report(node, skips=skips)
    if as_json:
        print_json(found)
        return
    out.print(f"{found.configurations} configurations, {found.groups} measurements; runs since the start:")
    out.print(f"  started {found.started_runs}, merged {found.merged_runs}, from store {found.answered_from_store}")
    for name, counts in (("skipped", found.skipped_runs), ("delayed", found.delayed_runs)):
        words = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items())) or "none"
        out.print(f"  {name}: {words}", markup=False)
    out.print(f"  start lateness p99 {found.start_lateness_p99_us / 1000:.1f} ms")
    rows = [
        (one.link, format_bps(one.capacity_bps), f"{one.used_bytes} of {one.limit_bytes} B a minute")
        for one in found.links
    ]
    print_table(("link", "capacity", "probes"), rows, "no link was probed")
    skipped = [
        (one.at.astimezone().strftime("%H:%M:%S"), one.group, one.reason, one.detail, str(one.count))
        for one in found.skips
    ]
    print_table(("at", "measurement", "skipped for", "details", "runs"), skipped, "no skipped runs")


# Estimates


@estimate.command("list")
def list_estimates(
    source: SourceOption = None,
    destination: DestinationOption = None,
    metric: MetricOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List estimates of all pairs: value, 90 % interval, method, age."""
    show_all(
        server,
        token,
        lambda client: client.sensing.estimates(source=source, destination=destination, metric=metric),
        ("from", "to", "metric", "value", "90 % interval", "method", "age"),
        lambda item: (
            item.source_node,
            item.destination_node,
            item.metric,
            value_words(item.value, item.unit),
            f"{value_words(item.interval_low, item.unit)} .. {value_words(item.interval_high, item.unit)}",
            item.method,
            f"{item.age_s:.0f} s",
        ),
        "no estimates yet",
        as_json=as_json,
    )


@estimate.command("next")
def next_pairs(
    metric: Annotated[str, typer.Argument(help="Metric, such as rtt_us.")] = "rtt_us",
    count: Annotated[int, typer.Option(min=1, max=1000)] = 10,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List pairs to measure next, most useful first."""
    show_all(
        server,
        token,
        lambda client: client.sensing.next_pairs(metric, count),
        ("from", "to", "reason", "interval width"),
        lambda item: (item.source_node, item.destination_node, item.reason, f"{item.relative_width:.2f}"),
        "no pairs to measure",
        as_json=as_json,
    )


# Snapshots, roll-ups


@snapshot.command("list")
def list_snapshots(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """List snapshots, newest first."""
    show_all(
        server,
        token,
        lambda client: client.snapshots.list(),
        ("id", "taken", "nodes", "rows", "metrics"),
        lambda item: (
            item.id,
            local_time(item.taken_at),
            item.nodes,
            item.rows,
            ", ".join(item.metrics),
        ),
        "no snapshots yet: `chart snapshot take`",
        as_json=as_json,
    )


@snapshot.command("take")
def take_snapshot(server: ServerOption = DEFAULT_SERVER, token: TokenOption = "", as_json: JsonOption = False) -> None:
    """Take a snapshot now."""
    with session(server, token, as_json=as_json) as client:
        taken = client.snapshots.take()
    told(taken, f"{taken.id}: {taken.rows} rows, {taken.nodes} nodes", as_json=as_json)


@snapshot.command("show")
def show_snapshot(
    snapshot_id: Annotated[str, typer.Argument(metavar="[SNAPSHOT]")] = "latest",
    metric: MetricOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show the rows of a snapshot."""
    show_all(
        server,
        token,
        lambda client: client.snapshots.rows(snapshot_id, metric=metric),
        ("from", "to", "metric", "value", "method"),
        lambda item: (
            item.source_node,
            item.destination_node,
            item.metric,
            value_words(item.value, item.unit),
            item.method,
        ),
        "the snapshot is empty",
        as_json=as_json,
    )


@snapshot.command("download")
def download_snapshot(
    target: Annotated[Path, typer.Argument(help="File; .parquet or .csv.")],
    snapshot_id: Annotated[str, typer.Option("--snapshot", help="Id of a snapshot.")] = "latest",
    metric: MetricOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
) -> None:
    """Write a snapshot to a file."""
    if target.suffix not in (".parquet", ".csv"):
        raise typer.BadParameter(f"{target.name} must end in .parquet or .csv")
    with session(server, token) as client:
        size_bytes = client.snapshots.download(target, snapshot_id, metric=metric)
    out.print(f"{target}: {size_bytes} bytes", markup=False)


@snapshot.command("rollups")
def roll_ups(
    source: Annotated[str, typer.Option("--from")],
    destination: Annotated[str, typer.Option("--to")],
    metric: Annotated[str, typer.Option(help="Metric, such as rtt_us.")] = "rtt_us",
    resolution: Annotated[Resolution, typer.Option()] = Resolution.minute,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Show minutes or hours of one path."""
    show_all(
        server,
        token,
        lambda client: client.sensing.roll_ups(source, destination, metric, resolution=resolution.value),
        ("from", "results", "failed", "p50", "p95", "p99", "maximum", "loss"),
        lambda item: (
            item.at.astimezone().strftime("%d %H:%M"),
            item.count,
            item.failed,
            *(f"{value:.6g}" if value is not None else "-" for value in (item.p50, item.p95, item.p99, item.maximum)),
            f"{item.loss_ratio:.2%}" if item.loss_ratio is not None else "-",
        ),
        "no results in this time range",
        as_json=as_json,
    )


@sensing.command("baselines")
def baselines(
    source: SourceOption = None,
    destination: DestinationOption = None,
    metric: MetricOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List baselines: median and spread of each path since its last change."""
    show_all(
        server,
        token,
        lambda client: client.sensing.baselines(source=source, destination=destination, metric=metric),
        ("from", "to", "metric", "median", "spread", "since"),
        lambda item: (
            item.source_node,
            item.destination_node,
            item.metric,
            value_words(item.median, item.unit),
            value_words(item.spread, item.unit),
            local_time(item.since),
        ),
        "no baselines yet",
        as_json=as_json,
    )


@sensing.command("changes")
def path_changes(
    source: SourceOption = None,
    destination: DestinationOption = None,
    metric: MetricOption = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """List lasting changes of paths, newest first."""
    show_all(
        server,
        token,
        lambda client: client.sensing.path_changes(source=source, destination=destination, metric=metric),
        ("at", "from", "to", "metric", "before", "after"),
        lambda item: (
            local_time(item.at),
            item.source_node,
            item.destination_node,
            item.metric,
            value_words(item.before, item.unit),
            value_words(item.after, item.unit),
        ),
        "none",
        as_json=as_json,
    )
