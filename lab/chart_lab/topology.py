"""Topologies: what a YAML file of lab/topologies says, and the addresses and routes that follow from it. Pure.

Addresses: link number k (from 1) is 10.1.k.0/30 (10.2.0.0/30 after 10.1.255.0), its left end .1 and its right end .2;
node number i has 10.0.0.i/32 on lo and 10.254.0.(10 + i) on the management bridge, which never carries test traffic.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from chart_lab.errors import LabError
from chart_lab.programs import REPOSITORY

TOPOLOGIES = REPOSITORY / "lab" / "topologies"
MANAGEMENT = IPv4Network("10.254.0.0/16")
MANAGEMENT_HOST = IPv4Interface("10.254.0.1/16")

Direction = Literal["forward", "reverse", "both"]
Ratio = Annotated[float, Field(ge=0, le=1)]
NodeName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,11}$")]


class Strict(BaseModel):
    """Refuses members it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Red(Strict):
    """RED with the classic parameters (Floyd and Jacobson 1993)."""

    minimum_packets: float = Field(ge=0)
    maximum_packets: float = Field(gt=0)
    maximum_probability: Ratio = 0.02
    weight: float = Field(default=0.002, gt=0, le=1)
    limit_packets: int | None = Field(default=None, ge=1)


class Queue(Strict):
    """Limits of a link's queue; without any it holds what passes in max(2 x delay, 100 ms)."""

    packets: int | None = Field(default=None, ge=0)
    bytes: int | None = Field(default=None, ge=0)
    red: Red | None = None


class Burst(Strict):
    """Gilbert-Elliott loss: probabilities per packet of entering and leaving the bad state, loss in each."""

    enter: Ratio
    leave: Ratio
    loss_good: Ratio = 0
    loss_bad: Ratio = 1


class Schedule(Strict):
    """Loss by position: packets numbered here (from 0, modulo period when it is not 0) are lost."""

    lost: list[Annotated[int, Field(ge=0)]]
    period: int = Field(default=0, ge=0)


class Impairment(Strict):
    """Parameters of one direction of a link; None leaves a parameter as it is."""

    rate_mbit: float | None = Field(default=None, ge=0, description="Mb/s with IP headers; 0 is no limit")
    delay_ms: float | None = Field(default=None, ge=0, le=60_000, description="one way")
    jitter_ms: float | None = Field(default=None, ge=0, le=60_000)
    loss: Ratio | None = None
    duplicate: Ratio | None = None
    reorder: Ratio | None = None
    reorder_extra_ms: float | None = Field(default=None, ge=0, le=60_000)
    outage: bool | None = None
    drop_options: bool | None = Field(default=None, description="packets with IP options do not pass")
    queue: Queue | Literal["default"] | None = None
    burst: Burst | Literal["none"] | None = None
    schedule: Schedule | Literal["none"] | None = None

    def parameters(self) -> dict[str, object]:
        """The same as linkem's JSON parameters (lab/linkem/json.h)."""
        result: dict[str, object] = {}
        if self.rate_mbit is not None:
            result["rate_bps"] = round(self.rate_mbit * 1e6)
        for name, value in (("delay", self.delay_ms), ("jitter", self.jitter_ms)):
            if value is not None:
                result[f"{name}_us"] = round(value * 1e3)
        if self.reorder_extra_ms is not None:
            result["reorder_extra_us"] = round(self.reorder_extra_ms * 1e3)
        for name in ("loss", "duplicate", "reorder", "outage", "drop_options"):
            if (plain := getattr(self, name)) is not None:
                result[name] = plain
        if self.queue is not None:
            result["queue"] = self.queue if isinstance(self.queue, str) else self.queue.model_dump(exclude_none=True)
        for name in ("burst", "schedule"):
            if (model := getattr(self, name)) is not None:
                result[name] = None if model == "none" else model.model_dump()
        return result


class Position(Strict):
    """Where the dashboard's map draws a node, both coordinates from 0 to 1."""

    x: Ratio
    y: Ratio


class Node(Strict):
    """One network namespace."""

    name: NodeName
    description: str = ""
    map_position: Position | None = None


class Link(Impairment):
    """One emulated link; its parameters hold for both directions unless `reverse` says otherwise."""

    ends: tuple[NodeName, NodeName]
    mtu: int = Field(default=1500, ge=576, le=2000)
    spin_us: int | None = Field(default=None, ge=0, le=1000)
    coalesce_us: int | None = Field(default=None, ge=0, le=1000)
    reverse: Impairment | None = None

    @property
    def name(self) -> str:
        """`<left>-<right>`."""
        return "-".join(self.ends)

    def direction(self, direction: Literal["forward", "reverse"]) -> dict[str, object]:
        """Parameters for linkem of one direction, forward being left to right."""
        keys = set(Impairment.model_fields)
        own = Impairment.model_validate(self.model_dump(include=keys, exclude_none=True)).parameters()
        if direction == "reverse" and self.reverse is not None:
            own |= self.reverse.parameters()
        return own


