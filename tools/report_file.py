"""A report.json that several commands write figures into, each its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def replace_figures(report: Path, command: str, owned: Callable[[str], bool], more: dict[str, Any]) -> None:
    """Write figures and whatever else one command found into a report, beside the figures of other commands.

    ``owned`` tells the names of the command's own figures, of which only those of ``more`` stay.
    """
    found: dict[str, Any] = json.loads(report.read_text()) if report.exists() else {"command": "", "figures": []}
    commands = [each for each in found["command"].split("; ") if each]
    others = [figure for figure in found["figures"] if not owned(figure["name"])]
    made = {**found, **more, "command": "; ".join(dict.fromkeys([*commands, command]))}
    made["figures"] = [*others, *more["figures"]]
    report.parent.mkdir(parents=True, exist_ok=True)
    report.write_text(json.dumps(made, indent=2) + "\n")
