"""What the compose test asks of compose.observability.yml: Prometheus scrapes every service and node, has every alert
of the chart and evaluates it, answers the query of every dashboard's panel, and the collector gets traces.

Grafana is not asked: where its image cannot be pulled it is left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import httpx
import yaml

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "helm" / "chart" / "files" / "alerts.yaml"
DASHBOARDS = ROOT / "helm" / "chart" / "files" / "dashboards"
SCRAPED = ROOT / "deploy" / "compose" / "prometheus.yml"
# Two scrapes and two evaluations of 15 s, on a machine that does more.
SETTLE_LIMIT_S = 120.0
# What the collector's debug exporter writes for a batch of traces.
BATCH = '"otelcol.signal": "traces"'

Facts = dict[str, tuple[float, str, str]]


class ObservabilityError(RuntimeError):
    """What Prometheus or the collector lacks."""


Target = tuple[str, str]


def services_wanted(configuration: str) -> set[Target]:
    """Job and HOST:PORT of every service that prometheus.yml scrapes."""
    jobs = yaml.safe_load(configuration)["scrape_configs"]
    return {
        (job["job_name"], target)
        for job in jobs
        for static in job.get("static_configs", [])
        for target in static["targets"]
    }


def nodes_wanted(configuration: str, nodes: Iterable[str]) -> set[Target]:
    """Job and name of every agent and sensor pod of nodes that it scrapes."""
    jobs = yaml.safe_load(configuration)["scrape_configs"]
    return {(job["job_name"], node) for job in jobs if "file_sd_configs" in job for node in nodes}


def targets_down(wanted: set[Target], answer: dict[str, Any]) -> dict[str, str]:
    """Those of them that are not scraped, each with why; from the answer of /api/v1/targets."""
    found = {(one["labels"]["job"], one["labels"]["instance"]): one for one in answer["data"]["activeTargets"]}
    return {
        " ".join(target): found[target]["lastError"] or found[target]["health"] if target in found else "is not known"
        for target in wanted
        if target not in found or found[target]["health"] != "up"
    }


def rules_wrong(wanted: set[str], answer: dict[str, Any]) -> dict[str, str]:
    """Rules that are not there or fail, each with why; from the answer of /api/v1/rules."""
    found = {rule["name"]: rule for group in answer["data"]["groups"] for rule in group["rules"]}
    return {
        name: found[name].get("lastError") or found[name]["health"] if name in found else "is not loaded"
        for name in wanted
        if name not in found or found[name]["health"] != "ok"
    }


def rules_wanted() -> set[str]:
    """Alerts and recorded series of the chart."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule.get("alert") or rule["record"] for group in groups for rule in group["rules"]}


def queries(dashboard: dict[str, Any]) -> list[str]:
    """What the panels of a dashboard ask."""
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]


def _until_empty(complaints: Callable[[], dict[str, str]], what: str) -> None:
    """Return when there is no complaint any more.

    Raises:
        ObservabilityError: the last ones.
    """
    end = time.monotonic() + SETTLE_LIMIT_S
    while found := complaints():
        if time.monotonic() > end:
            msg = f"{what} after {SETTLE_LIMIT_S:.0f} s: {found}"
            raise ObservabilityError(msg)
        time.sleep(1)


def figures(prometheus: str, collected: Callable[[], str], nodes: Iterable[str]) -> Facts:
    """Value, unit and goal by name. ``prometheus``: its address; ``collected``: what the collector has written;
    ``nodes``: which were enrolled.

    Raises:
        ObservabilityError: something is not there, or does not work.
        httpx.HTTPError: Prometheus does not answer.
    """
    configuration = SCRAPED.read_text(encoding="utf-8")
    services, on_nodes = services_wanted(configuration), nodes_wanted(configuration, nodes)
    rules = rules_wanted()
    with httpx.Client(base_url=f"{prometheus}/api/v1", timeout=10) as rest:

        def ask(path: str, **query: str) -> dict[str, Any]:
            answer: dict[str, Any] = rest.get(path, params=query).raise_for_status().json()
            return answer

        _until_empty(lambda: targets_down(services | on_nodes, ask("/targets")), "Prometheus does not scrape all")
        _until_empty(lambda: rules_wrong(rules, ask("/rules")), "Prometheus does not evaluate all rules")
        asked = refused = with_data = 0
        for path in sorted(DASHBOARDS.glob("*.json")):
            for query in queries(json.loads(path.read_text(encoding="utf-8"))):
                asked += 1
                answer = rest.get("/query", params={"query": query})
                refused += answer.is_error
                with_data += bool(answer.is_success and answer.json()["data"]["result"])
    _until_empty(lambda: {} if BATCH in collected() else {"collector": "no batch of traces"}, "no traces")
    return {
        "prometheus_targets_up": (len(services), "services", f"= {len(services)}"),
        "prometheus_node_targets_up": (len(on_nodes), "agents and sensor pods", f"= {len(on_nodes)}"),
        "prometheus_rules_ok": (len(rules), "rules", f"= {len(rules)}"),
        "dashboard_queries_tried": (asked, "queries", ">= 1"),
        "dashboard_queries_refused": (refused, "queries", "= 0"),
        "dashboard_queries_with_data": (with_data, "queries", ">= 1"),
    }
