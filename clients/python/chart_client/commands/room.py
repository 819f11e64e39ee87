"""How much room for grants the nodes of a path have. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chart_client.models import Node


def room_words(node: Node) -> str:
    """What a node holds of what it can: "12 of 256 grants, 14 of 4096 selectors"; "-" when nobody reports it."""
    told = node.state.room if node.state else []
    return ", ".join(f"{one.held} of {one.total} {one.kind}" for one in told) or "-"


def rooms(nodes: Iterable[Node], path: Sequence[str]) -> list[dict[str, Any]]:
    """The room of the nodes that send on links of a path, in its order; of those that report it."""
    known = {node.id: node for node in nodes}
    senders = dict.fromkeys(link.split(":")[0] for link in path)
    found = [known[one] for one in senders if one in known]
    return [
        {"node": node.id, "room": [one.model_dump() for one in node.state.room], "words": room_words(node)}
        for node in found
        if node.state and node.state.room
    ]
