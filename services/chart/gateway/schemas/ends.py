"""Tunnel ends and proxied traffic: what runs on a node beside its agent."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from chart.gateway.schemas.common import LABEL_PATTERN, NodeId, Output, Weight

TunnelRole = Literal["origin", "destination"]
Congestion = Literal["cubic", "reno"]
ProxyMode = Literal["same-ports", "new-ports"]
Device = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.@-]{1,15}$")]
Network = Annotated[str, Field(min_length=1, max_length=64, description="CIDR.", examples=["192.0.2.0/24"])]


class TunnelEndClass(Output):
    """Packets of one customer of a tunnel."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(min_length=1, max_length=23, examples=["gold"])
    weight: Weight = Field(default=1, description="Share against the other classes that have packets.")
    selector: str = Field(
        default="any",
        min_length=1,
        max_length=255,
        description="any, or from=PREFIX,to=PREFIX,dscp=N,protocol=tcp|udp|N,sport=N,dport=N.",
        examples=["from=10.1.0.0/16"],
    )


class TunnelEndApplication(Output):
    """A traffic controller at an end: a shared object that the node has, in a process of its own."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: str = Field(pattern=r"^[A-Za-z0-9_.-]{1,31}$", examples=["pacing"])
    file: str = Field(
        pattern=r"^[A-Za-z0-9_-][A-Za-z0-9_.+-]{0,251}\.so$",
        description="In the node's directory of applications. Another file replaces the running one without a loss.",
        examples=["itm-aimd.so"],
    )
    argument: str = Field(
        default="",
        max_length=1023,
        description="Its parameters; may change while it runs.",
        examples=["5000000,100000,500000"],
    )
    limit_ms: int = Field(
        default=20, ge=1, le=40, description="An answer that takes longer takes it out; packets pass without it."
    )
    on: bool = Field(default=True, description="false: it is loaded, and asked nothing.")


class TunnelEnd(Output):
    """One end of an elastic tunnel on a node. Both ends show their nodes' certificates and check each other's node."""

    model_config = ConfigDict(extra="forbid", strict=True)

    tunnel: str = Field(pattern=LABEL_PATTERN, max_length=63, examples=["west-east"])
    role: TunnelRole
    interface: Device = Field(default="chart-itm0", description="The TUN device that the end makes.")
    address: str = Field(
        min_length=1,
        max_length=64,
        description="Of the destination: where it listens, and where the origin connects to.",
        examples=["10.0.0.6"],
    )
    port: int = Field(default=7400, ge=1, le=65_535)
    peer_node: NodeId = Field(description="The node of the other end.")
    classes: list[TunnelEndClass] = Field(
        default_factory=list, max_length=32, description="Origin: the first that matches counts; none: all are one."
    )
    period_ms: int | None = Field(
        default=None, ge=10, le=60_000, description="Origin: measurement period; null: 1000 at the origin."
    )
    congestion: Congestion | None = Field(
        default=None, description="Origin: congestion control of the connections; null: cubic at the origin."
    )
    prefixes: list[Network] = Field(
        default_factory=list, max_length=64, description="Origin: networks that are led into the tunnel."
    )
    applications: list[TunnelEndApplication] = Field(
        default_factory=list,
        max_length=8,
        description="Asked in this order about packets, before the tunnel itself. A change restarts nothing.",
    )


class ProxiedTraffic(Output):
    """TCP connections of hosts without an agent that the node's proxy takes, and carries on at this node's rates."""

    model_config = ConfigDict(extra="forbid", strict=True)

    interfaces: list[Device] = Field(
        default_factory=list,
        max_length=16,
        description="Where connections come in, from the hosts and towards them; none: nothing is proxied.",
        examples=[["eth1"]],
    )
    prefixes: list[Network] = Field(default_factory=list, max_length=32, description="Of the hosts; none: all.")
    mode: ProxyMode = Field(
        default="same-ports",
        description="new-ports: onward connections have other source ports, for nodes that track connections.",
    )
