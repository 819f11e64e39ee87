"""Tenants: which ends of flows belong to whom."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from chart.gateway.schemas.common import Input, NodeId, Output, Page, Revision
from chart.gateway.schemas.session_rules import Ports, Prefix

Protocol = Literal["tcp", "udp", "sctp", "dccp"]
Member = Annotated[str, Field(min_length=1, max_length=128)]
Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", examples=["shop"])]


class TenantEndBody(Input):
    """Ends of flows; every field that is set must hold. A node or a prefix is needed."""

    node: NodeId | None = Field(default=None, description="Its addresses and prefixes; null: wherever the prefix is.")
    prefix: Prefix | None = Field(default=None, description="null: all addresses and prefixes of the node.")
    protocol: Protocol | None = Field(default=None, description="null: any.")
    ports: Ports | None = Field(default=None, description="null: all.")
    cgroup_id: int | None = Field(
        default=None, ge=1, le=2**63 - 1, description="Only sockets of this control group of the node; null: any."
    )


class TenantBody(Input):
    """A tenant: whose tokens these are, and the ends of flows that they may ask for."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "description": "Web shop",
                    "members": ["shop-frontend"],
                    "ends": [{"prefix": "10.4.0.0/16"}, {"node": "alpha", "protocol": "tcp", "ports": "8000-8099"}],
                }
            ]
        }
    )

    description: str = Field(default="", max_length=1000)
    members: list[Member] = Field(
        default_factory=list, max_length=1000, description="Subjects and client ids of tokens."
    )
    namespaces: list[Namespace] = Field(
        default_factory=list,
        max_length=1000,
        description="Kubernetes namespaces: tokens of their service accounts are the tenant's.",
    )
    ends: list[TenantEndBody] = Field(
        default_factory=list, max_length=1000, description="Its flows start or end at one of these."
    )


class TenantEnd(Output):
    """Ends of flows; null: any."""

    node: str | None
    prefix: str | None
    protocol: str | None
    ports: str | None
    cgroup_id: int | None


class Tenant(Output):
    """A tenant with its revision."""

    id: str = Field(description="`default`: who belongs to no other.")
    revision: Revision
    description: str
    members: list[str]
    namespaces: list[str]
    ends: list[TenantEnd]


class TenantPage(Page):
    """Tenants by id."""

    items: list[Tenant]
