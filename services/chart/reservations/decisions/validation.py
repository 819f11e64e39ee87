"""What an application asked for, checked and made complete: nodes, selector prefixes, interval, rates.

The one place where the values of a request are judged; the gateway's schema knows types, units and spellings. Pure. A
value that cannot be is refused with the name of its field and what would be accepted.
"""

from __future__ import annotations

import difflib
import hashlib
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

from chart.common.ownership import Prefix
from chart.common.rpc_errors import RefusalError, invalid
from chart.common.units import format_bps, rfc3339
from chart.reservations.decisions.admission import SMALLEST_RATE_BPS, Ask
from chart.reservations.decisions.network import Network
from chart.reservations.decisions.reservation import Reservation, kind_of, rank_of, towards, wanted_bps
from chart.reservations.decisions.room import selectors_of
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1.flow_grant_pb2 import FlowSelector, ServiceType
from chart.v1.rate_request_pb2 import RateRequestSpecification, TrafficClass

# Looked up once: to look a name of an enum up costs more than the comparison.
AVAILABLE, GUARANTEED, MAXIMUM, VARIABLE = (
    ServiceType.SERVICE_TYPE_AVAILABLE,
    ServiceType.SERVICE_TYPE_GUARANTEED,
    ServiceType.SERVICE_TYPE_MAXIMUM,
    ServiceType.SERVICE_TYPE_VARIABLE,
)
FOREGROUND, BACKGROUND = TrafficClass.TRAFFIC_CLASS_FOREGROUND, TrafficClass.TRAFFIC_CLASS_BACKGROUND
SERVICES = frozenset(ServiceType.values())
CLASSES = frozenset(TrafficClass.values())
# Greatest rate of the TIA-1039 rate field.
LARGEST_RATE_BPS = 4_290_000_000_000
HORIZON_US = 10 * 365 * 86_400 * 1_000_000
# A start a little in the past is "now": clocks differ, requests take time.
START_GRACE_US = 60_000_000
PORT_PROTOCOLS = {6: "TCP", 17: "UDP", 33: "DCCP", 132: "SCTP"}
MAXIMUM_TAGS = 32
MAXIMUM_TEXT = 1024
MAXIMUM_URL = 2000
MAXIMUM_AVOID = 32
# Prefixes of one end of a request, as many as agents hold (dataplane/agent/grants/decide.h).
MAXIMUM_PREFIXES = 16


@dataclass(frozen=True)
class CheckedRequest:
    """A request that makes sense; `specification` is it as understood."""

    specification: RateRequestSpecification
    selector: FlowSelector
    ask: Ask


class ContradictionError(RefusalError):
    """The fields of a request contradict each other: on no network, under no policy could it be granted."""


def check(asked: RateRequestSpecification, network: Network, now_us: int) -> CheckedRequest:
    """Check a request against itself and the topology; `check_policy` is the rest.

    Raises:
        ContradictionError: its fields do not go together.
        RefusalError: INVALID_ARGUMENT, with the field.
    """
    specification = understood(asked)
    _check_bounds(specification)
    _check_small_fields(specification)
    _check_callback_url(specification.callback_url)
    start_us, end_us = _interval(specification, now_us)
    source_node = node_of(specification.source, "source", network)
    destination_node = node_of(specification.destination, "destination", network)
    if source_node == destination_node:
        raise invalid("destination", f"source and destination are the same node, {source_node}")
    selector = selector_of(specification, network)
    ask = Ask(
        source_node,
        destination_node,
        wanted_bps(specification),
        _least(specification),
        start_us,
        end_us,
        kind_of(specification),
        rank_of(specification),
        _avoided(specification, network, source_node, destination_node),
        towards=towards(selector),
        selectors=selectors_of(selector),
    )
    return CheckedRequest(specification, selector, ask)


