"""What the registry accepts: pure functions that return an entity in its stored form or refuse it, naming the field.

A link is directed, its id is `<from>:<interface>` and its transmitting node owns it (design: architecture, streams).
"""

from __future__ import annotations

import ipaddress
import re

from chart.common import names
from chart.common.rpc_errors import RefusalError, conflict, invalid
from chart.v1 import policy_pb2, registry_pb2, reservations_pb2, sensing_configuration_pb2, topology_pb2

DEFAULT_POLICY_ID = "default"
LINK_CONTROLLERS = ("nec", "rcp")
MAX_CAPACITY_BPS = 10**13
MAX_DELAY_US = 60 * 10**6
# As an agent takes them.
MAX_ADVICE_PREFIXES = 32
MAX_TAGS = 64
# As an agent takes them.
MAX_EDGES = 64
MAX_EDGE_DEPTH_MS = 65_535
DEFAULT_EDGE_DEPTH_MS = 100
MAX_TEXT = 1000
# Of tunnels' customers, as the tunnels take them.
# 40 kb/s x 2^15 (RFC 4782, table 1).
MAX_QUICK_START_BPS = 1_310_720_000
MAX_CUSTOMERS = 64
MAX_WEIGHT = 10_000
MIN_PERIOD_MS = 100
# What begins the ids of sensing configurations that are made of meshes; nobody else's do.
MESH_PREFIX = "mesh:"
MAX_PERIOD_MS = 30 * 86400 * 1000

# What Linux takes for an interface: up to 15 characters, no slash, no white space; a colon would split the link id.
_INTERFACE = re.compile(r"[^\s/:]{1,15}")
_IDENTITY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:,-]{0,127}")
# As the kernel takes it; "trinity" is what flows with a rate have.
_CONTROL = re.compile(r"(?!trinity$)[a-z0-9_]{1,15}")
_TARGET = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(\d{1,5})")


def check_revision(what: str, identity: str, expected: int, stored: int | None) -> None:
    """Refuse a change that was made to another revision than the stored one; 0 expects nothing.

    Raises:
        RefusalError: ABORTED, with the stored revision.
    """
    if expected and stored is None:
        msg = f"{what} {identity!r} does not exist, so it has no revision {expected}"
        raise conflict(msg)
    if expected and stored != expected:
        msg = f"{what} {identity!r} is at revision {stored}, not {expected}: read it again and repeat the change"
        raise conflict(msg)


def check_label(field: str, value: str) -> None:
    """Refuse what is not a DNS label.

    Raises:
        RefusalError: INVALID_ARGUMENT.
    """
    if not names.is_label(value):
        suggestion = re.sub(r"[^a-z0-9-]+", "-", value.lower()).strip("-")[:63]
        words = "must be a DNS label: 1 to 63 of a-z, 0-9 and -, neither first nor last a -"
        raise invalid(field, f"{field} {value!r} {words}", *([suggestion] if names.is_label(suggestion) else []))


def check_node(field: str, value: str) -> None:
    """Refuse what is not a host name.

    Raises:
        RefusalError: INVALID_ARGUMENT.
    """
    if not names.is_node(value):
        labels = (re.sub(r"[^a-z0-9-]+", "-", label).strip("-")[:63] for label in value.lower().split("."))
        suggestion = ".".join(label for label in labels if label)
        words = "must be a host name: labels of 1 to 63 of a-z, 0-9 and - with dots between, 253 characters at most"
        raise invalid(field, f"{field} {value!r} {words}", *([suggestion] if names.is_node(suggestion) else []))


def node(stated: topology_pb2.Node) -> topology_pb2.Node:
    """A node in its stored form.

    Raises:
        RefusalError: names the field.
    """
    check_node("id", stated.id)
    _check_text("description", stated.description)
    _check_tags(stated.tags)
    stored = topology_pb2.Node()
    stored.CopyFrom(stated)
    for index, address in enumerate(stated.addresses):
        try:
            stored.addresses[index] = str(ipaddress.ip_interface(address))
        except ValueError:
            message = f"{address!r} is not an address in CIDR notation, for example 10.1.0.1/32"
            raise invalid(f"addresses[{index}]", message) from None
    if len(set(stored.addresses)) != len(stored.addresses):
        raise invalid("addresses", "an address is listed twice")
    if stated.sensor_pod_target:
        match = _TARGET.fullmatch(stated.sensor_pod_target)
        if match is None or not 0 < int(match[1]) < 65536:
            message = f"{stated.sensor_pod_target!r} is not host:port, for example 10.254.0.11:18110"
            raise invalid("sensor_pod_target", message)
    if stated.HasField("map_position"):
        for axis in ("x", "y"):
            if not 0 <= getattr(stated.map_position, axis) <= 1:
                raise invalid(f"map_position.{axis}", "must be between 0 (left, top) and 1 (right, bottom)")
    _store_edges(stored)
    return stored


