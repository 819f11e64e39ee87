"""What to do at the gateway, and what to tell the cluster of it. Pure.

Requests are compared with what is asked whenever something changed: the requests themselves, with their tags, are the
only memory of the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from chart.common.units import format_bps
from chart.rate_controller.asks import Ask, Fault, Key, Object

# Fields of a request that PATCH changes; with another value of the others it is another request.
RATES = ("guaranteed_bps", "minimum_bps", "maximum_bps", "priority")
FLOWS = ("source", "destination", "protocol", "destination_port", "service", "delay_priority")
# Every node confirmed, whatever else there is to say.
CONFIRMED = frozenset({"ENFORCED", "NO_MATCHING_FLOW", "OFF_PATH"})
# On their way to another state: looked at again soon.
PASSING = frozenset({"PENDING", "HELD", "RESERVED"})
WORST_FIRST = ("INVALID", "REFUSED", "FAILED", "PREEMPTED", "DEGRADED", "ASKING", "PENDING")
# Pods that the status of a RateRequest lists; its counts are of all.
LISTED = 50
WORDS = 400


@dataclass(frozen=True)
class Existing:
    """A live request of this cluster."""

    id: str
    key: Key
    namespace: str
    state: str
    granted_bps: int
    words: str
    asked: Mapping[str, Any]

    @classmethod
    def of(cls, document: Object) -> Existing:
        """From what GET /v1/rate-requests says of it."""
        asked = document["request"]
        tags = asked["tags"]
        return cls(
            id=document["id"],
            key=Key(tags.get("kubernetes.from", ""), tags.get("kubernetes.pod-uid", "")),
            namespace=tags.get("kubernetes.namespace", ""),
            state=document["state"],
            granted_bps=document["granted_bps"],
            words=document["reason"] or document["warning"],
            asked=asked,
        )

    @property
    def addresses(self) -> tuple[str, ...]:
        """The pod's address that it was made for."""
        return (self.asked["source"],)


@dataclass
class Plan:
    """What to do, in this order: release, change, create."""

    release: list[Existing] = field(default_factory=list)
    change: list[tuple[Existing, Ask]] = field(default_factory=list)
    create: list[Ask] = field(default_factory=list)
    # Requests that stay or are changed, by what asks for them.
    kept: dict[Key, Existing] = field(default_factory=dict)


def _same(one: Existing, body: Mapping[str, Any], fields: Iterable[str]) -> bool:
    return all((one.asked.get(name) or None) == (body.get(name) or None) for name in fields)


def plan(asks: Mapping[Key, Ask], existing: Iterable[Existing], cluster: str) -> Plan:
    """What makes the requests be what is asked. Of two for the same pod, the one that was made first stays (ids are
    ULIDs, which sort by time).
    """
    made = Plan()
    for one in sorted(existing, key=lambda each: each.id):
        ask = asks.get(one.key)
        if ask is None or one.key in made.kept or not _same(one, ask.body(cluster), FLOWS):
            made.release.append(one)
            continue
        made.kept[one.key] = one
        if not _same(one, ask.body(cluster), RATES):
            made.change.append((one, ask))
    made.create = [ask for key, ask in asks.items() if key not in made.kept]
    return made


@dataclass(frozen=True)
class Refusal:
    """The gateway's last word on what was asked; ``again_s``: when to ask again (the controller's clock)."""

    ask: Ask
    words: str
    tries: int
    again_s: float


@dataclass(frozen=True)
class Outcome:
    """How it stands with one pod: state as the request has it, or REFUSED, INVALID, ASKING."""

    pod: str
    state: str
    granted_bps: int
    words: str
    request_id: str = ""

    @property
    def granted(self) -> bool:
        """Whether there is a request in force with the rate that was asked."""
        return bool(self.request_id) and self.state not in ("PREEMPTED", "DEGRADED", "FAILED", "REFUSED")

    @property
    def enforced(self) -> bool:
        """Whether every node of the path confirmed it."""
        return self.state in CONFIRMED

    def sentence(self) -> str:
        """For people: what was granted and why not."""
        rate = format_bps(self.granted_bps)
        why = f": {self.words}" if self.words else ""
        match self.state:
            case "INVALID" | "REFUSED":
                kept = f"; its request {self.request_id} keeps {rate}" if self.request_id else ""
                return f"no rate{why}{kept}" if not kept else f"the change is refused{why}{kept}"
            case "ASKING":
                return f"the rate is being asked for{why}"
            case "ENFORCED":
                return f"{rate} granted and enforced (request {self.request_id}){why}"
            case _:
                return f"{rate} granted, {self.state} (request {self.request_id}){why}"


