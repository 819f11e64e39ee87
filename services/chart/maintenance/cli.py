"""`chart platform`: backup, restore, rehearsals and migrations of an installation.

The distribution of the lab adds what starts and stops the platform of one machine (chart_lab.platform_cli).
"""

from __future__ import annotations

import asyncio
import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import psycopg
import sqlalchemy
import typer
from pydantic_settings import BaseSettings, SettingsConfigDict
from rich.console import Console

from chart.common import migrate as migrations
from chart.common.places import repository_root
from chart.common.records import StreamError
from chart.common.settings import BaseServiceSettings
from chart.common.streams import connect
from chart.maintenance import after_restore, backup, retention
from chart.maintenance.postgres_server import PostgresUnavailableError, create_database
from chart.v1 import audit_pb2

app = typer.Typer(help="Run broker, database and services on this machine; back them up.", no_args_is_help=True)
console = Console(stderr=True)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


class LocalDatabase(BaseSettings):
    """Where the local platform's database listens: the environment, or `.env` beside the sources."""

    model_config = SettingsConfigDict(env_prefix="CHART_", env_file=str(repository_root() / ".env"), extra="ignore")

    postgres_port: int = 15432


def _failed(error: Exception) -> typer.Exit:
    console.print(f"[red]error:[/red] {str(error).strip()}", highlight=False)
    return typer.Exit(1)


AdminOption = Annotated[
    str,
    typer.Option(envvar="CHART_DATABASE_ADMIN_URL", help="Administrator's address; default: the local platform's."),
]
KeysOption = Annotated[
    Path | None, typer.Option(help="Folder of the embedded key store; without it keys are in Vault, which has its own.")
]
ProgramsOption = Annotated[
    str,
    typer.Option(
        envvar="CHART_POSTGRES_PROGRAMS",
        help="What runs the server's own pg_dump and pg_restore: `docker exec -i -e PGPASSWORD NAME`; default: this"
        " machine's.",
    ),
]
AuditOption = Annotated[
    str,
    typer.Option(
        help="Kafka with the audit stream, HOST:PORT: what it says was revoked or released after the backup stays so."
    ),
]
BackupArgument = Annotated[Path, typer.Argument(help="Folder that `backup` wrote.", exists=True, file_okay=False)]


def _admin_url(stated: str) -> str:
    return stated or f"postgresql://chart@127.0.0.1:{LocalDatabase().postgres_port}/chart"


@app.command()
def migrate(admin_url: AdminOption = "", as_json: JsonOption = False) -> None:
    """Bring the database up to date; it must run. Without an address: the local platform's, made when missing."""
    try:
        migrations.upgrade(admin_url or create_database(LocalDatabase().postgres_port))
    except (psycopg.Error, sqlalchemy.exc.DBAPIError) as error:
        raise _failed(error) from error
    if as_json:
        typer.echo(json.dumps({"migrated": True}))


@app.command("backup")
def back_up(
    folder: Annotated[Path, typer.Argument(help="Where backups are kept; a new folder is made in it.")],
    keys: KeysOption = None,
    admin_url: AdminOption = "",
    programs: ProgramsOption = "",
) -> None:
    """Back up the database, and the keys of the embedded store, while everything goes on."""
    try:
        made = backup.back_up(_admin_url(admin_url), folder, keys, shlex.split(programs))
    except backup.BackupError as error:
        raise _failed(error) from error
    typer.echo(str(made))


def _tell(outcome: backup.Outcome, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**asdict(outcome), "rows": dict(outcome.rows)}))
        return
    tables, rows = len(outcome.rows), sum(outcome.rows.values())
    console.print(f"{rows} rows in {tables} tables of {outcome.taken_at}, restored in {outcome.seconds:.1f} s")
    if outcome.caught_up is not None:
        words = ", ".join(f"{number} {name}" for name, number in outcome.caught_up.items())
        console.print(f"since then, by the audit stream: {words}")


def _days(kind: str) -> Any:
    return typer.Option(min=1, help=f"Days that {kind} are kept.")


@app.command()
def prune(
    folder: Annotated[Path, typer.Argument(help="Where the files of what is deleted are kept.", file_okay=False)],
    requests: Annotated[int, _days("ended requests with their receipts")] = retention.DEFAULT_DAYS["requests"],
    callbacks: Annotated[int, _days("callbacks that were delivered or given up")] = retention.DEFAULT_DAYS["callbacks"],
    accounts: Annotated[int, _days("accounts, which receipts are signed from,")] = retention.DEFAULT_DAYS["accounts"],
    audits: Annotated[int, _days("audit rows of each service")] = retention.DEFAULT_DAYS["audits"],
    alerts: Annotated[int, _days("alerts that are over")] = retention.DEFAULT_DAYS["alerts"],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what there is and what would go.")] = False,
    admin_url: AdminOption = "",
    as_json: JsonOption = False,
) -> None:
    """Export what is older than the policy to files, then delete it; services continue meanwhile."""
    days = {
        **{"requests": requests, "callbacks": callbacks, "accounts": accounts, "audits": audits, "alerts": alerts},
    }
    try:
        if dry_run:
            _tell_survey(retention.survey(_admin_url(admin_url), days), as_json)
            return
        for one in retention.prune(_admin_url(admin_url), folder, days):
            typer.echo(
                json.dumps({**asdict(one), "file": str(one.file)}) if as_json else f"{one.rows} rows: {one.file}"
            )
    except (psycopg.Error, retention.RetentionError) as error:
        raise _failed(error) from error


def _tell_survey(tables: list[retention.Table], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in tables]))
        return
    for one in tables:
        console.print(
            f"{one.name:28} {one.rows:>12} rows of {one.bytes_per_row} B, {one.over} older than {one.keep_days} d",
            highlight=False,
        )


@app.command()
def restore(
    folder: BackupArgument,
    keys: KeysOption = None,
    admin_url: AdminOption = "",
    programs: ProgramsOption = "",
    audit: AuditOption = "",
    as_json: JsonOption = False,
) -> None:
    """Restore into an empty database, and keys into a new folder; every table's rows are counted."""
    try:
        records = asyncio.run(_audit(audit)) if audit else None
        outcome = backup.restore(folder, _admin_url(admin_url), keys, shlex.split(programs), records)
    except (backup.BackupError, StreamError, TimeoutError) as error:
        raise _failed(error) from error
    _tell(outcome, as_json)
    if records is None:
        console.print(
            "[yellow]warning:[/yellow] without --audit certificates that were revoked, and rates that were released"
            f" after {outcome.taken_at} are valid again: revoke and release them before nodes connect",
            highlight=False,
        )


async def _audit(bootstrap: str) -> list[audit_pb2.AuditRecord]:
    broker = connect(BaseServiceSettings(kafka_bootstrap=bootstrap))
    try:
        return await after_restore.read_audit(broker)
    finally:
        await broker.close()


@app.command()
def drill(folder: BackupArgument, as_json: JsonOption = False) -> None:
    """Rehearse a disaster: restore a backup into a server of its own, count every table, throw it away."""
    try:
        _tell(backup.drill(folder), as_json)
    except (backup.BackupError, PostgresUnavailableError) as error:
        raise _failed(error) from error