def _store_edges(stored: topology_pb2.Node) -> None:
    if len(stored.edges) > MAX_EDGES:
        raise invalid("edges", f"must be at most {MAX_EDGES} interfaces, are {len(stored.edges)}")
    for index, edge in enumerate(stored.edges):
        at = f"edges[{index}]"
        if not _INTERFACE.fullmatch(edge.interface):
            words = f"{edge.interface!r} is not an interface name: 1 to 15 characters without space, / or :"
            raise invalid(f"{at}.interface", words)
        if any(before.interface == edge.interface for before in stored.edges[:index]):
            raise invalid(f"{at}.interface", f"{edge.interface} is listed twice")
        if edge.aggregate_bps > MAX_CAPACITY_BPS:
            raise invalid(f"{at}.aggregate_bps", f"must be at most {MAX_CAPACITY_BPS} bit/s, is {edge.aggregate_bps}")
        if edge.depth_ms > MAX_EDGE_DEPTH_MS:
            raise invalid(f"{at}.depth_ms", f"must be at most {MAX_EDGE_DEPTH_MS} ms, is {edge.depth_ms}")
        if edge.exceed not in topology_pb2.EdgeExceed.values():
            raise invalid(f"{at}.exceed", "must be remark or drop", "remark", "drop")
        edge.exceed = edge.exceed or topology_pb2.EDGE_EXCEED_REMARK
        edge.depth_ms = edge.depth_ms or DEFAULT_EDGE_DEPTH_MS


def _check_advice(stated: topology_pb2.Link) -> None:
    """What a link tells flows that nobody controls. Raises RefusalError, which names the field."""
    shares = (
        ("quick_start_threshold", stated.quick_start_threshold, "0.9"),
        ("quick_start_share", stated.quick_start_share, "1"),
    )
    for field, share, default in shares:
        if not 0 <= share <= 1:
            raise invalid(field, f"must be between 0 (the default, {default}) and 1, is {share:g}")
    if stated.scone_police and not stated.scone:
        raise invalid("scone_police", "is for links that give advice: set scone as well")
    if len(stated.advice_prefixes) > MAX_ADVICE_PREFIXES:
        words = f"at most {MAX_ADVICE_PREFIXES} prefixes, are {len(stated.advice_prefixes)}"
        raise invalid("advice_prefixes", words)
    for prefix in stated.advice_prefixes:
        try:
            ipaddress.ip_network(prefix, strict=False)
        except ValueError:
            raise invalid("advice_prefixes", f"{prefix!r} is no prefix in CIDR notation, such as 10.4.0.0/16") from None


def link(stated: topology_pb2.Link) -> topology_pb2.Link:
    """A link in its stored form: `from_node` and `interface` are those of the id.

    Raises:
        RefusalError: names the field.
    """
    from_node, colon, interface = stated.id.partition(":")
    if not colon:
        raise invalid("id", f"link id {stated.id!r} must be <from>:<interface>, for example bravo:to-charlie")
    check_node("from_node", from_node)
    if not _INTERFACE.fullmatch(interface):
        raise invalid("interface", f"{interface!r} is not an interface name: 1 to 15 characters without space, / or :")
    for field, actual, expected in (
        ("from_node", stated.from_node, from_node),
        ("interface", stated.interface, interface),
    ):
        if actual and actual != expected:
            raise invalid(field, f"{field} is {actual!r}, but the id {stated.id!r} says {expected!r}", expected)
    check_node("to_node", stated.to_node)
    if stated.to_node == from_node:
        raise invalid("to_node", "a link must lead to another node than it leaves from")
    if stated.capacity_bps > MAX_CAPACITY_BPS:
        words = f"must be at most {MAX_CAPACITY_BPS} bit/s (0: of the interface), is {stated.capacity_bps}"
        raise invalid("capacity_bps", words)
    if stated.delay_us > MAX_DELAY_US:
        raise invalid("delay_us", f"must be at most {MAX_DELAY_US} us, is {stated.delay_us}")
    if not 0 <= stated.admission_share <= 1:
        raise invalid("admission_share", f"must be between 0 (the default, 0.8) and 1, is {stated.admission_share:g}")
    _check_advice(stated)
    _check_tags(stated.tags)
    stored = topology_pb2.Link()
    stored.CopyFrom(stated)
    stored.from_node = from_node
    stored.interface = interface
    stored.capacity_from_interface = stated.capacity_bps == 0
    return stored


