"""The statement of supported kernels is made of one file, and stands wherever kernels are named."""

from __future__ import annotations

from typing import Any

import pytest

import kernels

TRIED: dict[str, Any] = {
    "tested": "2026-01-02",
    "kernels": [
        {"kernel": "6.1", "release": "6.1.0-9", "in_band": False, "keeps_programs": True},
        {"kernel": "6.12", "release": "6.12.3", "in_band": True, "keeps_programs": False},
    ],
}


def test_every_place_says_which_kernels_are_supported() -> None:
    assert kernels.main(["--check"]) == 0


def test_a_place_that_says_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "statements", lambda _: {kernels.ROOT / "README.md": "nothing of kernels"})
    assert kernels.main(["--check"]) == 1


def test_the_table_says_what_a_kernel_lacks() -> None:
    table = kernels.table(TRIED)
    assert table.startswith("Linux 6.1 and 6.12 on x86-64; `make kernel-test` last ran on 2026-01-02.")
    assert (
        "| 6.1 | 6.1.0-9 | no: grants and policing only | programs stay until the next start or `--cleanup` |" in table
    )
    assert "| 6.12 | 6.12.3 | yes | nothing stays |" in table


def test_text_outside_of_the_markers_stays() -> None:
    text = f"before\n{kernels.OPENING}old\n<!-- /kernels -->\nafter\n"
    assert kernels.between_markers(text, "new\n") == text.replace("old", "new")
