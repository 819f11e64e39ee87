"""tools/include-order: rooms of C sources include only rooms before them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "include-order"
ROOMS = ("core", "grants", "control")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for room in (*ROOMS, "tests"):
        (tmp_path / room).mkdir()
    (tmp_path / "core" / "loop.h").write_text("#include <stdint.h>\n")
    (tmp_path / "grants" / "decide.c").write_text('#include "core/loop.h"\n#include "grants/decide.h"\n')
    (tmp_path / "tests" / "test_loop.c").write_text('#include "control/control.h"\n')
    return tmp_path


def complaints(folder: Path) -> tuple[int, str]:
    done = subprocess.run([sys.executable, str(TOOL), str(folder), *ROOMS], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_an_order_that_is_kept_is_silent(sources: Path) -> None:
    assert complaints(sources) == (0, "")


@pytest.mark.parametrize(
    ("include", "complaint"),
    [
        ('# include "control/control.h"', "core comes before control and may not include control/control.h"),
        ('#include "other.h"', "other.h is included without its room"),
    ],
)
def test_what_breaks_the_order_is_named(sources: Path, include: str, complaint: str) -> None:
    (sources / "core" / "other.h").touch()
    (sources / "core" / "loop.c").write_text(f"{include}\n")

    status, text = complaints(sources)

    assert status == 1
    assert complaint in text


def test_every_room_has_a_place(sources: Path) -> None:
    (sources / "paths").mkdir()
    (sources / "control").rmdir()

    status, text = complaints(sources)

    assert status == 1
    assert "paths: a room that has no place in the order" in text
    assert "control: no such room" in text
