"""What the shell offers after a TAB: besides commands and options, what the platform knows.

The gateway is asked for a second at most, and whatever goes wrong offers nothing: a shell must not hang or complain
while somebody types.
"""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Callable, Iterable

import typer

from chart_client.client import Client
from chart_client.errors import ChartError
from chart_client.transport import DEFAULT_SERVER

TIMEOUT_S = 1.0
MOST = 100

Offered = list[tuple[str, str]]


def words() -> list[str]:
    """The words before the one that is being completed, without the command's own name."""
    line = os.environ.get("_TYPER_COMPLETE_ARGS")
    if line is None:
        line = os.environ.get("COMP_WORDS", "")
        before = int(os.environ.get("COMP_CWORD", "0") or 0)
    else:
        before = len(line.split()) - (not line.endswith(" "))
    try:
        return shlex.split(line)[1:before]
    except ValueError:  # a quote that is still open
        return line.split()[1:before]


def completing() -> bool:
    """Whether a shell asks what may follow."""
    return "_CHART_COMPLETE" in os.environ


def _ask(context: typer.Context, incomplete: str, fetch: Callable[[Client], Iterable[tuple[str, str]]]) -> Offered:
    server = context.params.get("server") or DEFAULT_SERVER
    try:
        with Client(server, context.params.get("token") or None, timeout_s=TIMEOUT_S, tries=1) as client:
            return [one for one in itertools.islice(fetch(client), MOST) if one[0].startswith(incomplete)]
    except (ChartError, ValueError):
        return []


def requests(context: typer.Context, incomplete: str) -> Offered:
    """Ids of rate requests, newest first."""
    return _ask(
        context,
        incomplete,
        lambda client: (
            (one.id, f"{one.lifecycle} {one.request.source} to {one.request.destination}")
            for one in client.rate_requests.list()
        ),
    )


def nodes(context: typer.Context, incomplete: str) -> Offered:
    """Ids of nodes."""
    return _ask(context, incomplete, lambda client: ((one.id, one.description) for one in client.nodes.list()))


def services(incomplete: str) -> Offered:
    """Services that can be asked for."""
    offered = [
        ("available", "the available rate of the path"),
        ("guaranteed", "the rate, no more and no less"),
        ("maximum", "the rate, on links that may be oversubscribed"),
        ("variable", "at least the rate, plus the available rate"),
    ]
    return [one for one in offered if one[0].startswith(incomplete)]