def with_reported_capacity(link: topology_pb2.Link, reported_bps: int) -> topology_pb2.Link:
    """The link with what its node reports, when nobody stated a capacity; 0: the node has reported nothing."""
    if not link.capacity_from_interface or not 0 < reported_bps <= MAX_CAPACITY_BPS:
        return link
    filled = topology_pb2.Link()
    filled.CopyFrom(link)
    filled.capacity_bps = reported_bps
    return filled


def keep_reported_capacity(link: topology_pb2.Link, before: topology_pb2.Link) -> topology_pb2.Link:
    """The link with the capacity that its node reported before, when it is still left to the node."""
    if link.capacity_bps or not before.capacity_from_interface:
        return link
    return with_reported_capacity(link, before.capacity_bps)


def policy(stated: policy_pb2.Policy) -> policy_pb2.Policy:
    """A policy in its stored form, without its revision. What a node's policy leaves out follows the default policy,
    which has to say everything.

    Raises:
        RefusalError: names the field.
    """
    check_node("id", stated.id)
    modes = policy_pb2.EnforcementMode
    of_all = stated.id == DEFAULT_POLICY_ID
    if stated.enforcement not in modes.values() or (of_all and not stated.enforcement):
        words = "must be off, observe or enforce" + ("" if of_all else ", or left out to follow the default policy")
        raise invalid("enforcement", words, "off", "observe", "enforce")
    if stated.link_controller not in ("", *LINK_CONTROLLERS):
        message = f"must be one of {', '.join(LINK_CONTROLLERS)}, is {stated.link_controller!r}"
        raise invalid("link_controller", message, *LINK_CONTROLLERS)
    if stated.max_guaranteed_bps > MAX_CAPACITY_BPS:
        raise invalid("max_guaranteed_bps", f"must be at most {MAX_CAPACITY_BPS} bit/s (0: no bound but the links')")
    if stated.quick_start_request_bps > MAX_QUICK_START_BPS:
        message = f"must be at most {MAX_QUICK_START_BPS} bit/s, the highest rate that Quick-Start knows (0: nothing)"
        raise invalid("quick_start_request_bps", message)
    if len(stated.customer_weights) > MAX_CUSTOMERS:
        raise invalid("customer_weights", f"must be at most {MAX_CUSTOMERS} customers")
    for customer, weight in stated.customer_weights.items():
        if not 1 <= len(customer) <= 63:
            raise invalid("customer_weights", "a customer's name has 1 to 63 characters")
        if not 1 <= weight <= MAX_WEIGHT:
            raise invalid(f"customer_weights.{customer}", f"must be between 1 and {MAX_WEIGHT}, is {weight}")
    if stated.default_congestion and not _CONTROL.fullmatch(stated.default_congestion):
        message = f"{stated.default_congestion!r} is not the name of a congestion control, for example bbr"
        raise invalid("default_congestion", message, "cubic", "bbr")
    if stated.ipfix_collector and not _is_endpoint(stated.ipfix_collector):
        message = f"{stated.ipfix_collector!r} is not ADDRESS:PORT or [ADDRESS]:PORT, in numbers"
        raise invalid("ipfix_collector", message)
    stored = policy_pb2.Policy()
    stored.CopyFrom(stated)
    if of_all:
        stored.link_controller = stated.link_controller or LINK_CONTROLLERS[0]
    stored.revision = 0
    return stored


def keep_customer_weights(policy: policy_pb2.Policy, before: policy_pb2.Policy) -> policy_pb2.Policy:
    """The policy with the weights that were in force before."""
    kept = policy_pb2.Policy()
    kept.CopyFrom(policy)
    kept.customer_weights.clear()
    kept.customer_weights.update(before.customer_weights)
    return kept


def check_policy_deletion(identity: str) -> None:
    """Refuse to delete what every node falls back to.

    Raises:
        RefusalError: INVALID_ARGUMENT.
    """
    if identity == DEFAULT_POLICY_ID:
        raise invalid("id", "the default policy cannot be deleted: it holds for every node", "change it instead")


def keep_unsaid(
    policy: policy_pb2.Policy, before: policy_pb2.Policy, request: registry_pb2.PutPolicyRequest
) -> policy_pb2.Policy:
    """The policy with what its request does not say as it was before."""
    kept = policy_pb2.Policy()
    kept.CopyFrom(keep_customer_weights(policy, before) if request.keep_customer_weights else policy)
    if request.keep_default_congestion:
        kept.default_congestion = before.default_congestion
    if request.keep_ipfix_collector:
        kept.ipfix_collector = before.ipfix_collector
    return kept


