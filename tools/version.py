#!/usr/bin/env python3
"""One version for everything: the file VERSION, written wherever a version stands.

    version.py [--check]

Without --check this writes the version into the distributions, the Helm chart, the dashboard and the gateway; with it
nothing is written, and places with another version are named (exit status 1).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# A file, the text before its version, the text after it; the first place in the file counts.
PLACES = (
    ("services/pyproject.toml", '\nversion = "', '"'),
    ("clients/python/pyproject.toml", '\nversion = "', '"'),
    ("lab/pyproject.toml", '\nversion = "', '"'),
    ("services/chart/gateway/api.py", '\nVERSION = "', '"'),
    ("helm/chart/Chart.yaml", "\nversion: ", "\n"),
    ("helm/chart/Chart.yaml", '\nappVersion: "', '"'),
    ("web/package.json", '\n  "version": "', '"'),
    ("web/package-lock.json", '\n  "version": "', '"'),
    ("web/package-lock.json", '\n      "version": "', '"'),
    ("web/openapi.json", '"version": "', '"'),
)


def written(text: str, before: str, after: str, version: str) -> str | None:
    """The text with the version in its place; None: there is no such place."""
    place = re.compile(f'({re.escape(before)})[^"\\n]*({re.escape(after)})')
    if not place.search(text):
        return None
    return place.sub(lambda found: found[1] + version + found[2], text, count=1)


def main() -> int:
    """Write or compare."""
    version = (ROOT / "VERSION").read_text().strip()
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        sys.stderr.write(f"version: VERSION holds {version!r}, expected three numbers such as 1.2.3\n")
        return 1
    wrong = []
    for name, before, after in PLACES:
        path = ROOT / name
        text = path.read_text()
        changed = written(text, before, after, version)
        if changed is None:
            wrong.append(f"{name}: nothing like {before.strip()}{version} is in it")
        elif changed != text and "--check" in sys.argv[1:]:
            wrong.append(f"{name}: another version than {version} of VERSION: make version")
        elif changed != text:
            path.write_text(changed)
    for line in wrong:
        sys.stderr.write(f"version: {line}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
