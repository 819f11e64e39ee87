"""Four overlay nodes and the two paths between two of them, as topology and nodes report them."""

from __future__ import annotations

from collections.abc import Collection

from chart.v1.node_state_pb2 import NodeInterface, NodeState, OverlayLinkState
from chart.v1.topology_pb2 import Link, Node, OverlayMembership

# Two ways from ingress to egress, the northern one shorter; `host` is behind egress and no member.
DELAYS_US = {("ingress", "north"): 10_000, ("north", "egress"): 0, ("ingress", "south"): 12_000, ("south", "egress"): 0}
NETWORKS = {pair: number for number, pair in enumerate(DELAYS_US, 1)}
MEMBERS = ("egress", "ingress", "north", "south")


def nodes() -> dict[str, Node]:
    """By id; a host behind egress is none of the overlay's."""
    found = {
        name: Node(id=name, addresses=[f"10.0.0.{number}/32"], overlay=OverlayMembership())
        for number, name in enumerate(MEMBERS, 1)
    }
    found["egress"].overlay.prefixes.append("10.9.0.0/16")
    found["host"] = Node(id="host", addresses=["10.9.0.1/32"])
    return found


def links(**tags: str) -> list[Link]:
    """Both directions of each, and one to the host."""
    found = []
    for (one, other), delay_us in DELAYS_US.items():
        for sender, receiver in ((one, other), (other, one)):
            interface = f"to-{receiver}"
            found.append(
                Link(
                    id=f"{sender}:{interface}",
                    from_node=sender,
                    interface=interface,
                    to_node=receiver,
                    delay_us=delay_us,
                    capacity_bps=10**8,
                    tags=tags,
                )
            )
    found.append(Link(id="egress:to-host", from_node="egress", interface="to-host", to_node="host"))
    return found


def states(down: Collection[str] = (), dead: Collection[str] = (), mtu: int = 1500) -> dict[str, NodeState]:
    """What the agents report, by node; links that are down or dead by id."""
    found: dict[str, NodeState] = {}
    for (one, other), number in NETWORKS.items():
        for place, (sender, receiver) in enumerate(((one, other), (other, one)), 1):
            link_id = f"{sender}:to-{receiver}"
            state = found.setdefault(sender, NodeState(node=sender))
            state.interfaces.append(
                NodeInterface(
                    link_id=link_id,
                    interface=f"to-{receiver}",
                    mtu=mtu,
                    up=link_id not in down,
                    addresses=[f"10.1.{number}.{place}/30"],
                )
            )
            state.overlay.links.append(OverlayLinkState(link_id=link_id, alive=link_id not in dead))
    return found