class Topology(Strict):
    """A network: nodes and the links between them."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]{0,30}$")
    description: str = ""
    nodes: list[Node] = Field(min_length=1, max_length=200)
    links: list[Link] = Field(default_factory=list, max_length=1000)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [node.name for node in self.nodes]
        if len(set(names)) != len(names):
            raise ValueError("two nodes have the same name")
        seen: set[frozenset[str]] = set()
        for link in self.links:
            for end in link.ends:
                if end not in names:
                    raise ValueError(f"link {link.name}: there is no node {end}; nodes are {', '.join(names)}")
            if link.ends[0] == link.ends[1]:
                raise ValueError(f"link {link.name}: both ends are the same node")
            if frozenset(link.ends) in seen:
                raise ValueError(f"link {link.name}: these two nodes are joined already")
            seen.add(frozenset(link.ends))
        return self

    def node_number(self, node: str) -> int:
        """Position of a node from 1. Raises LabError when there is none of that name."""
        for number, candidate in enumerate(self.nodes, 1):
            if candidate.name == node:
                return number
        raise LabError(f"there is no node {node}; nodes are {', '.join(n.name for n in self.nodes)}")


@dataclass(frozen=True)
class End:
    """One end of a link in its node's namespace."""

    node: str
    peer: str
    interface: str
    address: IPv4Interface
    peer_address: IPv4Address

    @property
    def link_id(self) -> str:
        """Id of the directed link that this end transmits into: `<from>:<interface>`."""
        return f"{self.node}:{self.interface}"


@dataclass(frozen=True)
class Route:
    """A static route of a node."""

    destination: IPv4Network
    gateway: IPv4Address
    source: IPv4Address


def node_address(topology: Topology, node: str) -> IPv4Address:
    """The address of a node itself, on its lo."""
    return IPv4Address("10.0.0.0") + topology.node_number(node)


def management_address(topology: Topology, node: str) -> IPv4Interface:
    """The address of a node on the management bridge."""
    return IPv4Interface(f"{MANAGEMENT.network_address + 10 + topology.node_number(node)}/{MANAGEMENT.prefixlen}")


def link_network(number: int) -> IPv4Network:
    """The /30 of link number k (from 1)."""
    return IPv4Network((int(IPv4Address("10.1.0.0")) + number * 256, 30))


def link_ends(topology: Topology, link: Link) -> tuple[End, End]:
    """Left and right end of a link."""
    network = link_network(topology.links.index(link) + 1)
    left, right = network.network_address + 1, network.network_address + 2
    names = link.ends
    return (
        End(names[0], names[1], f"to-{names[1]}", IPv4Interface((left, 30)), right),
        End(names[1], names[0], f"to-{names[0]}", IPv4Interface((right, 30)), left),
    )


def all_ends(topology: Topology) -> Iterator[tuple[Link, End]]:
    """Every end of every link; as many as there are directed links."""
    for link in topology.links:
        for end in link_ends(topology, link):
            yield link, end


def node_networks(topology: Topology, node: str) -> list[IPv4Network]:
    """All addresses of a node that carry test traffic, as /32s: its own first, then one per link."""
    own = [node_address(topology, node)]
    own += [end.address.ip for _, end in all_ends(topology) if end.node == node]
    return [IPv4Network(address) for address in own]


def first_hops(topology: Topology, origin: str) -> dict[str, End]:
    """For each other node that can be reached: the end through which the shortest path leaves origin.

    Shortest is fewest hops, then least delay, then the order of the file.
    """
    ends_of: dict[str, list[tuple[Link, End]]] = {node.name: [] for node in topology.nodes}
    for link, end in all_ends(topology):
        ends_of[end.node].append((link, end))
    result: dict[str, End] = {}
    order = 0
    heap: list[tuple[int, float, int, str, End | None]] = [(0, 0.0, 0, origin, None)]
    while heap:
        hops, delay_ms, _, node, first = heapq.heappop(heap)
        if node in result or (node == origin and first is not None):
            continue
        if first is not None:
            result[node] = first
        for link, end in ends_of[node]:
            order += 1
            heapq.heappush(heap, (hops + 1, delay_ms + (link.delay_ms or 0), order, end.peer, first or end))
    return result


def routes(topology: Topology, node: str) -> list[Route]:
    """The static routes of a node: to every other node's own address and to every link it is not on."""
    result = []
    source = node_address(topology, node)
    hops = first_hops(topology, node)
    for other, end in hops.items():
        result.append(Route(IPv4Network(node_address(topology, other)), end.peer_address, source))
    for link in topology.links:
        reachable = [name for name in link.ends if name in hops]
        if node in link.ends or not reachable:
            continue
        end = hops[reachable[0]]
        result.append(Route(link_ends(topology, link)[0].address.network, end.peer_address, source))
    return result


def find_link(topology: Topology, name: str) -> tuple[Link, Direction]:
    """Finds a link by `left-right`, `right-left` or the id of a directed link (`left:to-right`).

    Returns the link and the direction the name speaks of ("both" for a pair of names). Raises LabError.
    """
    for link in topology.links:
        left, right = link.ends
        if name in (f"{left}-{right}", f"{right}-{left}"):
            return link, "both"
        if name == f"{left}:to-{right}":
            return link, "forward"
        if name == f"{right}:to-{left}":
            return link, "reverse"
    raise LabError(f"there is no link {name}; links are {', '.join(link.name for link in topology.links) or 'none'}")


def complaints(error: ValidationError) -> str:
    """The findings of pydantic in one line each: where, and what."""
    return "\n".join(f"  {'.'.join(map(str, item['loc'])) or 'file'}: {item['msg']}" for item in error.errors())


def available() -> list[str]:
    """Names of the topologies that come with the project."""
    return sorted(path.stem for path in TOPOLOGIES.glob("*.yaml"))


def load(name: str) -> Topology:
    """Reads a topology by name (lab/topologies) or by the path of a YAML file.

    Raises LabError that names what is wrong and where.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else TOPOLOGIES / f"{name}.yaml"
    if not path.is_file():
        raise LabError(f"there is no topology {name}; available are {', '.join(available())} or a path ending in .yaml")
    try:
        return Topology.model_validate(yaml.safe_load(path.read_text()))
    except yaml.YAMLError as error:
        raise LabError(f"{path}: not YAML: {error}") from error
    except ValidationError as error:
        raise LabError(f"{path}:\n{complaints(error)}") from error