def default_policy(enforcement: str) -> policy_pb2.Policy:
    """What holds until an operator says otherwise: the mode that this installation begins in, NEC."""
    return policy_pb2.Policy(
        id=DEFAULT_POLICY_ID,
        enforcement=policy_pb2.EnforcementMode.Value(f"ENFORCEMENT_MODE_{enforcement.upper()}"),
        link_controller=LINK_CONTROLLERS[0],
    )


def sensing_configuration(
    stated: sensing_configuration_pb2.SensingConfiguration,
) -> sensing_configuration_pb2.SensingConfiguration:
    """A sensing configuration in its stored form, without its revision.

    Raises:
        RefusalError: names the field.
    """
    if not _IDENTITY.fullmatch(stated.id):
        raise invalid("id", f"{stated.id!r} must be 1 to 128 letters, digits and . _ : , -")
    check_not_of_mesh(stated.id)
    check_node("source_node", stated.source_node)
    check_node("destination_node", stated.destination_node)
    if stated.source_node == stated.destination_node:
        raise invalid("destination_node", "must be another node than source_node")
    try:
        address = str(ipaddress.ip_address(stated.destination_address))
    except ValueError:
        message = f"{stated.destination_address!r} is not an address, for example 10.1.0.2"
        raise invalid("destination_address", message) from None
    check_label("sensor", stated.sensor)
    if not MIN_PERIOD_MS <= stated.period_ms <= MAX_PERIOD_MS:
        message = f"must be between {MIN_PERIOD_MS} and {MAX_PERIOD_MS} ms, is {stated.period_ms}"
        raise invalid("period_ms", message)
    if stated.tolerance_ms > MAX_PERIOD_MS:
        raise invalid("tolerance_ms", f"must be at most {MAX_PERIOD_MS} ms, is {stated.tolerance_ms}")
    if stated.priority > 255:
        raise invalid("priority", f"must be between 0 and 255, is {stated.priority}")
    if stated.valid_until_us < 0:
        raise invalid("valid_until_us", "must be a time since the epoch, or 0 for no end")
    _check_text("owner", stated.owner)
    _check_tags(stated.parameters, field="parameters")
    stored = sensing_configuration_pb2.SensingConfiguration()
    stored.CopyFrom(stated)
    stored.destination_address = address
    stored.mesh = ""
    stored.revision = 0
    return stored


def check_not_of_mesh(identity: str) -> None:
    """Refuse to change a configuration that a mesh keeps.

    Raises:
        RefusalError: INVALID_ARGUMENT.
    """
    if identity.startswith(MESH_PREFIX):
        mesh = identity.split(":")[1]
        raise invalid("id", f"{identity!r} is kept by the mesh {mesh!r}: change the mesh", f"chart mesh show {mesh}")


def node_in_use(identity: str, links: list[str], configurations: list[str]) -> RefusalError | None:
    """The refusal to delete a node that links or sensing configurations name; None when nothing does."""
    if not links and not configurations:
        return None
    users = [f"link {name}" for name in links] + [f"sensing configuration {name}" for name in configurations]
    shown = ", ".join(users[:5]) + (f" and {len(users) - 5} more" if len(users) > 5 else "")
    return RefusalError(
        reservations_pb2.Refusal(
            code="node-in-use",
            detail=f"node {identity!r} is used by {shown}",
            field="id",
            suggestions=[f"delete {user} first" for user in users[:5]],
        )
    )


def unknown_node(field: str, identity: str, known: list[str]) -> RefusalError:
    """The refusal of an entity that names a node nobody stated."""
    refusal = reservations_pb2.Refusal(
        code="unknown-node", detail=f"there is no node {identity!r}", field=field, suggestions=known[:5]
    )
    return RefusalError(refusal)


def _is_endpoint(text: str) -> bool:
    address, _, port = text.rpartition(":")
    try:
        known = ipaddress.ip_address(address.strip("[]") if address.startswith("[") else address)
    except ValueError:
        return False
    bracketed = address.startswith("[") and address.endswith("]")
    return bracketed == (known.version == 6) and port.isdecimal() and 0 < int(port) < 65536


def _check_text(field: str, value: str) -> None:
    if len(value) > MAX_TEXT:
        raise invalid(field, f"must be at most {MAX_TEXT} characters, has {len(value)}")


def _check_tags(tags: object, field: str = "tags") -> None:
    entries = dict(tags)  # type: ignore[call-overload]  # a protobuf map
    if len(entries) > MAX_TAGS:
        raise invalid(field, f"must have at most {MAX_TAGS} entries, has {len(entries)}")
    for name, value in entries.items():
        if not 0 < len(name) <= 100 or len(value) > MAX_TEXT:
            raise invalid(f"{field}.{name[:100]}", f"names have 1 to 100 characters, values at most {MAX_TEXT}")