def check_changed(asked: Reservation, of_rate: bool, max_guaranteed_bps: int, now_us: int) -> None:
    """Check a request as its owner wants it to become.

    Raises:
        RefusalError: INVALID_ARGUMENT, with the field.
    """
    specification = asked.specification
    _check_small_fields(specification)
    _check_callback_url(specification.callback_url)
    if of_rate:
        _check_agreement(specification)
        _check_bounds(specification)
        check_policy(specification, max_guaranteed_bps)
        if asked.end_us <= max(asked.start_us, now_us):
            raise invalid(
                "end_us", "the end is not after the start, or in the past", "release the request to end it now"
            )
        if asked.end_us != FOREVER_US and asked.end_us > now_us + 2 * HORIZON_US:
            raise invalid("end_us", "more than ten years ahead", "leave it out to keep the rate until released")


def selector_of(specification: RateRequestSpecification, network: Network) -> FlowSelector:
    """The packets that a request is for: of an end that is a node all its addresses and prefixes, as they are now.

    Raises:
        RefusalError: INVALID_ARGUMENT, with the field.
    """
    selector = FlowSelector()
    selector.CopyFrom(specification.selector)
    _check_selector(selector)
    selector.ClearField("source_prefixes")
    selector.ClearField("destination_prefixes")
    source = _prefix(selector, "source_prefix")
    sources = [source] if source else _prefixes(specification.source, "source", network)
    destination = _prefix(selector, "destination_prefix")
    destinations = [destination] if destination else _prefixes(specification.destination, "destination", network)
    selector.source_prefix = sources[0] if len(sources) == 1 else ""
    selector.destination_prefix = destinations[0] if destinations else ""
    if len(sources) > 1:
        selector.source_prefixes[:] = sources
    if len(destinations) > 1:
        selector.destination_prefixes[:] = destinations
    return selector


def node_of(text: str, field: str, network: Network) -> str:
    """The node that an id, an address or a prefix stands for.

    Raises:
        RefusalError: INVALID_ARGUMENT: there is none.
    """
    return _endpoint(text, field, network)[0]


def body_hash(asked: RateRequestSpecification) -> bytes:
    """Fingerprint of a request's body, for idempotency keys."""
    return hashlib.sha256(asked.SerializeToString(deterministic=True)).digest()


def understood(asked: RateRequestSpecification) -> RateRequestSpecification:
    """A request with the service and the class that are meant when they are left out.

    Raises:
        ContradictionError: its fields do not go together.
        RefusalError: INVALID_ARGUMENT, unknown service or class.
    """
    specification = RateRequestSpecification()
    specification.CopyFrom(asked)
    if not specification.service:
        specification.service = GUARANTEED if specification.guaranteed_bps else AVAILABLE
    if not specification.traffic_class:
        specification.traffic_class = FOREGROUND
    _check_agreement(specification)
    return specification


def check_policy(specification: RateRequestSpecification, max_guaranteed_bps: int) -> None:
    """Check a request against the policy of its source: at most this guaranteed rate, 0: no bound.

    Raises:
        RefusalError: INVALID_ARGUMENT, with the field.
    """
    if max_guaranteed_bps and specification.guaranteed_bps > max_guaranteed_bps:
        raise invalid(
            "guaranteed_bps",
            f"policy lets one request have at most {format_bps(max_guaranteed_bps)}",
            f"ask for at most {max_guaranteed_bps} bit/s",
            code="above-policy-maximum",
            floor_bps=SMALLEST_RATE_BPS,
            ceiling_bps=max_guaranteed_bps,
        )


def _contradiction(
    field: str, detail: str, *suggestions: str, floor_bps: int | None = None, ceiling_bps: int | None = None
) -> ContradictionError:
    error = invalid(field, detail, *suggestions, floor_bps=floor_bps, ceiling_bps=ceiling_bps)
    return ContradictionError(error.refusal, error.status)


def _check_agreement(specification: RateRequestSpecification) -> None:
    """Whether the fields go together, whatever the network is."""
    service, traffic_class = specification.service, specification.traffic_class
    if service not in SERVICES:
        raise invalid("service", f"{service} is not a service", "available", "guaranteed", "maximum", "variable")
    if traffic_class not in CLASSES:
        raise invalid("traffic_class", f"there is no class {traffic_class}", "foreground", "background")
    if specification.start_us and specification.end_us and specification.end_us <= specification.start_us:
        raise _contradiction(
            "end_us", "the end must be later than the start", "leave the end out, or state a duration instead"
        )
    if traffic_class == BACKGROUND and service not in (GUARANTEED, VARIABLE):
        raise _contradiction(
            "traffic_class",
            "background takes what foreground leaves, up to a guaranteed rate: it needs service guaranteed or variable",
            'for no guarantee at all ask for foreground and service "available"',
        )
    if traffic_class == BACKGROUND and specification.preemption_priority:
        raise _contradiction(
            "preemption_priority",
            "background requests cannot pre-empt: they have no priority",
            "leave it out",
            ceiling_bps=0,
        )
    _check_rates_agree(specification)


