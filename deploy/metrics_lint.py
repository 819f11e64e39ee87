"""Every metric that an alert or a dashboard uses is exported by something, and every alert has a runbook.

Looks for names in the sources: Prometheus metrics of the Python services (prometheus_client) and of the C programs
(string literals). Prints what is wrong, one line each; exit status 1 then.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "helm" / "chart" / "files"
RUNBOOKS = ROOT / "docs" / "runbooks.md"
NAME = re.compile(r"\bchart_[a-z0-9_]+\b")
PYTHON_METRIC = re.compile(r"\b(Counter|Gauge|Histogram|Summary)(?:MetricFamily)?\(\s*\"(chart_[a-z0-9_]+)\"")
C_METRIC = re.compile(r"\"(chart_[a-z0-9_]+)\"")
HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def exported() -> set[str]:
    """Names as Prometheus sees them."""
    names: set[str] = set()
    for path in (ROOT / "services" / "chart").rglob("*.py"):
        for kind, name in PYTHON_METRIC.findall(path.read_text(encoding="utf-8")):
            names |= {name + part for part in HISTOGRAM_PARTS} if kind in ("Histogram", "Summary") else {name}
    for path in (ROOT / "dataplane").rglob("*.c"):
        names |= set(C_METRIC.findall(path.read_text(encoding="utf-8")))
    return names


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and the expression."""
    for group in alert_groups():
        for rule in group["rules"]:
            yield f"alerts.yaml, {rule.get('alert') or rule.get('record')}", rule["expr"]
    for path in sorted((FILES / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            for target in panel.get("targets", []):
                yield f"{path.name}, {panel['title']}", target["expr"]


def alert_groups() -> list[dict[str, list[dict[str, str]]]]:
    """The groups of rules."""
    groups: list[dict[str, list[dict[str, str]]]] = yaml.safe_load((FILES / "alerts.yaml").read_text(encoding="utf-8"))[
        "groups"
    ]
    return groups


def complaints() -> Iterator[str]:
    """What is wrong."""
    known = exported()
    for where, expression in expressions():
        for name in NAME.findall(expression):
            if name not in known:
                yield f"{where}: nobody exports {name}"
    headings = set(re.findall(r"^## (\S+)", RUNBOOKS.read_text(encoding="utf-8"), re.MULTILINE))
    alerts = {rule["alert"] for group in alert_groups() for rule in group["rules"] if "alert" in rule}
    for alert in sorted(alerts - headings):
        yield f"docs/runbooks.md has no section {alert}"
    for heading in sorted(headings - alerts):
        yield f"docs/runbooks.md: there is no alert {heading}"


def main() -> int:
    """The command line; no arguments."""
    found = list(complaints())
    for line in found:
        sys.stderr.write(f"metrics: {line}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
