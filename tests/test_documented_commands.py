"""What the documentation tells people to type exists: targets of make, sub-commands of `chart`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from chart_client.cli import build

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "helm").rglob("*.md"))]
# Between back quotes, or at the start of a line of a code block, also behind settings such as KEEP=1.
START = r"(?:`|^|\$ )(?:[A-Z_]+=\S+ )*"
MAKE = re.compile(START + r"make ([a-z][a-z0-9-]*)", re.MULTILINE)
CHART = re.compile(START + r"(?:\.venv/bin/)?chart ([a-z][a-z-]*)(?: ([a-z][a-z-]*))?", re.MULTILINE)


def commands(pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """Each place that gives a command: in code blocks, or between back quotes in running text."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = "\n".join(re.findall(r"^```.*?^```", text, re.MULTILINE | re.DOTALL))
        quoted = "\n".join(re.findall(r"`[^`\n]+`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)))
        for found in pattern.finditer(f"{blocks}\n{quoted}"):
            yield str(page.relative_to(ROOT)), found


@pytest.fixture(scope="module")
def chart() -> Any:
    return typer.main.get_command(build())


def test_every_target_of_make_that_is_told_exists() -> None:
    rules = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "Makefile", *(ROOT / "mk").glob("*.mk")))
    targets = {name for line in re.findall(r"^([a-z][a-z0-9 -]*):(?!=)", rules, re.MULTILINE) for name in line.split()}
    told = [(page, found[1]) for page, found in commands(MAKE)]
    assert len(told) > 20
    assert [(page, name) for page, name in told if name not in targets] == []


def test_every_command_of_chart_that_is_told_exists(chart: Any) -> None:
    told = [(page, found[1], found[2]) for page, found in commands(CHART)]
    assert len(told) > 40
    wrong = []
    for page, name, verb in told:
        command = chart.commands.get(name)
        inner = getattr(command, "commands", None)
        if command is None or (inner and verb and verb not in inner):
            wrong.append(f"{page}: chart {name} {verb or ''}")
    assert wrong == []
