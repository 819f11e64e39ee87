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
features_by_flag_only
    Options of our programs that neither a field of the REST interface reaches nor a fact of the deployment explains
    (tools/flags.py). Until it is 0 more than the ceiling in tools/flags.yaml fail.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import sys
import tokenize
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import flags
import words

ROOT = Path(__file__).resolve().parents[1]
PRODUCTION = ("services/chart", "clients/python/chart_client")
PACKAGES = {"chart": "services", "chart_client": "clients/python"}
AGENT = Path("dataplane/agent")

# The guaranteed rate of a request on its way from POST to the BPF map: files of these folders whose code (not its
# comments or strings) says one of its names. It is `guaranteed_bps` in the body, the messages and the grant,
# `granted_bps` where it is decided, `gr_bps` in the map. Not on the way is what only tells of rates that are in force
# (states, statuses, records, callbacks), and the other ways of a rate into the kernel: in band and the session rules
# that ask there, rate files, offload.
RATE_WAY = ("services/chart/gateway", "services/chart/reservations", "dataplane/agent", "dataplane/bpf")
RATE_FILES_MOST = 22
RATE_NAMES = frozenset({"guaranteed_bps", "granted_bps", "gr_bps"})
NOT_ON_THE_WAY = re.compile(
    r"signal|session|messages_(out|rules)|authority|ratefile|control|report|status|observed|notices|offload|metrics"
)


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


def words_of_python(text: str) -> set[str]:
    """Identifiers, keywords of calls included; no strings, no comments."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def words_of_c(text: str) -> set[str]:
    """Identifiers; no strings, no comments."""
    code = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.DOTALL)
    return set(re.findall(r"[A-Za-z_]\w*", code))


def files_of_the_rate() -> list[Path]:
    """Production files whose code names the guaranteed rate, in the folders of RATE_WAY."""
    found = []
    for path in tracked(*(f"{folder}/*.{end}" for folder in RATE_WAY for end in ("py", "c", "h"))):
        if is_test(path) or "fuzz" in path.parts or NOT_ON_THE_WAY.search("/".join(path.parts[3:]) or path.name):
            continue
        text = (ROOT / path).read_text()
        if RATE_NAMES & (words_of_python(text) if path.suffix == ".py" else words_of_c(text)):
            found.append(path)
    return found


def main() -> int:
    """Exit status: 0 every goal is met, 1 not."""
    parser = argparse.ArgumentParser(description="Count what the source tree looks like.")
    parser.add_argument("--out", type=Path, default=ROOT / "var/house/report.json")
    parser.add_argument("--list", action="store_true", help="also print the files that were counted")
    arguments = parser.parse_args()
    python = [path for path in tracked("*.py") if path.suffix == ".py"]
    production = [path for path in python if str(path).startswith(PRODUCTION) and not is_test(path)]
    bench = [path for path in python if path.is_relative_to("lab/chart_lab") or is_test(path)]
    circles = in_circles(python_imports(production)) + in_circles(rooms_included(AGENT))
    rate = files_of_the_rate()
    banned = words.hits(ROOT)
    features, ceiling = flags.read()
    figures = [
        {"name": "production_python_lines", "value": lines(production), "unit": "lines", "goal": None},
        {"name": "bench_python_lines", "value": lines(bench), "unit": "lines", "goal": None},
        {"name": "circular_imports", "value": len(circles), "unit": "modules", "goal": "<= 0"},
        {"name": "files_rate_post_to_map", "value": len(rate), "unit": "files", "goal": f"<= {RATE_FILES_MOST}"},
        {"name": "banned_words", "value": len(banned), "unit": "places", "goal": "<= 0"},
        {"name": "features_by_flag_only", "value": len(features.by_flag_only), "unit": "options", "goal": "<= 0"},
    ]
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    report = {"command": "make lint", "figures": [{**figure, "peer": None} for figure in figures]}
    arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    for figure in figures:
        print(f"house: {figure['name']} {figure['value']}" + (f" (goal {figure['goal']})" if figure["goal"] else ""))
    listed = (*rate, *features.by_flag_only) if arguments.list else ()
    for what in (*circles, *banned, *features.wrong, *listed):
        print(f"  {what}")
    too_many_flags = len(features.by_flag_only) > ceiling
    return int(bool(circles or banned or features.wrong or len(rate) > RATE_FILES_MOST or too_many_flags))


if __name__ == "__main__":
    sys.exit(main())