def outcomes(
    asks: Mapping[Key, Ask], faults: Iterable[Fault], kept: Mapping[Key, Existing], refused: Mapping[Key, Refusal]
) -> dict[Key, Outcome]:
    """How it stands with everything that is asked for."""
    found: dict[Key, Outcome] = {}
    for key, ask in asks.items():
        one, refusal = kept.get(key), refused.get(key)
        identity, granted_bps = (one.id, one.granted_bps) if one else ("", 0)
        if refusal is not None and refusal.ask == ask:
            found[key] = Outcome(ask.pod, "REFUSED", granted_bps, refusal.words, identity)
        elif one is None:
            found[key] = Outcome(ask.pod, "ASKING", 0, "")
        else:
            found[key] = Outcome(ask.pod, one.state, granted_bps, one.words, identity)
    for fault in faults:
        found[fault.key] = Outcome(fault.pod, "INVALID", 0, fault.words)
    return found


def status(request: Object, found: Mapping[Key, Outcome], now: str, unreachable: str = "") -> dict[str, Any]:
    """The status of a RateRequest. ``now``: RFC 3339; ``unreachable``: why the gateway cannot be asked, if so."""
    about = request["metadata"]
    mine = sorted((one for key, one in found.items() if key.source == about["uid"]), key=lambda one: one.pod)
    granted, enforced = sum(one.granted for one in mine), sum(one.enforced for one in mine)
    before = (request.get("status") or {}).get("conditions") or ()
    if unreachable:
        grants = enforces = ("Unknown", "GatewayUnreachable", unreachable)
        word = "Unknown"
    elif not mine:
        grants = enforces = ("False", "NoPods", "no pod in this namespace is selected by spec.podSelector")
        word = "NoPods"
    else:
        grants = _grade(mine, "Granted", f"{granted} of {len(mine)} pods have the rate", lambda one: one.granted)
        enforces = _grade(mine, "Enforced", f"enforced for {enforced} of {len(mine)} pods", lambda one: one.enforced)
        word = enforces[1]
    return {
        "observedGeneration": about.get("generation", 0),
        "state": word,
        "pods": len(mine),
        "granted": granted,
        "enforced": enforced,
        "requests": [
            {
                "pod": one.pod,
                "state": one.state,
                "grantedRate": format_bps(one.granted_bps),
                "message": one.sentence()[:WORDS],
                **({"id": one.request_id} if one.request_id else {}),
            }
            for one in mine[:LISTED]
        ],
        "conditions": [
            _condition(kind, value, about.get("generation", 0), before, now)
            for kind, value in (("Granted", grants), ("Enforced", enforces))
        ],
    }


def _grade(mine: Sequence[Outcome], yes: str, counted: str, good: Callable[[Outcome], bool]) -> tuple[str, str, str]:
    """Status, reason and message of a condition that asks something of every pod: the reason is what needs somebody's
    hand first, the message has the words of one pod that it is about.
    """
    wrong = [one for one in mine if not good(one)]
    if not wrong:
        return "True", yes, counted
    worst = min(wrong, key=lambda one: WORST_FIRST.index(one.state) if one.state in WORST_FIRST else len(WORST_FIRST))
    return "False", worst.state.title(), f"{counted}; {worst.pod}: {worst.sentence()}"


def _condition(
    kind: str, value: tuple[str, str, str], generation: int, before: Sequence[Object], now: str
) -> dict[str, Any]:
    state, reason, message = value
    known = next((one for one in before if one.get("type") == kind), None)
    since = known["lastTransitionTime"] if known is not None and known["status"] == state else now
    return {
        "type": kind,
        "status": state,
        "reason": reason,
        "message": message[:WORDS],
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def settled(found: Iterable[Outcome]) -> bool:
    """Whether nothing is on its way."""
    return not any(one.state in PASSING or one.state == "ASKING" for one in found)
