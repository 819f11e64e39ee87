#!/usr/bin/env python3
"""The statement of supported kernels, written from deploy/kernels/supported.json wherever it stands.

    kernels.py [--check]

supported.json is what `make kernel-test RECORD=1` tried last. Without --check this writes the statement into README,
docs/deployment.md, the chart's values and the module that `chart doctor` reads; with it nothing is written, and places
that say something else are named (exit status 1).
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ROOT / "deploy" / "kernels" / "supported.json"
MARKED = re.compile(r"(<!-- kernels: .*? -->\n).*?(<!-- /kernels -->)", re.DOTALL)
OPENING = "<!-- kernels: written by make kernels-statement -->\n"
VALUES_LINE = re.compile(r"^# Kernels of the nodes: .*$", re.M)


def sentence(supported: dict[str, Any]) -> str:
    """The kernels in one sentence."""
    names = [one["kernel"] for one in supported["kernels"]]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"Linux {listed} on x86-64"


def paragraph(supported: dict[str, Any]) -> str:
    """For README."""
    return f"Agents run on {sentence(supported)} ([details](docs/deployment.md#kernel)).\n"


def table(supported: dict[str, Any]) -> str:
    """For docs/deployment.md."""
    rows = ["| Linux | tried | rates in band | after `kill -9` of an agent |", "|---|---|---|---|"]
    for one in supported["kernels"]:
        in_band = "yes" if one["in_band"] else "no: grants and policing only"
        left = "programs stay until the next start or `--cleanup`" if one["keeps_programs"] else "nothing stays"
        rows.append(f"| {one['kernel']} | {one['release']} | {in_band} | {left} |")
    return f"{sentence(supported)}; `make kernel-test` last ran on {supported['tested']}.\n\n" + "\n".join(rows) + "\n"


def module(supported: dict[str, Any]) -> str:
    """For `chart doctor`."""
    listed = "".join(f'    "{one["kernel"]}",\n' for one in supported["kernels"])
    return (
        '"""Kernels that `make kernel-test` tried; written by `make kernels-statement`."""\n\n'
        f"SUPPORTED_KERNELS = (\n{listed})\n"
    )


def between_markers(text: str, content: str) -> str:
    """The text with new content between its two markers."""
    return MARKED.sub(lambda found: OPENING + content + found[2], text)


def statements(supported: dict[str, Any]) -> dict[Path, str]:
    """Every file that names the kernels, as it should be."""
    readme, deployment = ROOT / "README.md", ROOT / "docs" / "deployment.md"
    values = ROOT / "helm" / "chart" / "values.yaml"
    doctor = ROOT / "clients" / "python" / "chart_client" / "commands" / "supported_kernels.py"
    return {
        readme: between_markers(readme.read_text(), paragraph(supported)),
        deployment: between_markers(deployment.read_text(), table(supported)),
        values: VALUES_LINE.sub(
            f"# Kernels of the nodes: {sentence(supported)}; `make kernel-test` tries them.", values.read_text()
        ),
        doctor: module(supported),
    }


def main(arguments: list[str]) -> int:
    """Exit status 0 when every place agrees, or was made to."""
    supported = json.loads(SUPPORTED.read_text())
    wanted = statements(supported)
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    missing = [path for path, text in wanted.items() if sentence(supported) not in text and path.suffix != ".py"]
    if "--check" not in arguments:
        for path in stale:
            path.write_text(wanted[path])
        stale = []
    for path in [*stale, *missing]:
        sys.stderr.write(
            f"{path.relative_to(ROOT)}: does not say which kernels are supported; make kernels-statement\n"
        )
    return 1 if stale or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
