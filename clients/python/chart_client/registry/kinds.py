"""The kinds of things that a file states, one entry of `KINDS` each. Their order is the order in which they are made:
what names another comes after it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from chart_client.registry.node_ends import FieldError, Item, edge, overlay, proxied_traffic, tunnel_end
from chart_client.resource import path_of

FieldType = Literal[
    "text",
    "integer",
    "rate",
    "share",
    "number",
    "limits",
    "flag",
    "texts",
    "text map",
    "integer map",
    "position",
    "edges",
    "ends",
    "proxied",
    "overlay",
]
# Field at fault, kind and id of what an item names.
Reference = tuple[str, str, str]
REQUIRED = object()


@dataclass(frozen=True)
class Field:
    """A field of the body that states an item."""

    type: FieldType
    default: Any = REQUIRED

    @property
    def required(self) -> bool:
        """Whether it has to be stated."""
        return self.default is REQUIRED


@dataclass(frozen=True)
class Kind:
    """One kind: the key in a file, which is the collection over REST too, and what an item of it consists of."""

    name: str
    noun: str
    fields: Mapping[str, Field]
    identity: tuple[str, ...] = ("id",)
    # The item as it is stored, from one that is complete. Raises FieldError.
    stored: Callable[[Item], Item] = lambda item: item
    references: Callable[[Item], Iterator[Reference]] = lambda _: iter(())
    # Whether a listed item is one that was stated in this way.
    listed: Callable[[Item], bool] = lambda _: True
    # Whether it is stated for good: what is not is neither exported nor pruned.
    lasting: Callable[[Item], bool] = lambda _: True
    # Ids that are never deleted.
    permanent: frozenset[str] = frozenset()
    # Parts of the path of an item, from its identity.
    path: Callable[[tuple[str, ...]], tuple[str, ...]] = lambda identity: identity
    # Whether an export without a choice has it: what the registry holds.
    of_registry: bool = True

    def key(self, item: Mapping[str, Any]) -> str:
        """The id of an item, as people write it."""
        return " ".join(str(item[name]) for name in self.identity)

    def address(self, item: Mapping[str, Any]) -> str:
        """The path of an item over REST."""
        return path_of(self.name, *self.path(tuple(str(item[name]) for name in self.identity)))

    def body(self, item: Mapping[str, Any]) -> Item:
        """What is sent for an item."""
        return {name: item[name] for name in self.fields}

    def complete(self, stated: Mapping[str, Any]) -> Item:
        """A stated item with the defaults of what it leaves out, as it will be stored.

        Raises:
            FieldError: a value cannot be stored.
        """
        defaults = {name: one.default for name, one in self.fields.items() if not one.required}
        return self.stored({**defaults, **stated})


def _node(item: Item) -> Item:
    found = []
    for address in item["addresses"]:
        try:
            found.append(str(ipaddress.ip_interface(address)))
        except ValueError:
            words = f"{address!r} is no address in CIDR notation, such as 10.1.0.1/32"
            raise FieldError("addresses", words) from None
    return {
        **item,
        "addresses": found,
        "edges": [edge(one) for one in item["edges"]],
        "tunnel_ends": [tunnel_end(one) for one in item["tunnel_ends"]],
        "proxied_traffic": proxied_traffic(item["proxied_traffic"]),
        "overlay": overlay(item["overlay"]),
    }


def _ends_of_link(item: Item) -> Iterator[Reference]:
    yield "id", "nodes", str(item["id"]).partition(":")[0]
    yield "to_node", "nodes", item["to_node"]


def _policy(item: Item) -> Item:
    """The default policy says everything, the control law too."""
    if item["id"] == "default" and item["link_controller"] is None:
        return {**item, "link_controller": "nec"}
    return item


def _platform(item: Item) -> Item:
    if item["id"] != "platform":
        raise FieldError("id", f"the settings of the platform have the id platform, not {item['id']!r}")
    limits = item["application_limits"]
    if limits is None:
        return item
    for owner, one in limits.items():
        wrong = next((name for name in one if name not in _LIMITS), None) if isinstance(one, dict) else ""
        if wrong is not None:
            words = f"{owner}: has no field {wrong!r}" if wrong else f"{owner}: must be fields"
            raise FieldError("application_limits", f"{words}: {', '.join(_LIMITS)}")
    complete = {owner: {name: one.get(name) for name in _LIMITS} for owner, one in limits.items()}
    return {**item, "application_limits": complete}


def _node_of_policy(item: Item) -> Iterator[Reference]:
    if item["id"] != "default":
        yield "id", "nodes", item["id"]


def _configuration(item: Item) -> Item:
    try:
        address = str(ipaddress.ip_address(item["destination_address"]))
    except ValueError:
        words = f"{item['destination_address']!r} is no address, such as 10.1.0.2"
        raise FieldError("destination_address", words) from None
    return {**item, "destination_address": address, "valid_until": _utc(item["valid_until"])}


def _utc(moment: str | None) -> str | None:
    """A time as the gateway writes it."""
    if moment is None:
        return None
    try:
        read = datetime.fromisoformat(moment)
    except ValueError as error:
        raise FieldError("valid_until", str(error)) from None
    if read.tzinfo is None:
        raise FieldError("valid_until", f"{moment!r} has no time zone")
    return read.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _ends_of_configuration(item: Item) -> Iterator[Reference]:
    yield "source_node", "nodes", item["source_node"]
    yield "destination_node", "nodes", item["destination_node"]


def _hop(item: Item) -> Item:
    try:
        return {**item, "prefix": str(ipaddress.ip_network(item["prefix"]))}
    except ValueError as error:
        raise FieldError("prefix", str(error)) from None


TAGS = Field("text map", {})
_LIMITS = ("configurations", "priority", "period_ms", "one_shots_per_minute", "probe_share")
_NUMBERS_OF_PLATFORM = (
    "oversubscription",
    "lease_idle_share",
    "lease_greatest_share",
    "snapshot_period_s",
    "probe_share",
    "inference_fraction",
    "inference_active_valid_s",
)

KINDS: tuple[Kind, ...] = (
    Kind(
        "nodes",
        "node",
        {
            "description": Field("text", ""),
            "addresses": Field("texts", []),
            "sensor_pod_target": Field("text", ""),
            "tags": TAGS,
            "map_position": Field("position", None),
            "edges": Field("edges", []),
            "tunnel_ends": Field("ends", []),
            "proxied_traffic": Field("proxied", proxied_traffic({})),
            "overlay": Field("overlay", overlay({"member": False})),
        },
        stored=_node,
    ),
    Kind(
        "links",
        "link",
        {
            "to_node": Field("text"),
            "capacity_bps": Field("rate", None),
            "delay_us": Field("integer", 0),
            "admission_share": Field("share", 0.8),
            "scone": Field("flag", False),
            "quick_start": Field("flag", False),
            "quick_start_threshold": Field("share", 0.9),
            "quick_start_share": Field("share", 1.0),
            "scone_police": Field("flag", False),
            "advice_prefixes": Field("texts", []),
            "tags": TAGS,
        },
        references=_ends_of_link,
    ),
    Kind(
        "policies",
        "policy",
        {
            "enforcement": Field("text", None),
            "link_controller": Field("text", None),
            "max_guaranteed_bps": Field("rate", None),
            "customer_weights": Field("integer map", {}),
            "default_congestion": Field("text", ""),
            "ipfix_collector": Field("text", ""),
            "quick_start_request_bps": Field("rate", None),
        },
        stored=_policy,
        references=_node_of_policy,
        permanent=frozenset({"default"}),
    ),
    Kind(
        "platform-settings",
        "platform settings",
        {
            **{name: Field("number", None) for name in _NUMBERS_OF_PLATFORM},
            "inference_active_pairs": Field("integer", None),
            "inference_active_priority": Field("integer", None),
            "authority_unauthorised": Field("text", None),
            "authority_free_available_bps": Field("rate", None),
            "application_limits": Field("limits", None),
        },
        stored=_platform,
        permanent=frozenset({"platform"}),
    ),
    Kind(
        "sensing-configurations",
        "sensing configuration",
        {
            "source_node": Field("text"),
            "destination_node": Field("text"),
            "destination_address": Field("text"),
            "sensor": Field("text"),
            "parameters": Field("text map", {}),
            "period_ms": Field("integer"),
            "tolerance_ms": Field("integer", 0),
            "priority": Field("integer", 0),
            "valid_until": Field("text", None),
        },
        stored=_configuration,
        references=_ends_of_configuration,
        # Applications make and renew theirs themselves.
        lasting=lambda item: item["valid_until"] is None,
        # Meshes keep theirs themselves.
        listed=lambda item: not item.get("mesh"),
    ),
    Kind(
        "quotas",
        "quota",
        {
            "max_requests": Field("integer", None),
            "max_total_bps": Field("rate", None),
            "max_priority": Field("integer", None),
            "horizon_s": Field("integer", None),
            "max_held_bps": Field("rate", None),
        },
        identity=("application",),
        of_registry=False,
    ),
    Kind(
        "authorisation-policies",
        "authorisation policy",
        {
            "subjects": Field("texts"),
            "services": Field("texts"),
            "max_guaranteed_bps": Field("rate"),
            "max_priority": Field("integer"),
            "max_delay_class": Field("integer", 3),
            "charging": Field("integer", 0),
            "max_duration_s": Field("integer"),
            "any_address": Field("flag", False),
        },
        of_registry=False,
    ),
    Kind(
        "next-hops",
        "next hop",
        {"next_element": Field("text"), "shim_address": Field("text", None)},
        identity=("element", "prefix"),
        stored=_hop,
        # The others are the topology's, or what reports proved.
        listed=lambda item: bool(item["source"] == "operator"),
        path=lambda identity: (identity[0], *identity[1].split("/")),
        of_registry=False,
    ),
)
KIND_OF = {kind.name: kind for kind in KINDS}


@dataclass
class Stated:
    """Items by kind and id, with where they stand: (file, line), and of each field the line."""

    items: dict[str, dict[str, Item]] = field(default_factory=dict)
    places: dict[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    lines: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def place(self, kind: str, key: str, name: str = "") -> str:
        """FILE:LINE of an item, or of a field of it."""
        file, line = self.places[kind, key]
        return f"{file}:{self.lines.get((kind, key, name), line)}"
