"""What pods and RateRequest objects ask for: which flows of which pod, at which rate. Pure."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chart.common.units import parse_rate

Object = Mapping[str, Any]

GROUP = "chart.io"
VERSION = "v1alpha1"
KIND = "RateRequest"
FINALIZER = f"{GROUP}/rate-request"
RATE = f"{GROUP}/egress-rate"
# Annotations of a pod beside its rate, with the field of a RateRequest that says the same.
ANNOTATIONS = {
    f"{GROUP}/destination": "destination",
    f"{GROUP}/protocol": "protocol",
    f"{GROUP}/destination-port": "destinationPort",
    f"{GROUP}/service": "service",
    f"{GROUP}/minimum-rate": "minimumRate",
    f"{GROUP}/maximum-rate": "maximumRate",
    f"{GROUP}/priority": "priority",
    f"{GROUP}/delay-priority": "delayPriority",
}
SERVICES = ("guaranteed", "variable", "maximum", "available")
PROTOCOLS = ("tcp", "udp")
MAX_BPS = 10**15
# The `from` of a request that a pod's annotations ask for.
POD = "pod"


class InvalidError(ValueError):
    """An annotation or a field cannot be read; the words name it and say what would do."""


@dataclass(frozen=True)
class Key:
    """Which request it is: the object that asks (uid of a RateRequest; `POD`), and the pod (uid)."""

    source: str
    pod: str


@dataclass(frozen=True)
class Ask:
    """A rate for one pod's flows; rates in bits per second."""

    key: Key
    namespace: str
    pod: str
    address: str
    destination: str
    protocol: str | None
    destination_port: int | None
    service: str
    guaranteed_bps: int
    minimum_bps: int | None
    maximum_bps: int | None
    priority: int
    delay_priority: int
    # Name of the RateRequest; empty: annotations.
    name: str = ""

    def body(self, cluster: str) -> dict[str, Any]:
        """What POST /v1/rate-requests takes."""
        asked = f"RateRequest {self.namespace}/{self.name}" if self.name else "its annotations"
        return {
            "source": self.address,
            "destination": self.destination,
            "protocol": self.protocol,
            "destination_port": self.destination_port,
            "service": self.service,
            "guaranteed_bps": self.guaranteed_bps,
            "minimum_bps": self.minimum_bps,
            "maximum_bps": self.maximum_bps,
            "priority": self.priority,
            "delay_priority": self.delay_priority,
            "description": f"pod {self.namespace}/{self.pod}, by {asked}"[:500],
            "tags": {
                "kubernetes.cluster": cluster,
                "kubernetes.namespace": self.namespace,
                "kubernetes.pod": self.pod,
                "kubernetes.pod-uid": self.key.pod,
                "kubernetes.from": self.key.source,
            },
        }


@dataclass(frozen=True)
class Fault:
    """What cannot be asked for, and why, in words for people."""

    key: Key
    namespace: str
    pod: str
    words: str


def rate_bps(text: object, where: str) -> int:
    """Bits per second of "50M", "2.5G" or 50000000.

    Raises:
        InvalidError: it is none of these.
    """
    try:
        found = parse_rate(str(text)[:40])
    except ValueError as error:
        raise InvalidError(f"{where}: {error}") from None
    if not 0 < found <= MAX_BPS:
        raise InvalidError(f"{where}: {str(text)[:40]!r} is not between 1 bit/s and 1000 Tbit/s")
    return found


def pod_of(pod: Object) -> tuple[str, str, str]:
    """Namespace, name and uid."""
    about = pod["metadata"]
    return about["namespace"], about["name"], about["uid"]


def sends(pod: Object) -> bool:
    """Whether a pod has, or will have, an address of its own that it sends from."""
    status = pod.get("status") or {}
    return not pod["metadata"].get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed")


def addresses(pod: Object) -> list[str]:
    """The pod's addresses, the first one its cluster's main one; empty: it has none yet."""
    status = pod.get("status") or {}
    listed = [one["ip"] for one in status.get("podIPs") or () if one.get("ip")]
    return listed or [one for one in (status.get("podIP"),) if one]


def selects(selector: Object, labels: Mapping[str, str]) -> bool:
    """Whether a label selector (matchLabels, matchExpressions) selects these labels; an empty one selects all."""
    if any(labels.get(name) != value for name, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(one, labels) for one in selector.get("matchExpressions") or ())


def _holds(expression: Object, labels: Mapping[str, str]) -> bool:
    name, operator, values = expression["key"], expression["operator"], expression.get("values") or ()
    match operator:
        case "In":
            return labels.get(name) in values
        case "NotIn":
            return labels.get(name) not in values
        case "Exists":
            return name in labels
        case _:
            return name not in labels


