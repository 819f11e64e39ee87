"""Session rules: what nodes ask in band for sessions of a kind."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from chart.gateway.schemas.authorisations import Service
from chart.gateway.schemas.common import Bps, Input, NodeId, Output, Page, Revision, Tags

SessionClass = Literal["voice", "video", "data"]
_is_ports = re.compile(r"\d{1,5}(-\d{1,5})?", re.ASCII).fullmatch


def _ports_read(stated: str) -> str:
    first, _, last = stated.partition("-")
    if not _is_ports(stated) or not 0 < int(first) <= int(last or first) <= 65_535:
        raise PydanticCustomError("ports", "must be a port or a range, such as 5004 or 16384-32767")
    return stated


def _prefix_reads(stated: str) -> str:
    try:
        ipaddress.ip_network(stated, strict=False)
    except ValueError:
        raise PydanticCustomError("prefix", "must be a prefix in CIDR notation, such as 10.1.0.0/16") from None
    return stated


Ports = Annotated[
    str,
    Field(max_length=11, pattern=r"^[0-9]{1,5}(-[0-9]{1,5})?$", examples=["5004", "16384-32767"]),
    AfterValidator(_ports_read),
]
Prefix = Annotated[str, Field(min_length=1, max_length=64, examples=["10.1.0.0/16"]), AfterValidator(_prefix_reads)]


class SessionSelectorBody(Input):
    """Sessions of one kind, as the node that sends sees them; every field that is set must match."""

    protocol: Literal["tcp", "udp"] | None = Field(default=None, description="null: both.")
    local_ports: Ports | None = Field(default=None, description="Of the node's own end; null: any.")
    remote_ports: Ports | None = Field(default=None, description="Of the other end; null: any.")
    local_prefix: Prefix | None = Field(default=None, description="null: any address.")
    remote_prefix: Prefix | None = Field(default=None, description="null: any address.")
    dscp: Annotated[int, Field(ge=0, le=63)] | None = Field(
        default=None, description="Of the session's first packet; null: any.", examples=[46]
    )


class SessionRuleBody(Input):
    """A session rule: which sessions it is for, and what each of them asks in band for itself."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "Video conferences",
                    "session_class": "video",
                    "selectors": [{"protocol": "udp", "remote_ports": "16384-32767"}],
                    "service": "variable",
                    "guaranteed_bps": 2_000_000,
                    "available_bps": 6_000_000,
                    "delay_class": 3,
                    "enabled": True,
                }
            ]
        }
    )

    name: str = Field(default="", max_length=200)
    session_class: SessionClass
    selectors: list[SessionSelectorBody] = Field(
        min_length=1, max_length=16, description="The rule is for sessions that one of them matches."
    )
    service: Service
    guaranteed_bps: Bps = Field(default=0, description="Of the services guaranteed and variable.")
    available_bps: Bps = Field(default=0, description="Of the services available, maximum and variable: at most this.")
    delay_class: int = Field(
        default=0, ge=0, le=7, description="7 waits least; from 4 on sessions with a guaranteed rate are expedited."
    )
    priority: int = Field(default=0, ge=0, le=255, description="Pre-emption priority; 255 the highest.")
    burst_tolerance: int = Field(default=0, ge=0, le=15, description="(n + 1)/4 round trips; expedited: at most 3.")
    nodes: list[NodeId] = Field(default_factory=list, max_length=1000, description="Nodes that ask, by id.")
    node_tags: Tags = Field(
        default_factory=dict, description="Nodes with all these tags ask too. No nodes and no tags: every node asks."
    )
    enabled: bool = Field(default=True, description="false: no session asks by it.")
    authorised: bool = Field(
        default=True,
        description="Matching sessions may have what the rule asks without an authorisation of their addresses.",
    )


class SessionSelector(Output):
    """Sessions of one kind, as the node that sends sees them; null: any."""

    protocol: Literal["tcp", "udp"] | None
    local_ports: str | None
    remote_ports: str | None
    local_prefix: str | None
    remote_prefix: str | None
    dscp: int | None


class NodeSessionRule(Output):
    """A rule as a node reported it."""

    node: str
    current: bool = Field(description="Whether the node has this revision of the rule.")
    asks: bool = Field(description="Whether this node asks for sessions that the rule matches.")
    fault: str = Field(description="Why the node cannot follow the rule; empty: it does.")
    sessions: int = Field(description="Sessions from this node whose rate is agreed.")
    expedited_sessions: int
    guaranteed_bps: int = Field(description="What they are guaranteed together.")


class SessionRule(Output):
    """A session rule with its revision, and what nodes report of it."""

    id: str
    revision: Revision
    name: str
    session_class: SessionClass
    selectors: list[SessionSelector]
    service: Service
    guaranteed_bps: int
    available_bps: int
    delay_class: int
    priority: int
    burst_tolerance: int
    nodes: list[str]
    node_tags: dict[str, str]
    enabled: bool
    authorised: bool
    built_in: bool = Field(description="It exists from the start and cannot be deleted.")
    expedited: bool = Field(description="Whether its sessions go before others, up to their guaranteed rate.")
    sessions: int = Field(description="Sessions whose rate is agreed, of all nodes.")
    expedited_sessions: int
    reported_by: list[NodeSessionRule] = Field(description="Nodes that have the rule, by name.")


class SessionRulePage(Page):
    """Session rules by id."""

    items: list[SessionRule]
