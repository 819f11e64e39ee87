"""What every sub-command shares: options, output for people or as JSON, errors as words and exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from chart_client.client import Client
from chart_client.errors import ChartError, ProblemError, UnreachableError
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps, parse_rate

M = TypeVar("M", bound=BaseModel)

# Without emoji: the id of a link is "a:x", and ":x:" in a sentence is not meant as a picture.
console = Console(stderr=True, highlight=False, emoji=False)
out = Console(highlight=False, emoji=False)

ServerOption = Annotated[
    str, typer.Option("--server", envvar="CHART_SERVER", help="Base address of the gateway.", show_default=True)
]
TokenOption = Annotated[
    str,
    typer.Option(
        "--token", envvar="CHART_TOKEN", help="Bearer token; fetched automatically from a local development platform."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


SourceOption = Annotated[str | None, typer.Option("--from", help="Only from this node.")]
DestinationOption = Annotated[str | None, typer.Option("--to", help="Only to this node.")]
MetricOption = Annotated[str | None, typer.Option(help="Metric, such as rtt_us.")]


class Rate(int):
    """A rate option: bits per second."""


def rate_option(text: str) -> Rate:
    """Parser of rate options."""
    try:
        return Rate(parse_rate(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def weight_of(text: str) -> tuple[str, int]:
    """CUSTOMER=WEIGHT.

    Raises:
        typer.BadParameter: it does not read so.
    """
    name, _, weight = text.rpartition("=")
    if not name or not weight.isdecimal():
        raise typer.BadParameter(f"{text!r} must be CUSTOMER=WEIGHT, such as gold=3")
    return name, int(weight)


def tag_of(text: str) -> tuple[str, str]:
    """NAME=VALUE.

    Raises:
        typer.BadParameter: it does not read so.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} must be NAME=VALUE, such as site=lab")
    return name, value


def value_words(value: float | None, unit: str) -> str:
    """A measured value with its unit."""
    if value is None:
        return "-"
    return format_bps(value) if unit == "bps" else f"{value:.6g} {unit}".rstrip()


def local_time(moment: datetime, timespec: str = "seconds") -> str:
    """A time in the local time zone."""
    return moment.astimezone().isoformat(" ", timespec)


@contextmanager
def session(
    server: str = DEFAULT_SERVER,
    token: str = "",
    *,
    as_json: bool = False,
    option_of: Mapping[str, str] | None = None,
) -> Iterator[Client]:
    """A client; its errors are printed on stderr (as JSON on stdout) with exit status 1. ``option_of``: the option that
    states a field, which refusals name then.
    """
    with reported(as_json=as_json, option_of=option_of), Client(server, token or None) as client:
        yield client


def show_one(
    server: str, token: str, fetch: Callable[[Client], M], words: Callable[[M], None], *, as_json: bool
) -> None:
    """Fetch one object and print it as text or JSON."""
    with session(server, token, as_json=as_json) as client:
        found = fetch(client)
    if as_json:
        print_json(found)
    else:
        words(found)


def show_all(
    server: str,
    token: str,
    fetch: Callable[[Client], Iterable[M]],
    columns: Sequence[str],
    row: Callable[[M], Sequence[object]],
    empty: str,
    *,
    as_json: bool,
) -> list[M]:
    """Fetch several objects and print them as a table (`empty` when there is none) or as JSON."""
    with session(server, token, as_json=as_json) as client:
        found = list(fetch(client))
    print_all(found, columns, row, empty, as_json=as_json)
    return found


def print_all(
    found: Sequence[M],
    columns: Sequence[str],
    row: Callable[[M], Sequence[object]],
    empty: str,
    *,
    as_json: bool,
) -> None:
    """Print several objects as a table or as JSON."""
    if as_json:
        print_json(found)
    else:
        print_table(columns, [row(one) for one in found], empty)


def told(stored: object, words: str, *, as_json: bool) -> None:
    """Print the result of a command: all of it as JSON, or one line of text."""
    if as_json:
        print_json(stored)
    else:
        out.print(words, markup=False)


@contextmanager
def reported(*, as_json: bool = False, option_of: Mapping[str, str] | None = None) -> Iterator[None]:
    """Print errors of the client and exit with status 1."""
    try:
        yield
    except ProblemError as error:
        if as_json:
            typer.echo(json.dumps({"error": error.problem.model_dump(exclude_none=True)}))
        else:
            option = (option_of or {}).get(error.problem.field or "")
            detail = f"{option}: {error.problem.detail}" if option else error.problem.detail
            console.print(f"[red]{error.problem.title or 'refused'}:[/red] ", detail, markup=True, sep="")
            _print_bounds(error)
        raise typer.Exit(1) from error
    except ChartError as error:
        if as_json:
            typer.echo(json.dumps({"error": {"detail": str(error)}}))
        else:
            console.print("[red]failed:[/red] ", str(error), sep="")
            if isinstance(error, UnreachableError):
                console.print("  is the platform running? `make up` starts it, `chart doctor` checks it")
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _print_bounds(error: ProblemError) -> None:
    problem = error.problem
    is_rate = (problem.field or "").endswith("_bps")
    for name, value in (("at least", problem.floor), ("at most", problem.ceiling)):
        if value is not None:
            console.print(f"  {name} {format_bps(value) if is_rate else f'{value:g}'}")
    for text in problem.suggestions or ():
        console.print("  ", text, sep="")


def dump(value: Any) -> Any:
    """Models as plain data."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [dump(item) for item in value]
    return value


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(dump(value), indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], empty: str) -> None:
    """A table on stdout; a sentence when there are no rows."""
    if not rows:
        out.print(empty)
        return
    table = Table(*columns, header_style="bold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    # Into a file or a pipe go whole lines, however wide.
    (out if out.is_terminal else Console(highlight=False, emoji=False, width=240)).print(table)
