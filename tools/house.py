#!/usr/bin/env python3
"""What the source tree looks like, in figures: `tools/house.py --out var/house/report.json`, part of `make lint`.

production_python_lines, bench_python_lines
    Lines of the Python files of what is installed (services/chart, clients/python/chart_client) and of what only
    measures and tests (lab/chart_lab, every folder `tests`), as `wc -l` counts; generated code is left out.
circular_imports
    Python modules of production that reach themselves by imports, those inside functions and under TYPE_CHECKING
    included, and rooms of dataplane/agent that reach themselves by #include.
files_rate_post_to_map
    Production files that the guaranteed rate of a request passes on its way from POST /v1/rate-requests to the BPF map
    `grants`: see RATE_WAY.
banned_words
    Places where people would read a term that docs/glossary.md replaces (tools/words).
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PRODUCTION = ("services/chart", "clients/python/chart_client")
PACKAGES = {"chart": "services", "chart_client": "clients/python"}


def tracked(*patterns: str) -> list[Path]:
    """Files under version control that match, relative to the root."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return [Path(name) for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def is_test(path: Path) -> bool:
    """Whether a file only tests."""
    return "tests" in path.parts or path.name == "conftest.py"


def lines(paths: Iterable[Path]) -> int:
    """Lines of all files together."""
    return sum((ROOT / path).read_bytes().count(b"\n") for path in paths)


def module_name(path: Path) -> str:
    """The dotted name of a production module."""
    for package, folder in PACKAGES.items():
        if path.is_relative_to(Path(folder) / package):
            parts = path.relative_to(folder).with_suffix("").parts
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    raise ValueError(path)


def imported(tree: ast.AST, module: str, is_package: bool, known: Collection[str]) -> Iterator[str]:
    """Dotted names that a module imports, wherever in it; of a package's module only that, not the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")[: None if is_package else -1]
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            name = ".".join(part for part in (base, node.module or "") if part)
            for alias in node.names:
                inside = f"{name}.{alias.name}"
                yield inside if inside in known else name


def python_imports(paths: Iterable[Path]) -> dict[str, set[str]]:
    """Which production module imports which; a package and its modules are different things."""
    named = {module_name(path): path for path in paths}
    return {
        module: {
            found
            for found in imported(ast.parse((ROOT / path).read_text()), module, path.name == "__init__.py", named)
            if found in named and found != module
        }
        for module, path in named.items()
    }


def rooms_included(agent: Path) -> dict[str, set[str]]:
    """Which room of the agent includes headers of which other."""
    rooms = {folder.name for folder in (ROOT / agent).iterdir() if folder.is_dir()} - {"tests", "fuzz"}
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for path in tracked(f"{agent}/*.c", f"{agent}/*.h"):
        room = path.relative_to(agent).parts[0]
        if room in rooms:
            named = re.findall(r'^#include "([a-z_]+)/', (ROOT / path).read_text(), re.MULTILINE)
            found[room] |= {other for other in named if other in rooms and other != room}
    return found


def in_circles(graph: Mapping[str, set[str]]) -> list[str]:
    """What reaches itself."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting.extend(graph.get(node, ()))
        return seen

    return sorted(node for node in graph if node in reached(node))