def _check_rates_agree(specification: RateRequestSpecification) -> None:
    service, guaranteed_bps = specification.service, specification.guaranteed_bps
    name = ServiceType.Name(service).removeprefix("SERVICE_TYPE_").lower()
    if service in (GUARANTEED, VARIABLE) and not guaranteed_bps:
        raise _contradiction(
            "guaranteed_bps",
            f"the {name} service needs a rate",
            "for a share of what is free, without a guarantee, ask for service available",
            floor_bps=1,
        )
    if service == MAXIMUM and not specification.maximum_bps:
        raise _contradiction("maximum_bps", "the maximum service needs a maximum rate", floor_bps=1)
    if service not in (GUARANTEED, VARIABLE) and guaranteed_bps:
        raise _contradiction(
            "guaranteed_bps",
            f"the {name} service guarantees no rate",
            "for a guaranteed rate ask for service guaranteed or variable",
            ceiling_bps=0,
        )
    if specification.minimum_bps > guaranteed_bps:
        raise _contradiction(
            "minimum_bps",
            "the minimum is above the requested guaranteed rate",
            ceiling_bps=guaranteed_bps,
        )
    if specification.maximum_bps and specification.maximum_bps < guaranteed_bps:
        raise _contradiction("maximum_bps", "the maximum is below the guaranteed rate", floor_bps=guaranteed_bps)


def _check_bounds(specification: RateRequestSpecification) -> None:
    """Whether the rates are among those that signalling can carry."""
    for name in ("guaranteed_bps", "minimum_bps", "maximum_bps"):
        rate_bps = getattr(specification, name)
        if rate_bps and not SMALLEST_RATE_BPS <= rate_bps <= LARGEST_RATE_BPS:
            raise invalid(
                name,
                f"{rate_bps} bit/s is outside the range of signalling, {SMALLEST_RATE_BPS} to {LARGEST_RATE_BPS} bit/s",
                f"ask for at most {LARGEST_RATE_BPS} bit/s",
                floor_bps=SMALLEST_RATE_BPS,
                ceiling_bps=LARGEST_RATE_BPS,
            )


