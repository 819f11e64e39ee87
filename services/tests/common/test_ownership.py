"""Whose flows a request may be for."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.common.ownership import EVERYTHING, End, Ownership, ends_of
from chart.common.rpc_errors import RefusalError
from chart.reservations.decisions.network import Network, network_of
from chart.v1 import topology_pb2
from chart.v1.flow_grant_pb2 import FlowSelector
from chart.v1.session_rule_pb2 import PortRange
from chart.v1.tenant_pb2 import Caller, Tenant, TenantEnd

TCP, UDP = 6, 17
PORT = "selector.destination_port"
NETWORK = network_of(
    (name, topology_pb2.TopologyEntity(node=topology_pb2.Node(id=name, addresses=addresses)))
    for name, addresses in {
        "alpha": ["10.0.0.1/32", "10.0.1.1/32"],
        "bravo": ["10.0.0.2/32"],
        "delta": ["10.0.0.4/32", "10.4.0.0/16", "2001:db8:4::/48"],
        "bare": [],
    }.items()
)


def owned_in(tenants: Iterable[Tenant], network: Network) -> Ownership:
    return Ownership.of(tenants, network.nodes, network.prefixes_of)


def ports(first: int, last: int) -> PortRange:
    return PortRange(first=first, last=last)


WEB = Tenant(
    id="web",
    members=["web-server", "client-7"],
    namespaces=["shop"],
    ends=[
        TenantEnd(node="alpha"),
        TenantEnd(prefix="10.4.1.0/24"),
        TenantEnd(prefix="10.0.0.4/32", protocol=TCP, ports=ports(8000, 8099)),
        TenantEnd(node="bravo", cgroup_id=77),
    ],
)
BULK = Tenant(id="bulk", members=["bulk"], ends=[TenantEnd(node="delta"), TenantEnd(prefix="10.4.1.128/25")])
EVERY = Tenant(id="default", ends=[TenantEnd(prefix=str(prefix)) for prefix in EVERYTHING])
OWNERSHIP = owned_in([WEB, BULK, EVERY], NETWORK)


def selector(source: str, destination: str, **more: Any) -> FlowSelector:
    return FlowSelector(source_prefix=source, destination_prefix=destination, **more)


def refused(owner: str, chosen: FlowSelector, caller: Caller | None = None, source: str = "bravo") -> RefusalError:
    with pytest.raises(RefusalError) as error:
        OWNERSHIP.check(owner, caller or Caller(), ends_of(chosen, source, "delta"))
    assert error.value.status is grpc.StatusCode.PERMISSION_DENIED
    assert error.value.refusal.code == "foreign-selector"
    return error.value


def accepted(owner: str, chosen: FlowSelector, caller: Caller | None = None, source: str = "bravo") -> None:
    OWNERSHIP.check(owner, caller or Caller(), ends_of(chosen, source, "delta"))


@pytest.mark.parametrize(
    "chosen",
    [
        selector("10.0.0.1/32", "10.0.0.4/32"),
        selector("10.0.1.1/32", "10.0.0.2/32"),
        selector("10.0.0.2/32", "10.4.1.0/25"),
        selector("10.0.0.2/32", "10.0.0.4/32", protocol=TCP, destination_port=8080),
        selector("10.0.0.2/32", "10.0.0.4/32", cgroup_id=77),
        FlowSelector(source_prefixes=["10.0.0.1/32", "10.0.1.1/32"], destination_prefix="10.0.0.4/32"),
    ],
)
def test_what_starts_or_ends_at_its_own(chosen: FlowSelector) -> None:
    accepted("web-server", chosen)


@pytest.mark.parametrize(
    ("chosen", "field"),
    [
        (selector("10.0.0.2/32", "10.0.0.4/32"), PORT),
        (selector("10.0.0.2/32", "10.0.0.4/32", protocol=TCP, destination_port=22), PORT),
        (selector("10.0.0.2/32", "10.0.0.4/32", protocol=UDP, destination_port=8080), PORT),
        (selector("10.0.0.2/32", "10.4.0.0/16"), "source"),
        # A part of it is another tenant's: the longest prefix counts.
        (selector("10.0.0.2/32", "10.4.1.0/24"), "source"),
        (selector("10.0.0.2/32", "10.4.1.200/32"), "source"),
        (selector("0.0.0.0/0", "10.0.0.2/32"), "source"),
        (selector("", ""), "source"),
        (FlowSelector(source_prefixes=["10.0.0.1/32", "10.0.0.2/32"], destination_prefix="10.0.0.4/32"), PORT),
    ],
)
def test_what_is_not_its_own(chosen: FlowSelector, field: str) -> None:
    refusal = refused("web-server", chosen).refusal
    assert refusal.field == field
    assert "10.4.1.0/24" in refusal.detail
    assert "tcp ports 8000-8099" in refusal.detail
    assert any("node alpha" in one for one in refusal.suggestions)


def test_a_foreign_control_group_is_named() -> None:
    group = selector("10.0.0.2/32", "10.4.0.1/32", cgroup_id=77)
    bare = owned_in([WEB, Tenant(id="other", members=["other"], ends=[TenantEnd(prefix="10.9.0.0/16")])], NETWORK)
    with pytest.raises(RefusalError) as error:
        bare.check("other", Caller(), ends_of(group, "bravo", "delta"))
    assert error.value.refusal.field == "selector.cgroup_id"


def test_a_control_group_counts_on_its_node_only() -> None:
    chosen = selector("10.0.0.4/32", "10.0.0.2/32", cgroup_id=77)
    accepted("web-server", selector("10.0.0.2/32", "10.0.0.4/32", cgroup_id=77))
    refused("web-server", chosen, source="delta")


def test_a_node_with_others_control_groups_is_not_asked_for_as_a_whole() -> None:
    owner = owned_in([WEB, Tenant(id="ops", members=["ops"], ends=[TenantEnd(node="bravo")])], NETWORK)
    whole = ends_of(selector("10.0.0.2/32", "10.0.0.4/32"), "bravo", "delta")
    with pytest.raises(RefusalError):
        owner.check("ops", Caller(), whole)
    owner.check("ops", Caller(), ends_of(selector("10.0.0.2/32", "10.0.0.4/32", cgroup_id=5), "bravo", "delta"))


@pytest.mark.parametrize(
    ("owner", "caller", "tenant"),
    [
        ("web-server", Caller(), "web"),
        ("somebody", Caller(client="client-7"), "web"),
        ("somebody", Caller(tenant="bulk", client="client-7"), "bulk"),
        ("web-server", Caller(tenant="bulk"), "bulk"),
        ("system:serviceaccount:shop:cart", Caller(), "web"),
        ("system:serviceaccount:shopping:cart", Caller(), "default"),
        ("shop", Caller(), "default"),
        ("somebody", Caller(), "default"),
        ("web-server", Caller(tenant="gone"), "gone"),
    ],
)
def test_whose_token_it_is(owner: str, caller: Caller, tenant: str) -> None:
    assert OWNERSHIP.tenant_of(owner, caller) == tenant


def test_who_belongs_to_none_has_what_nobody_else_has() -> None:
    accepted("somebody", selector("10.0.0.2/32", "192.0.2.1/32"))
    refused("somebody", selector("10.0.0.1/32", "10.0.0.4/32"), source="alpha")


def test_a_token_of_an_unknown_tenant_gets_nothing() -> None:
    chosen = selector("10.0.0.2/32", "192.0.2.1/32")
    assert "'gone', which does not exist" in refused("web-server", chosen, Caller(tenant="gone")).refusal.detail


def test_without_any_tenant_applications_get_nothing() -> None:
    nothing = owned_in([], NETWORK)
    with pytest.raises(RefusalError) as error:
        nothing.check("app", Caller(), ends_of(selector("10.0.0.1/32", "10.0.0.4/32"), "alpha", "delta"))
    assert "app belongs to no tenant" in error.value.refusal.detail
    assert "chart tenant set" in error.value.refusal.suggestions[0]
    nothing.check("op", Caller(operator=True), ends_of(selector("10.0.0.1/32", "10.0.0.4/32"), "alpha", "delta"))


def test_ends_of_a_node_follow_its_addresses() -> None:
    moved = network_of(
        [("alpha", topology_pb2.TopologyEntity(node=topology_pb2.Node(id="alpha", addresses=["10.7.0.1/32"])))]
    )
    again = owned_in([WEB], moved)
    again.check("web-server", Caller(), ends_of(selector("10.7.0.1/32", "10.0.0.4/32"), "alpha", "delta"))
    with pytest.raises(RefusalError):
        again.check("web-server", Caller(), ends_of(selector("10.0.0.1/32", "10.0.0.2/32"), "alpha", "bravo"))


PREFIXES = st.builds(
    lambda address, length: ipaddress.ip_network((address, length), strict=False),
    st.integers(0, 15).map(lambda last: f"10.0.0.{last * 16}"),
    st.integers(24, 30),
)
TENANTS = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), PREFIXES), max_size=6)


@given(TENANTS, PREFIXES)
def test_an_end_is_owned_when_every_address_is(owned: list[tuple[str, Any]], asked: Any) -> None:
    """The index against the definition, address by address: the longest prefix around it is the tenant's."""
    tenants = {
        name: Tenant(id=name, ends=[TenantEnd(prefix=str(prefix)) for one, prefix in owned if one == name])
        for name in ("a", "b", "c")
    }
    index = owned_in(tenants.values(), network_of([]))

    def of(tenant: str, address: Any) -> bool:
        around = [(prefix.prefixlen, name) for name, prefix in owned if address in prefix]
        return (max((length for length, _ in around), default=-1), tenant) in around

    for tenant in tenants:
        mine = index.owns(tenant, End("source", "n", (asked,), 0, 0))
        if mine:
            assert all(of(tenant, address) for address in asked)
        elif not any(name != tenant and prefix.subnet_of(asked) and prefix != asked for name, prefix in owned):
            # One answer for the whole prefix: nobody else has a part of it.
            assert not any(asked.subnet_of(prefix) for name, prefix in owned if name == tenant) or not all(
                of(tenant, address) for address in asked
            )


