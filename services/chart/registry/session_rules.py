"""What the registry accepts as a session rule, and those that exist from the start: pure functions.

Brassil et al., The CHART System, section 4: what is asked for a flow follows from an explicit request or from a rule
over addresses, ports, protocol and code point. Every session that a rule matches asks for itself, in band.
"""

from __future__ import annotations

import ipaddress

from chart.common.rpc_errors import RefusalError, invalid
from chart.registry.service import MAX_CAPACITY_BPS, MAX_TAGS, MAX_TEXT, check_label
from chart.v1 import reservations_pb2
from chart.v1.flow_grant_pb2 import ServiceType
from chart.v1.session_rule_pb2 import PortRange, SessionClass, SessionRule, SessionSelector

TCP, UDP = 6, 17
MAX_PORT = 65_535
MAX_DSCP = 63
MAX_SELECTORS = 16
MAX_NODES = 1000
MAX_DELAY_CLASS = 7
MAX_PRIORITY = 255
MAX_BURST_TOLERANCE = 15
# The least rate but 0 that a signal can carry.
MIN_BPS = 1000

# Code points: EF (RFC 3246) for voice, AF41 (RFC 4594) for video; RTP's registered port.
_EXPEDITED, _VIDEO = 46, 34
_RTP = PortRange(first=5004, last=5004)

# Telephony: 160 octets of G.711 every 20 ms with their headers, before everything else. Video: a picture of 720 lines,
# more when there is room. Both stand ready and are enabled by an operator.
BUILT_IN = (
    SessionRule(
        id="telephony",
        name="Telephony",
        session_class=SessionClass.SESSION_CLASS_VOICE,
        selectors=[
            SessionSelector(protocol=UDP, dscp_plus_one=_EXPEDITED + 1),
            SessionSelector(protocol=UDP, remote_ports=_RTP),
        ],
        service=ServiceType.SERVICE_TYPE_GUARANTEED,
        guaranteed_bps=82_000,
        delay_class=6,
        authorised=True,
        built_in=True,
    ),
    SessionRule(
        id="video",
        name="Video",
        session_class=SessionClass.SESSION_CLASS_VIDEO,
        selectors=[SessionSelector(protocol=UDP, dscp_plus_one=_VIDEO + 1)],
        service=ServiceType.SERVICE_TYPE_VARIABLE,
        guaranteed_bps=2_000_000,
        available_bps=6_000_000,
        delay_class=3,
        burst_tolerance=7,
        authorised=True,
        built_in=True,
    ),
)
BUILT_IN_IDS = frozenset(rule.id for rule in BUILT_IN)

# Which of the two rates a service has: the guaranteed one, the available one.
_RATES = {
    ServiceType.SERVICE_TYPE_AVAILABLE: (False, True),
    ServiceType.SERVICE_TYPE_GUARANTEED: (True, False),
    ServiceType.SERVICE_TYPE_MAXIMUM: (False, True),
    ServiceType.SERVICE_TYPE_VARIABLE: (True, True),
}


def session_rule(stated: SessionRule) -> SessionRule:
    """A session rule in its stored form, without its revision.

    Raises:
        RefusalError: names the field.
    """
    check_label("id", stated.id)
    if len(stated.name) > MAX_TEXT:
        raise invalid("name", f"must be at most {MAX_TEXT} characters, has {len(stated.name)}")
    if stated.session_class == 0 or stated.session_class not in SessionClass.values():
        raise invalid("session_class", "must be voice, video or data", "voice", "video", "data")
    stored = SessionRule()
    stored.CopyFrom(stated)
    if not 1 <= len(stated.selectors) <= MAX_SELECTORS:
        raise invalid("selectors", f"must be 1 to {MAX_SELECTORS}, are {len(stated.selectors)}")
    for index, selector in enumerate(stored.selectors):
        _normalise(selector, f"selectors[{index}]")
    _check_rates(stated)
    for field, value, most in (
        ("delay_class", stated.delay_class, MAX_DELAY_CLASS),
        ("preemption_priority", stated.preemption_priority, MAX_PRIORITY),
        ("burst_tolerance", stated.burst_tolerance, MAX_BURST_TOLERANCE),
    ):
        if value > most:
            raise invalid(field, f"must be between 0 and {most}, is {value}")
    _check_nodes(stated)
    stored.built_in = stated.id in BUILT_IN_IDS
    stored.revision = 0
    return stored


