"""Finds words that people should not get to read: those of banned-words.yaml, in the places of each area.

Areas: documents (README.md, docs/*.md and the READMEs beside the parts; not docs/glossary.md, which lists the words,
and not docs/decisions, which are records of their day), interface (texts of the dashboard), commands (every string of
the Python distributions: help, messages, problem documents, descriptions of the API, docstrings), programs (strings
of the C programs and their manual pages), alerts (alert rules and dashboards of the Helm chart). Comments and tests
do not count.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

LIST = Path(__file__).with_name("banned-words.yaml")
NOT_READ = {"docs/glossary.md", "web/src/api/schema.d.ts"}

_COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"'`])//[^\n]*", re.DOTALL)
_C_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:\s*"(?:[^"\\\n]|\\.)*")*')

# A text and the number of its first line.
Text = tuple[int, str]


@dataclass(frozen=True)
class Word:
    """One entry of the list."""

    pattern: re.Pattern[str]
    say: str
    areas: frozenset[str]


@dataclass(frozen=True)
class Hit:
    """A banned word in a file; `line` counts from 1."""

    path: str
    line: int
    found: str
    say: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found!r}: say {self.say}"


def _whole(source: str) -> Iterator[Text]:
    yield 1, source


def _python(source: str) -> Iterator[Text]:
    """Every string; of f-strings the parts that stand as they are."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def _typescript(source: str) -> Iterator[Text]:
    """Everything but comments: texts of elements stand between the tags."""
    yield 1, _COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), source)


def _c(source: str) -> Iterator[Text]:
    """String literals, those beside each other as one."""
    plain = _COMMENT.sub(lambda comment: "\n" * comment.group().count("\n"), source)
    for literal in _C_STRING.finditer(plain):
        text = re.sub(r'"\s*\n\s*"', "\n", literal.group()).replace("\\n", " ")
        yield plain.count("\n", 0, literal.start()) + 1, text


# Area -> patterns of its files and what of them is read.
AREAS: dict[str, list[tuple[str, Callable[[str], Iterator[Text]]]]] = {
    "documents": [("README.md", _whole), ("docs/*.md", _whole), ("*/README.md", _whole)],
    "interface": [("web/src/**/*.ts", _typescript), ("web/src/**/*.tsx", _typescript)],
    "commands": [
        (f"{folder}/**/*.py", _python) for folder in ("services/chart", "clients/python/chart_client", "lab/chart_lab")
    ],
    "programs": [
        *((f"{folder}/**/*.c", _c) for folder in ("dataplane", "sensors", "lab/linkem", "clients/c")),
        ("sensors/man/*.1", _whole),
    ],
    "alerts": [("helm/chart/files/**/*.yaml", _whole), ("helm/chart/files/**/*.json", _whole)],
}


def _spaced(pattern: str) -> re.Pattern[str]:
    """The pattern, with spaces that also match the end of a line."""
    return re.compile(re.sub(r" (?!\?)", r"\\s+", pattern), re.IGNORECASE)


def read_list(path: Path = LIST) -> list[Word]:
    """The list. Raises ValueError when an entry names an unknown area."""
    words = []
    for entry in yaml.safe_load(path.read_text()):
        areas = frozenset(entry.get("in", AREAS))
        if unknown := areas - AREAS.keys():
            raise ValueError(f"{path.name}: {entry['pattern']!r} is for unknown areas: {', '.join(sorted(unknown))}")
        words.append(Word(_spaced(entry["pattern"]), entry["say"], areas))
    return words


def _counts(path: str) -> bool:
    parts = path.split("/")
    return (
        path not in NOT_READ
        and not {"tests", "v1", "node_modules", "third_party"} & set(parts[:-1])
        and ".test." not in parts[-1]
    )


def hits(root: Path, words: list[Word] | None = None) -> list[Hit]:
    """Every banned word below `root`, by file and line."""
    listed = read_list() if words is None else words
    found = set()
    for area, places in AREAS.items():
        banned = [word for word in listed if area in word.areas]
        for glob, texts in places:
            for path in root.glob(glob):
                name = path.relative_to(root).as_posix()
                if not _counts(name):
                    continue
                for first_line, text in texts(path.read_text()):
                    for word in banned:
                        for match in word.pattern.finditer(text):
                            line = first_line + text.count("\n", 0, match.start())
                            found.add(Hit(name, line, " ".join(match.group().split()), word.say))
    return sorted(found, key=lambda hit: (hit.path, hit.line, hit.found))


def count(root: Path) -> int:
    """The figure `banned_words` of the report; 0 is the goal."""
    return len(hits(root))


def main() -> int:
    """Print every hit as file:line; exit status 1 when there is one."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = hits(root)
    for hit in found:
        print(hit)
    if found:
        print(f"words: {len(found)} banned words; docs/glossary.md has the terms", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
