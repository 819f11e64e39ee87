"""Tenants: which ends of flows belong to whom."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chart_client.models import Model
from chart_client.resource import Resource, path_of


class TenantEnd(Model):
    """Ends of flows; every field that is set must hold."""

    node: str | None = None
    prefix: str | None = None
    protocol: str | None = None
    ports: str | None = None
    cgroup_id: int | None = None


class Tenant(Model):
    """Whose tokens these are, and the ends of flows that they may ask for."""

    id: str
    revision: int
    description: str
    members: list[str]
    namespaces: list[str]
    ends: list[TenantEnd]

    def stated(self) -> dict[str, Any]:
        """The fields that `Tenants.put` takes."""
        return self.model_dump(mode="json", exclude={"id", "revision"})


class Tenants(Resource):
    """Tenants."""

    def list(self) -> Iterator[Tenant]:
        """By id."""
        return self._all(Tenant, path_of("tenants"))

    def get(self, tenant_id: str) -> Tenant:
        """One tenant."""
        return self._one(Tenant, "GET", path_of("tenants", tenant_id))

    def put(self, tenant_id: str, *, revision: int | None = None, **fields: Any) -> Tenant:
        """Set a tenant; fields as in `Tenant.stated`. ``revision``: only if the tenant is still at this one."""
        headers = {} if revision is None else {"If_Match": f'"{revision}"'}
        return self._one(Tenant, "PUT", path_of("tenants", tenant_id), fields, **headers)

    def delete(self, tenant_id: str) -> None:
        """Remove a tenant: its members belong to `default`."""
        self._transport.request("DELETE", path_of("tenants", tenant_id))
