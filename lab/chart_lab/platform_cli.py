"""`chart platform`: the embedded platform on one machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chart.common.places import repository_root
from chart.maintenance.postgres_server import PostgresUnavailableError
from chart_lab import demo as demonstration
from chart_lab import demo_signals as signals
from chart_lab import demo_trust as trust
from chart_lab import enrolment
from chart_lab.errors import LabError
from chart_lab.experiments.framework import Figure
from chart_lab.network import Lab
from chart_lab.platform.kafka import KafkaUnavailableError
from chart_lab.platform.laboratory import LaboratoryError, client, laboratory
from chart_lab.platform.settings import PlatformSettings
from chart_lab.platform.stack import Platform
from chart_lab.platform.supervisor import SupervisorError

app = typer.Typer(help="Run broker, database and services on this machine.", no_args_is_help=True)
console = Console(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


FAILURES = (SupervisorError, KafkaUnavailableError, PostgresUnavailableError, LaboratoryError, LabError)


def _failed(error: Exception) -> typer.Exit:
    console.print(f"[red]error:[/red] {error}", highlight=False)
    return typer.Exit(1)


def _platform() -> Platform:
    return Platform(PlatformSettings())


@app.command()
def up(as_json: JsonOption = False) -> None:
    """Start the platform and wait until every part is healthy."""
    platform = _platform()
    try:
        with console.status("starting the platform") as status:

            def progress(message: str) -> None:
                status.update(message)
                console.print(f"  [green]✓[/green] {message}")

            platform.up(progress)
    except FAILURES as error:
        raise _failed(error) from error
    if as_json:
        typer.echo(json.dumps({"gateway": platform.settings.gateway_url}))
    else:
        console.print(f"dashboard and REST: [bold]{platform.settings.gateway_url}[/bold]")


@app.command()
def down(
    purge: Annotated[bool, typer.Option(help="Also forget streams and database.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the platform."""
    _platform().down(purge=purge)
    if as_json:
        typer.echo(json.dumps({"stopped": True, "purged": purge}))


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show what runs; exit status 1 when something is not healthy."""
    rows = _platform().status()
    if as_json:
        typer.echo(json.dumps({"programs": [asdict(row) for row in rows]}))
    else:
        table = Table("program", "state", "healthy", "pid", "up", "log")
        for row in rows:
            health = "[green]yes[/green]" if row.healthy else "[red]no[/red]"
            table.add_row(row.name, row.state.lower(), health, str(row.pid or ""), f"{row.uptime_s} s", row.log)
        Console(width=max(100, shutil.get_terminal_size().columns)).print(table)
    if not all(row.healthy for row in rows):
        raise typer.Exit(1)


@app.command("with-lab", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def with_lab(
    topology: Annotated[str, typer.Argument(help="Topology of the lab.")],
    command: Annotated[list[str], typer.Argument(help="Command to run, after --.")],
) -> None:
    """Run a command on the platform with a lab; what this starts for it is taken down afterwards."""
    settings = PlatformSettings()
    try:
        with laboratory(settings, topology, lambda message: console.print(f"  [green]✓[/green] {message}")):
            environment = {**os.environ, "CHART_SERVER": settings.gateway_url}
            code = subprocess.run(command, check=False, env=environment).returncode
    except FAILURES as error:
        raise _failed(error) from error
    raise typer.Exit(code)


@app.command()
def demo(
    keep: Annotated[bool, typer.Option(help="Leave platform and lab running.")] = False,
    duration: Annotated[float, typer.Option(help="Seconds of each transfer.")] = 25.0,
    as_json: JsonOption = False,
) -> None:
    """Sense, ask for a rate, move data with CUBIC, BBR and CHART, ask in band, forge; writes var/demo/report.json."""
    settings = PlatformSettings()

    def progress(message: str) -> None:
        console.print(f"  [green]✓[/green] {message}", highlight=False)

    command = f"chart platform demo --duration {duration:g}"
    try:
        with (
            laboratory(settings, demonstration.TOPOLOGY, progress, keep=keep),
            client(settings) as rest,
        ):
            lab = Lab.load(demonstration.TOPOLOGY, state_dir=settings.state_dir / "lab")
            enrolment.wait_enrolled(lab, trust.ENROLLED_LIMIT_S)
            progress("every node is enrolled and has keys for its neighbours")
            before = trust.checks(settings)
            figures = demonstration.run(rest, settings.state_dir, duration, progress)
            figures += _in_band(settings, lab, progress)
            progress("writing records in the names of nodes that did not write them")
            figures += trust.figures(settings, lab, before)
            values = {figure.name: figure.value for figure in figures}
            tried = values["forged_records_tried"]
            progress(f"{values['forged_records_accepted']} of {tried} forged records were taken by a service")
            progress(signals.security_page(settings, rest, round(values["forged_signals_tried"] or 0)))
            figures.append(_features_by_flag_only())
    except FAILURES as error:
        raise _failed(error) from error
    report = {"command": command, "figures": [asdict(figure) for figure in figures]}
    path = settings.state_dir / "demo" / "report.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
    if as_json:
        typer.echo(json.dumps(report))
    else:
        _print_figures(figures)
        console.print(f"report: {path}")
    if keep:
        console.print(f"dashboard: [bold]{settings.gateway_url}[/bold]   (take it down: make down)")


def _in_band(settings: PlatformSettings, lab: Lab, progress: Callable[[str], None]) -> list[Figure]:
    """Flows that ask inside their own packets, and who forges what they say."""
    ends = (demonstration.SENDER, demonstration.RECEIVER)
    progress("flows that ask for their rate inside their own packets")
    known = demonstration.in_band(lab)
    progress(f"  the rate is known after {known.value or float('nan'):.2f} round trips")
    with signals.capturing(lab, *ends) as capture:
        explained = signals.explain(settings, lab, *ends)
    progress(f"chart explain of one of them:\n{explained}")
    progress("playing its signals again, and altered in every way")
    genuine = [packet.octets for packet in capture.packets() if packet.signal is not None]
    tried, accepted = signals.forge(lab, *ends, genuine)
    progress(f"  {accepted.value} of {tried.value} forged signals were taken by an element")
    free = signals.unauthorised(lab, *ends)
    progress(f"an ask without an authorisation got {(free.value or 0) / 1e6:.1f} Mb/s, the free rate")
    return [known, tried, accepted, free]


def _features_by_flag_only() -> Figure:
    """How many features only an option of a program switches on, as `make lint` counts them (tools/flags.py)."""
    check = [sys.executable, str(repository_root() / "tools" / "flags.py"), "--json"]
    done = subprocess.run(check, capture_output=True, text=True, timeout=60, check=True)
    return Figure("features_by_flag_only", len(json.loads(done.stdout)), "options", "<= 0")


def _print_figures(figures: list[Figure]) -> None:
    table = Table("figure", "value", "goal", "", title="CHART on a link with loss, beside CUBIC and BBR")
    for figure in figures:
        if figure.value is None:
            text = "-"
        elif figure.unit == "bit/s":
            text = f"{figure.value / 1e6:.2f} Mb/s"
        elif figure.unit == "ms":
            text = f"{figure.value:.1f} ms"
        else:
            text = f"{figure.value:.3f}"
        verdict = {True: "[green]met[/green]", False: "[red]missed[/red]", None: ""}[figure.met()]
        table.add_row(figure.name, text, figure.goal or "", verdict)
    Console(width=max(90, shutil.get_terminal_size().columns)).print(table)
