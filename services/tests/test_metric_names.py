"""How metrics are named, in the whole source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "chart"
METRIC_KINDS = {"Counter", "Gauge", "Histogram", "Summary", "Info", "Enum"}
# The unit, or what is counted; "total" for counters. Base units, as Prometheus wants them, and bit/s for rates.
METRIC_NAME = re.compile(r"chart_[a-z]+(?:_[a-z0-9]+)+")
COUNTER_END = "_total"
UNIT_ENDS = ("_seconds", "_bytes", "_bps", "_bits_per_second", "_ratio", "_info", "_timestamp_seconds", "_percent")
ABBREVIATED = re.compile(r"_(ms|us|ns|secs?|kb|mb|kbps|mbps)(_total)?$")


def modules() -> Iterator[Path]:
    for path in sorted(SOURCES.rglob("*.py")):
        if "v1" not in path.relative_to(SOURCES).parts:
            yield path


def metrics() -> Iterator[tuple[Path, str, str]]:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            kind = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            name = node.args[0]
            if kind in METRIC_KINDS and isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield path, kind, name.value


def test_metrics_are_named_by_service_noun_and_unit() -> None:
    found = list(metrics())
    assert found
    wrong = []
    for path, kind, name in found:
        where = f"{path.relative_to(SOURCES)}: {kind} {name}"
        if not METRIC_NAME.fullmatch(name):
            wrong.append(f"{where}: must be chart_<service>_<noun>_<unit>")
        if (kind == "Counter") != name.endswith(COUNTER_END):
            wrong.append(f"{where}: counters, and only they, end in {COUNTER_END}")
        if kind in ("Histogram", "Summary") and not name.endswith(UNIT_ENDS):
            wrong.append(f"{where}: must end in a unit, one of {', '.join(UNIT_ENDS)}")
        if ABBREVIATED.search(name):
            wrong.append(f"{where}: use base units (seconds, bytes) or bps")
    assert not wrong, "\n".join(wrong)


def test_metrics_are_made_once() -> None:
    names = [name for _, _, name in metrics()]
    assert sorted(names) == sorted(set(names))
