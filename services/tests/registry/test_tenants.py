"""What the registry accepts as a tenant."""

from __future__ import annotations

from typing import Any

import pytest

from chart.common.rpc_errors import RefusalError
from chart.registry import tenants
from chart.v1.session_rule_pb2 import PortRange
from chart.v1.tenant_pb2 import Tenant, TenantEnd


def stated(*ends: TenantEnd, **fields: Any) -> Tenant:
    return Tenant(**{"id": "shop", "members": ["frontend"], "ends": ends, **fields})


def test_a_tenant_is_stored_normalised_and_without_revision() -> None:
    stored = tenants.tenant(stated(TenantEnd(prefix="10.4.1.9/16", ports=PortRange()), revision=5))
    assert stored.ends[0] == TenantEnd(prefix="10.4.0.0/16")
    assert stored.revision == 0


@pytest.mark.parametrize(
    ("tenant", "at_fault"),
    [
        (stated(id="Shop"), "id"),
        (stated(description="x" * 1001), "description"),
        (stated(TenantEnd()), "ends[0]"),
        (stated(TenantEnd(node="a"), TenantEnd(protocol=6)), "ends[1]"),
        (stated(TenantEnd(prefix="ten")), "ends[0].prefix"),
        (stated(TenantEnd(node="A b")), "ends[0].node"),
        (stated(TenantEnd(prefix="10.0.0.0/8", cgroup_id=7)), "ends[0].node"),
        (stated(TenantEnd(node="a", protocol=300)), "ends[0].protocol"),
        (stated(TenantEnd(node="a", protocol=1, ports=PortRange(first=1, last=2))), "ends[0].protocol"),
        (stated(TenantEnd(node="a", ports=PortRange(first=9, last=2))), "ends[0].ports"),
        (stated(TenantEnd(node="a", ports=PortRange(first=9, last=70_000))), "ends[0].ports"),
        (stated(members=["a\nb"]), "members[0]"),
        (stated(members=["ok", "x" * 129]), "members[1]"),
        (stated(namespaces=["Not"]), "namespaces[0]"),
        (stated(id="default"), "members"),
        (Tenant(id="a", ends=[TenantEnd(node="a")] * 1001), "ends"),
    ],
)
def test_a_wrong_tenant_is_refused_by_field(tenant: Tenant, at_fault: str) -> None:
    with pytest.raises(RefusalError) as error:
        tenants.tenant(tenant)
    assert error.value.refusal.field == at_fault


def test_a_member_belongs_to_one_tenant() -> None:
    other = Tenant(id="other", members=["x", "frontend"], namespaces=["y"])
    tenants.members_apart(stated(), [stated(), Tenant(id="third", namespaces=["frontend"])])
    with pytest.raises(RefusalError, match="belongs to the tenant 'other' already"):
        tenants.members_apart(stated(), [stated(), other])
    with pytest.raises(RefusalError) as error:
        tenants.members_apart(stated(namespaces=["y"], members=[]), [other])
    assert error.value.refusal.field == "namespaces"


def test_the_default_tenant_owns_everything_in_development_alone() -> None:
    assert [end.prefix for end in tenants.default_tenant(everything=True).ends] == ["0.0.0.0/0", "::/0"]
    assert not tenants.default_tenant(everything=False).ends
    assert tenants.tenant(tenants.default_tenant(everything=True)) == tenants.default_tenant(everything=True)
    with pytest.raises(RefusalError, match="cannot be deleted"):
        tenants.check_deletion("default")
    tenants.check_deletion("shop")
