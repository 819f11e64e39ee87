"""Follows docs/install.md as a stranger does: the commands of "Install with compose", in their order, in one shell."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "install.md"
SECTION = "Install with compose"
# What `make compose-test` has done by itself before: images are built, layers decided.
DONE_BEFORE = ("make images",)
LAYERS = "export LAYERS=test"

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)


class PageError(RuntimeError):
    """A command of the page failed, or the page has none."""


def commands(text: str) -> Iterator[str]:
    """The blocks of shell commands of the section, in order."""
    section = re.search(rf"^## {SECTION}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if section is None:
        msg = f"{PAGE.name} has no section {SECTION!r}"
        raise PageError(msg)
    yield from _BLOCK.findall(section[1])


def follow(environment: Mapping[str, str], limit_s: float) -> str:
    """Run the commands; what they print.

    Raises:
        PageError: one failed; with its last words.
    """
    blocks = [block for block in commands(PAGE.read_text(encoding="utf-8")) if block.strip() not in DONE_BEFORE]
    if not any(LAYERS in block for block in blocks):
        msg = f"{PAGE.name} does not say `{LAYERS}` any more"
        raise PageError(msg)
    script = "\n".join(blocks).replace(LAYERS, ": layers were decided")
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", script],
        cwd=PAGE.parents[1],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    if done.returncode:
        msg = f"the commands of {PAGE.name} fail: {(done.stdout + done.stderr).strip()[-3000:]}"
        raise PageError(msg)
    return done.stdout