def annotated(pod: Object) -> dict[str, Any] | None:
    """What a pod's annotations ask for, as the spec of a RateRequest; None: nothing."""
    known = pod["metadata"].get("annotations") or {}
    if RATE not in known:
        return None
    return {"rate": known[RATE]} | {name: known[one] for one, name in ANNOTATIONS.items() if one in known}


def _annotation(field: str) -> str:
    return RATE if field == "rate" else next(one for one, name in ANNOTATIONS.items() if name == field)


def of_spec(spec: Object, pod: Object, key: Key, name: str = "") -> Ask | None:
    """What a spec asks for a pod; None: the pod has no address yet.

    Raises:
        InvalidError: what is wrong.
    """
    namespace, pod_name, _ = pod_of(pod)

    def word(field: str) -> str:
        return f"spec.{field}" if name else f"the annotation {_annotation(field)}"

    def number(field: str, least: int, most: int) -> int | None:
        value = spec.get(field)
        if value is None:
            return None
        text = str(value).strip()
        if not text.isdecimal() or not least <= int(text) <= most:
            raise InvalidError(f"{word(field)} is {text[:40]!r}; state a number from {least} to {most}")
        return int(text)

    def one_of(field: str, allowed: tuple[str, ...]) -> str | None:
        value = spec.get(field)
        if value is not None and value not in allowed:
            raise InvalidError(f"{word(field)} is {str(value)[:40]!r}; state one of {', '.join(allowed)}")
        return value

    def optional_rate(field: str) -> int | None:
        return rate_bps(spec[field], word(field)) if spec.get(field) is not None else None

    guaranteed_bps = rate_bps(spec.get("rate", ""), word("rate"))
    destination = str(spec.get("destination", "")).strip()
    if not destination:
        raise InvalidError(f"{word('destination')} is missing; state the id of a node, an address or a prefix")
    service = one_of("service", SERVICES) or "variable"
    if service in ("maximum", "available"):
        # There the rate is an upper bound: nothing of it is guaranteed.
        bound_bps, guaranteed_bps = guaranteed_bps, 0
    else:
        bound_bps = None
    if (pod.get("spec") or {}).get("hostNetwork"):
        raise InvalidError("the pod uses its node's network: its flows cannot be told from the node's own")
    known = addresses(pod)
    if not known:
        return None
    return Ask(
        key=key,
        namespace=namespace,
        pod=pod_name,
        address=_of_family(known, destination),
        destination=destination,
        protocol=one_of("protocol", PROTOCOLS),
        destination_port=number("destinationPort", 1, 65535),
        service=service,
        guaranteed_bps=guaranteed_bps,
        minimum_bps=optional_rate("minimumRate"),
        maximum_bps=bound_bps or optional_rate("maximumRate"),
        priority=number("priority", 0, 255) or 0,
        delay_priority=number("delayPriority", 0, 255) or 0,
        name=name,
    )


def _of_family(known: list[str], destination: str) -> str:
    """The address that a pod uses towards a destination: of its IP version, if it has one; else its main one."""
    version = _version(destination)
    return next((one for one in known if version and _version(one) == version), known[0])


@functools.lru_cache(maxsize=4096)
def _version(text: str) -> int:
    try:
        return ipaddress.ip_network(text, strict=False).version
    except ValueError:
        return 0


def asked(pods: Iterable[Object], requests: Iterable[Object]) -> tuple[dict[Key, Ask], list[Fault]]:
    """Everything that pods and RateRequests ask for now, and what of it cannot be asked for."""
    asks: dict[Key, Ask] = {}
    faults: list[Fault] = []
    live = [pod for pod in pods if sends(pod)]
    in_namespace: dict[str, list[Object]] = {}
    for pod in live:
        in_namespace.setdefault(pod["metadata"]["namespace"], []).append(pod)
    for key, spec, pod, name in _pairs(live, requests, in_namespace):
        try:
            ask = of_spec(spec, pod, key, name)
        except InvalidError as error:
            namespace, pod_name, _ = pod_of(pod)
            faults.append(Fault(key, namespace, pod_name, str(error)))
            continue
        if ask is not None:
            asks[key] = ask
    return asks, faults


def _pairs(
    live: list[Object], requests: Iterable[Object], in_namespace: Mapping[str, list[Object]]
) -> Iterator[tuple[Key, Object, Object, str]]:
    """Every pod with what is asked for it: key, spec, pod, name of the RateRequest (empty: annotations)."""
    for pod in live:
        spec = annotated(pod)
        if spec is not None:
            yield Key(POD, pod["metadata"]["uid"]), spec, pod, ""
    for request in requests:
        about = request["metadata"]
        if about.get("deletionTimestamp"):
            continue
        for pod in in_namespace.get(about["namespace"], ()):
            if selects(request["spec"]["podSelector"], pod["metadata"].get("labels") or {}):
                yield Key(about["uid"], pod["metadata"]["uid"]), request["spec"], pod, about["name"]