POD = "10.9.0.7/32"


def test_a_pod_s_own_address_belongs_to_its_namespace_s_tenant() -> None:
    """By the word of the cluster's controller; as a source, as a whole, and of a namespace that has a tenant."""
    owner, vouched = "system:serviceaccount:shop:chart-rates", Caller(addresses=["10.9.0.7"])

    def refused(owner: str, caller: Caller, source: str, destination: str = "10.4.9.9/32") -> str:
        try:
            OWNERSHIP_OF_PRODUCTION.check(owner, caller, ends_of(selector(source, destination), "alpha", "delta"))
        except RefusalError as error:
            return f"{error.refusal.detail}; {', '.join(error.refusal.suggestions)}"
        return ""

    assert refused(owner, vouched, POD) == ""
    assert "belongs wholly" in refused(owner, Caller(), POD)
    assert "belongs wholly" in refused(owner, vouched, "10.9.0.0/24")
    assert "belongs wholly" in refused(owner, vouched, "10.9.0.8/32", POD)
    words = refused("system:serviceaccount:unknown:chart-rates", vouched, POD)
    assert "the namespace unknown belongs to no tenant" in words
    assert "chart tenant set NAME --namespace unknown" in words


OWNERSHIP_OF_PRODUCTION = owned_in([WEB, BULK], NETWORK)