def built_in_stays(identity: str) -> RefusalError | None:
    """The refusal to delete a rule that exists from the start; None for any other."""
    if identity not in BUILT_IN_IDS:
        return None
    return RefusalError(
        reservations_pb2.Refusal(
            code="built-in-rule",
            detail=f"the session rule {identity!r} is built in and cannot be deleted",
            field="id",
            suggestions=["disable it: no session asks by it then"],
        )
    )


def _normalise(selector: SessionSelector, place: str) -> None:
    """Bring a selector to its stored form, in place."""
    if selector.protocol not in (0, TCP, UDP):
        raise invalid(f"{place}.protocol", "must be tcp, udp or any", "tcp", "udp", "any")
    if selector.dscp_plus_one > MAX_DSCP + 1:
        raise invalid(f"{place}.dscp", f"must be between 0 and {MAX_DSCP}")
    for name in ("local_ports", "remote_ports"):
        ports: PortRange = getattr(selector, name)
        if not 0 < ports.first <= ports.last <= MAX_PORT and (ports.first or ports.last):
            message = f"must be ports from 1 to {MAX_PORT}, the first before the last"
            raise invalid(f"{place}.{name}", message, "5004", "16384-32767")
        if not ports.last:
            selector.ClearField(name)
    families = set()
    for name in ("local_prefix", "remote_prefix"):
        prefix = getattr(selector, name)
        if not prefix:
            continue
        try:
            network = ipaddress.ip_network(prefix, strict=False)
        except ValueError:
            raise invalid(f"{place}.{name}", f"{prefix!r} is no prefix, for example 10.1.0.0/16") from None
        setattr(selector, name, str(network))
        families.add(network.version)
    if len(families) > 1:
        raise invalid(f"{place}.remote_prefix", "must be of the same address family as local_prefix")
    if selector == SessionSelector():
        raise invalid(place, "must name a protocol, ports, a prefix or a DSCP: this one matches every session")


def _check_rates(stated: SessionRule) -> None:
    if stated.service not in _RATES:
        names = ("available", "guaranteed", "maximum", "variable")
        raise invalid("service", f"must be one of {', '.join(names)}", *names)
    service = ServiceType.Name(stated.service).removeprefix("SERVICE_TYPE_").lower()
    wanted = dict(zip(("guaranteed_bps", "available_bps"), _RATES[stated.service], strict=True))
    for field, has in wanted.items():
        rate_bps = getattr(stated, field)
        if has and not MIN_BPS <= rate_bps <= MAX_CAPACITY_BPS:
            message = f"the service {service} asks for {MIN_BPS} to {MAX_CAPACITY_BPS} bit/s, this is {rate_bps}"
            raise invalid(field, message, floor_bps=MIN_BPS, ceiling_bps=MAX_CAPACITY_BPS)
        if not has and rate_bps:
            raise invalid(field, f"must be 0 for the service {service}, is {rate_bps}")


def _check_nodes(stated: SessionRule) -> None:
    if len(stated.nodes) > MAX_NODES:
        raise invalid("nodes", f"must be at most {MAX_NODES}, are {len(stated.nodes)}")
    for index, node in enumerate(stated.nodes):
        check_label(f"nodes[{index}]", node)
    if len(set(stated.nodes)) != len(stated.nodes):
        raise invalid("nodes", "a node is named twice")
    if len(stated.node_tags) > MAX_TAGS:
        raise invalid("node_tags", f"must be at most {MAX_TAGS}, are {len(stated.node_tags)}")
    for name, value in stated.node_tags.items():
        if not 0 < len(name) <= 64 or len(value) > 256:
            raise invalid(f"node_tags.{name[:64]}", "names have 1 to 64 characters, values at most 256")
