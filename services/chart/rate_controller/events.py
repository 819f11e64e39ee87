"""Events of pods and RateRequests: what `kubectl describe` shows of a rate below the object."""

from __future__ import annotations

import hashlib
from typing import Any

from chart.common.kubernetes import ApiServer, ConflictError
from chart.rate_controller.asks import GROUP, KIND, POD, VERSION, Ask, Fault
from chart.rate_controller.decisions import CONFIRMED, PASSING, Outcome

MESSAGE = 1000
WARNINGS = frozenset({"REFUSED", "INVALID", "FAILED", "PREEMPTED", "DEGRADED", "OFF_PATH", "NO_MATCHING_FLOW"})


def worth_telling(outcome: Outcome) -> bool:
    """Whether an outcome is one to tell of: not those that last a moment."""
    return outcome.state in CONFIRMED | WARNINGS and outcome.state not in PASSING


def event(about: Ask | Fault, outcome: Outcome, now: str, kinds: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Namespace and event of an outcome; the same one has the same name. ``kinds``: names of RateRequests by uid."""
    warning = outcome.state in WARNINGS
    reason = "Rate" + outcome.state.title().replace("_", "")
    message = outcome.sentence()[:MESSAGE]
    of_pod = about.key.source == POD
    name = about.pod if of_pod else kinds.get(about.key.source, "")
    if not of_pod:
        message = f"pod {about.pod}: {message}"[:MESSAGE]
    digest = hashlib.sha256(f"{about.key} {reason} {message}".encode()).hexdigest()[:16]
    return about.namespace, {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name[:200]}.{digest}", "namespace": about.namespace},
        "involvedObject": {
            "apiVersion": "v1" if of_pod else f"{GROUP}/{VERSION}",
            "kind": "Pod" if of_pod else KIND,
            "namespace": about.namespace,
            "name": name,
            "uid": about.key.pod if of_pod else about.key.source,
        },
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "source": {"component": "chart-rate-controller"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


async def tell(api: ApiServer, namespace: str, document: dict[str, Any]) -> None:
    """Write an event, or count it again.

    Raises:
        KubernetesError: the API server does not take it.
    """
    path = f"/api/v1/namespaces/{namespace}/events"
    try:
        await api.ask("POST", path, document)
    except ConflictError:
        name = document["metadata"]["name"]
        known = await api.ask("GET", f"{path}/{name}")
        again = {"count": known.get("count", 1) + 1, "lastTimestamp": document["lastTimestamp"]}
        await api.ask("PATCH", f"{path}/{name}", again)
