"""`chart apply` and `chart export`: nodes, links, policies and more as a file.

Exit codes: 0 everything is as in the files, 1 something was refused, 2 a file is wrong, 3 with --dry-run: there are
differences.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from chart_client.commands.common import JsonOption, ServerOption, TokenOption, console, out, print_json, session
from chart_client.registry import document
from chart_client.registry import plan as planning
from chart_client.registry.kinds import KIND_OF, KINDS
from chart_client.registry.plan import NotAppliedError, Step
from chart_client.transport import DEFAULT_SERVER
from chart_client.units import format_bps

WRONG_FILE = 2
DIFFERENCES = 3
STDIN = "-"
_SIGNS = {"create": ("+", "green"), "change": ("~", "yellow"), "delete": ("-", "red")}
_DONE = {"create": "created", "change": "changed", "delete": "deleted"}


def apply(
    file: Annotated[list[str], typer.Option("--file", "-f", help="YAML or JSON file, - for stdin; repeatable.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the difference; exit status 3 when there is one.")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Delete what the files do not state, of the kinds that they have.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make nodes, links, policies and more as files state them: `chart apply -f topology.yaml`."""
    try:
        stated = document.read([(name, _text(name)) for name in file])
        with session(server, token, as_json=as_json) as client:
            plan = planning.plan(client.registered, stated, prune=prune)
            if dry_run:
                _show_difference(plan, as_json=as_json)
                raise typer.Exit(DIFFERENCES if plan.steps else 0)
            done = []
            for step in planning.apply(client.registered, stated, plan.steps):
                done.append(step)
                if not as_json:
                    out.print(f"{step.kind.noun} {step.key}: {_DONE[step.action]}", markup=False, soft_wrap=True)
    except NotAppliedError as error:
        _show_refusal(error, as_json=as_json)
        raise typer.Exit(1) from None
    except document.DocumentError as error:
        if as_json:
            print_json({"error": {"detail": "nothing was applied", "faults": error.faults}})
        else:
            console.print(str(error), markup=False, soft_wrap=True)
            console.print("nothing was applied")
        raise typer.Exit(WRONG_FILE) from None
    if as_json:
        print_json({"applied": [step.plain() for step in done], "unchanged": plan.unchanged})
    elif not done:
        out.print(f"everything is as in the files: {plan.counts()}")


def export(
    kind: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this kind ({', '.join(KIND_OF)}); repeatable. Default: what the registry holds."),
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    token: TokenOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write what is registered as a file that `chart apply` takes."""
    unknown = [name for name in kind or () if name not in KIND_OF]
    if unknown:
        raise typer.BadParameter(f"there is no kind {unknown[0]!r}: {', '.join(KIND_OF)}", param_hint="--kind")
    wanted = kind or [one.name for one in KINDS if one.of_registry]
    with session(server, token, as_json=as_json) as client:
        found = planning.export(client.registered, wanted)
    if as_json:
        rows = {
            name: [document.shortened(KIND_OF[name], item) for _, item in sorted(items.items())]
            for name, items in found.items()
        }
        text = json.dumps(rows, indent=2) + "\n"
    else:
        text = document.written(found)
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text)


def _text(name: str) -> str:
    if name == STDIN:
        return sys.stdin.read()
    try:
        return Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise document.DocumentError([f"{name}: cannot be read: {error}"]) from None


def _show_difference(plan: planning.Plan, *, as_json: bool) -> None:
    if as_json:
        print_json({"differences": [step.plain() for step in plan.steps], "unchanged": plan.unchanged})
        return
    for step in plan.steps:
        sign, color = _SIGNS[step.action]
        out.print(f"[{color}]{sign}[/{color}] ", end="")
        out.print(f"{step.kind.noun} {step.key}", markup=False, soft_wrap=True)
        for name, (before, after) in step.fields.items():
            words = {"create": _words(name, after), "delete": _words(name, before)}
            change = f"{_words(name, before)} -> {_words(name, after)}"
            out.print(f"    {name}: {words.get(step.action, change)}", markup=False, soft_wrap=True)
    out.print(plan.counts())


def _words(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if name.endswith("_bps") and isinstance(value, int):
        return f"{value} ({format_bps(value)})"
    return value if isinstance(value, str) and value else json.dumps(value)


def _show_refusal(error: NotAppliedError, *, as_json: bool) -> None:
    def names(steps: list[Step]) -> str:
        return ", ".join(f"{step.kind.noun} {step.key}" for step in steps) or "nothing"

    if as_json:
        problem = error.problem.model_dump(exclude_none=True)
        rows = {"applied": error.done, "not_applied": error.left}
        print_json(
            {"error": {**problem, "detail": str(error)}}
            | {name: [step.plain() for step in steps] for name, steps in rows.items()}
        )
        return
    console.print("[red]refused:[/red] ", end="")
    console.print(str(error), markup=False, soft_wrap=True)
    for text in error.problem.suggestions or ():
        console.print(f"  {text}", markup=False, soft_wrap=True)
    console.print(f"applied:     {names(error.done)}", markup=False, soft_wrap=True)
    console.print(f"not applied: {names(error.left)}", markup=False, soft_wrap=True)