def _check_callback_url(url: str) -> None:
    if not url:
        return
    if len(url) > MAXIMUM_URL:
        raise invalid("callback_url", f"at most {MAXIMUM_URL} characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = None, None
    plain = all(33 <= ord(character) < 127 for character in url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or not plain or port == 0:
        raise invalid("callback_url", "must be an http or https address", "https://application.example/chart")
    if parts.username is not None or parts.password is not None:
        raise invalid("callback_url", "must not contain a user or password: callbacks are signed instead")


def _least(specification: RateRequestSpecification) -> int:
    """The smallest rate that is worth granting, 0: only all of it. Background takes whatever there is."""
    background = specification.traffic_class == BACKGROUND
    return specification.minimum_bps or (min(SMALLEST_RATE_BPS, specification.guaranteed_bps) if background else 0)


def _avoided(specification: RateRequestSpecification, network: Network, source: str, target: str) -> frozenset[str]:
    if len(specification.avoid) > MAXIMUM_AVOID:
        raise invalid("avoid", f"at most {MAXIMUM_AVOID} nodes and links")
    for one in specification.avoid:
        if one in (source, target):
            raise invalid("avoid", f"{one} is an end of the path")
        if one not in network.nodes and one not in network.links:
            close = difflib.get_close_matches(one, [*network.nodes, *network.links], n=3)
            raise invalid("avoid", f"{one!r} is not a node or link", *close)
    return frozenset(specification.avoid)


def _check_small_fields(specification: RateRequestSpecification) -> None:
    for name, largest in (("preemption_priority", 255), ("delay_priority", 255), ("burst_tolerance", 15)):
        value = getattr(specification, name)
        if value > largest:
            raise invalid(name, f"{value} is above the highest value, {largest}")
    if len(specification.tags) > MAXIMUM_TAGS:
        raise invalid("tags", f"at most {MAXIMUM_TAGS} tags")
    texts = [("description", specification.description)]
    texts += [("tags", text) for pair in specification.tags.items() for text in pair]
    for name, text in texts:
        if len(text) > MAXIMUM_TEXT or "\x00" in text:
            raise invalid(name, f"at most {MAXIMUM_TEXT} characters, and no NUL")


def _interval(specification: RateRequestSpecification, now_us: int) -> tuple[int, int]:
    """Start and end of the request; fills in an end that was stated as a duration."""
    start_us = specification.start_us or now_us
    if start_us < now_us - START_GRACE_US:
        raise invalid("start_us", f"{rfc3339(start_us)} is in the past" if start_us > 0 else "the start is negative")
    if start_us > now_us + HORIZON_US:
        raise invalid("start_us", "more than ten years ahead")
    start_us = max(start_us, now_us)
    forever = "leave it out to keep the rate until it is released"
    if specification.duration_us > HORIZON_US:
        raise invalid("duration_us", "longer than ten years", forever)
    if specification.duration_us and not specification.end_us:
        specification.end_us = start_us + specification.duration_us
    end_us = specification.end_us or FOREVER_US
    if end_us <= now_us:
        raise invalid("end_us", "the end is in the past")
    if specification.end_us > now_us + 2 * HORIZON_US:
        raise invalid("end_us", "more than ten years ahead", forever)
    return start_us, end_us


def _endpoint(text: str, field: str, network: Network) -> tuple[str, Prefix | None]:
    """Node id of a source or destination, and its prefix when it is an address or a prefix rather than a node id."""
    if not text:
        raise invalid(field, f"{field} is missing: a node id, an address or a prefix")
    if text in network.nodes:
        return text, None
    try:
        prefix: Prefix = ipaddress.ip_network(text, strict=False)
    except ValueError:
        close = difflib.get_close_matches(text, network.nodes, n=3) or sorted(network.nodes)[:5]
        raise invalid(field, f"{text!r} is neither a node nor an address", *close, code="unknown-node") from None
    node = network.node_of(prefix)
    if node is None:
        raise invalid(field, f"no node has the address {text}", *sorted(network.nodes)[:5], code="unknown-node")
    return node, prefix


def _prefixes(text: str, field: str, network: Network) -> list[str]:
    """What a source or destination stands for in a selector (none match any): of a node all it has."""
    node, prefix = _endpoint(text, field, network)
    if prefix is not None:
        return [str(prefix)]
    found = [str(one) for one in network.prefixes_of(node)]
    if len(found) > MAXIMUM_PREFIXES:
        raise invalid(
            field,
            f"{node} has {len(found)} separate addresses and prefixes, a request is for at most {MAXIMUM_PREFIXES}",
            f"state the address or prefix that the flow uses, such as {found[0]}",
        )
    return found


def _prefix(selector: FlowSelector, field: str) -> str:
    text: str = getattr(selector, field)
    if not text:
        return ""
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise invalid(f"selector.{field}", f"{text!r} is not a prefix in CIDR notation") from None


def _check_selector(selector: FlowSelector) -> None:
    if selector.protocol > 255:
        raise invalid("selector.protocol", f"{selector.protocol} is not an IP protocol number", "6 (tcp)", "17 (udp)")
    for name in ("source_port", "destination_port"):
        port = getattr(selector, name)
        if port > 65_535:
            raise invalid(f"selector.{name}", f"{port} is not a port")
        if port and not selector.protocol:
            raise invalid("selector.protocol", f"{name} needs a protocol", "tcp", "udp")
        if port and selector.protocol not in PORT_PROTOCOLS:
            raise invalid("selector.protocol", f"protocol {selector.protocol} has no ports", "tcp", "udp")
    if selector.dscp_plus_one > 64:
        raise invalid("selector.dscp_plus_one", f"{selector.dscp_plus_one - 1} is above 63")
    if selector.cgroup_id > FOREVER_US:
        raise invalid("selector.cgroup_id", "no cgroup has that id")
