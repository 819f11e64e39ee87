"""What a node has besides its addresses (edges, tunnel ends, proxied traffic, its part in the overlay) as a file states
it, with the defaults of what it leaves out.
"""

from __future__ import annotations

import ipaddress
from typing import Any

Item = dict[str, Any]

_END: Item = {
    **{"interface": "chart-itm0", "port": 7400, "classes": [], "period_ms": None, "congestion": None, "prefixes": []},
    "applications": [],
}
_END_REQUIRED = ("tunnel", "role", "address", "peer_node")
_ORIGIN: Item = {"period_ms": 1000, "congestion": "cubic"}
_CLASS: Item = {"weight": 1, "selector": "any"}
_APPLICATION: Item = {"argument": "", "limit_ms": 20, "on": True}
_EDGE: Item = {"aggregate_bps": 0, "exceed": "remark", "depth_ms": 100}
_OVERLAY: Item = {"member": True, "prefixes": []}
_PROXIED: Item = {"interfaces": [], "prefixes": [], "mode": "same-ports"}


class FieldError(ValueError):
    """A value that cannot be; `field` says of what."""

    def __init__(self, name: str, words: str) -> None:
        self.field = name
        super().__init__(words)


def edge(stated: Item) -> Item:
    """An edge as the registry stores it.

    Raises:
        FieldError: it lacks its interface, or has a field that edges do not have.
    """
    return _complete("edges", "an edge", stated, ("interface",), _EDGE)


def tunnel_end(stated: Item) -> Item:
    """An end as the registry stores it.

    Raises:
        FieldError: it lacks a field, or has one that ends do not have.
    """
    end = _complete("tunnel_ends", "a tunnel end", stated, _END_REQUIRED, _END)
    if end["role"] == "origin":
        end |= {name: value for name, value in _ORIGIN.items() if end[name] is None}
    end["address"] = _address(end["address"])
    classes = [_complete("tunnel_ends", "a class", one, ("name",), _CLASS) for one in end["classes"]]
    applications = [
        _complete("tunnel_ends", "an application", one, ("name", "file"), _APPLICATION) for one in end["applications"]
    ]
    prefixes = _networks("tunnel_ends", end["prefixes"])
    return {**end, "classes": classes, "prefixes": prefixes, "applications": applications}


def proxied_traffic(stated: Item) -> Item:
    """Proxied traffic as the registry stores it.

    Raises:
        FieldError: it has a field that it does not have.
    """
    proxied = _complete("proxied_traffic", "proxied traffic", stated, (), _PROXIED)
    if not proxied["interfaces"]:
        return dict(_PROXIED)
    return {**proxied, "prefixes": _networks("proxied_traffic", proxied["prefixes"])}


def overlay(stated: Item) -> Item:
    """A node's part in the overlay as the registry stores it; one that is stated without `member` has it.

    Raises:
        FieldError: it has a field that it does not have.
    """
    part = _complete("overlay", "a node's part in the overlay", stated, (), _OVERLAY)
    if not part["member"]:
        return {"member": False, "prefixes": []}
    return {**part, "prefixes": _networks("overlay", part["prefixes"])}


def _complete(field: str, what: str, stated: Any, required: tuple[str, ...], defaults: Item) -> Item:
    if not isinstance(stated, dict):
        raise FieldError(field, f"{stated!r} must have fields: {', '.join((*required, *defaults))}")
    wrong = sorted(set(stated) - {*required, *defaults})
    missing = [name for name in required if name not in stated]
    if wrong or missing:
        words = f"{what} has no {wrong[0]}" if wrong else f"{missing[0]} of {what} is missing"
        raise FieldError(field, f"{words}; its fields: {', '.join((*required, *defaults))}")
    return {**{name: stated[name] for name in required}, **defaults, **stated}


def _address(stated: Any) -> str:
    try:
        return str(ipaddress.ip_address(str(stated)))
    except ValueError:
        raise FieldError("tunnel_ends", f"{stated!r} is no address, such as 10.0.0.6") from None


def _networks(field: str, stated: Any) -> list[str]:
    try:
        return [str(ipaddress.ip_network(str(one), strict=False)) for one in stated]
    except ValueError as error:
        raise FieldError(field, f"{error}, such as 192.0.2.0/24") from None
