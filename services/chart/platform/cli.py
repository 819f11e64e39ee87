"""`chart platform`: the embedded platform on one machine."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chart.platform.kafka import KafkaUnavailableError
from chart.platform.postgres import PostgresUnavailableError
from chart.platform.settings import PlatformSettings
from chart.platform.stack import Platform
from chart.platform.supervisor import SupervisorError

app = typer.Typer(help="Run broker, database and services on this machine.", no_args_is_help=True)
console = Console(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


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
    except (SupervisorError, KafkaUnavailableError, PostgresUnavailableError) as error:
        console.print(f"[red]platform:[/red] {error}", markup=True, highlight=False)
        raise typer.Exit(1) from error
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


@app.command()
def migrate(as_json: JsonOption = False) -> None:
    """Bring the database up to date; the platform's database must run."""
    _platform().migrate()
    if as_json:
        typer.echo(json.dumps({"migrated": True}))
