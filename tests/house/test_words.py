"""The word list finds what it should in each kind of text, and nothing in comments, tests or the glossary."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture(scope="module")
def words() -> ModuleType:
    specification = importlib.util.spec_from_file_location("words", TOOLS / "words.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["words"] = module
    specification.loader.exec_module(module)
    return module


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("README.md", "First.\nThe newcomer\n", 2),
        ("docs/a.md", "The offered\nrate\n", 1),
        ("web/src/a.tsx", '// newcomer\nconst title = "The newcomer";\n', 2),
        ("clients/python/chart_client/a.py", 'x = 1  # newcomer\ny = f"{x}: a newcomer"\n', 2),
        ("dataplane/agent/a.c", '/* newcomer */\nputs("the new"\n     "comer, a newcomer");\n', 3),
        ("helm/chart/files/a.yaml", 'summary: "a newcomer"\n', 1),
    ],
)
def test_finds_a_word_in_every_area(words: ModuleType, tmp_path: Path, name: str, text: str, line: int) -> None:
    write(tmp_path, name, text)
    (hit,) = words.hits(tmp_path)
    assert (hit.path, hit.line) == (name, line)
    assert words.count(tmp_path) == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("docs/glossary.md", "newcomer"),
        ("docs/decisions/0001-a-newcomer.md", "newcomer"),
        ("dataplane/agent/a.c", "/* newcomer */ int newcomer; // newcomer\n"),
        ("dataplane/tests/a.c", 'puts("newcomer");\n'),
        ("web/src/a.test.ts", 'it("newcomer");\n'),
        ("services/chart/a.py", "newcomer = 1  # newcomer\n"),
    ],
)
def test_leaves_what_nobody_reads(words: ModuleType, tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, name, text)
    assert words.hits(tmp_path) == []


def test_an_unknown_area_is_refused(words: ModuleType, tmp_path: Path) -> None:
    write(tmp_path, "list.yaml", "- {pattern: a, say: b, in: [nowhere]}\n")
    with pytest.raises(ValueError, match="nowhere"):
        words.read_list(tmp_path / "list.yaml")
