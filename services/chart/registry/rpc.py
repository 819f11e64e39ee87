"""gRPC of the registry: each change is one transaction of its row, its audit row and its outgoing record."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from chart.common import audit, rpc
from chart.common.database import Connection, Pool
from chart.common.platform_settings import KEY
from chart.common.rpc_errors import not_found
from chart.registry import mesh_planner, meshes, node_ends, repository, service, session_rules, streams, tenants
from chart.registry.platform_settings import platform_settings
from chart.registry.repository import (
    LINK,
    NODE,
    PLATFORM_SETTINGS,
    POLICY,
    SENSING_CONFIGURATION,
    SENSING_MESH,
    SESSION_RULE,
    TENANT,
    Kind,
    Stored,
)
from chart.v1 import registry_pb2, registry_pb2_grpc
from chart.v1.platform_settings_pb2 import PlatformSettings
from chart.v1.policy_pb2 import Policy
from chart.v1.sensing_configuration_pb2 import SensingConfiguration
from chart.v1.sensing_mesh_pb2 import SensingMesh
from chart.v1.session_rule_pb2 import SessionRule
from chart.v1.tenant_pb2 import Tenant

M = TypeVar("M", bound=Message)


class RegistryServicer(registry_pb2_grpc.RegistryServicer):
    """Answers chart.v1.Registry."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.planner = mesh_planner.MeshPlanner(pool)
        # What nodes report of their links, as far as this process knows.
        self._reported_bps: dict[str, int] = {}

    async def take_capacity(self, link_id: str, capacity_bps: int) -> None:
        """A node reports what its link carries: the capacity from now on of a link that was stated without one."""
        if self._reported_bps.get(link_id) == capacity_bps:
            return
        async with self._pool.connection() as connection, connection.transaction():
            await repository.lock(connection, LINK, link_id)
            stored = await repository.get(connection, LINK, link_id)
            if stored is not None:
                filled = service.with_reported_capacity(stored.message, capacity_bps)
                if filled != stored.message:
                    await _write(connection, LINK, link_id, filled, stored, "registry")
        self._reported_bps[link_id] = capacity_bps

    async def ensure_built_in(self, first_enforcement: str, *, development: bool = True, measures: bool = True) -> None:
        """Make what exists from the start and is not there: the policy "default" with the mode that this installation
        begins in, the settings of the platform, of which none is set, the tenant "default", which owns everything in
        development alone, the built-in session rules, and the mesh of all nodes.
        """
        await self._ensure(PLATFORM_SETTINGS, PlatformSettings(id=KEY))
        await self._ensure(POLICY, service.default_policy(first_enforcement))
        await self._ensure(TENANT, tenants.default_tenant(everything=development))
        for rule in session_rules.BUILT_IN:
            await self._ensure(SESSION_RULE, rule)
        await self._ensure(SENSING_MESH, meshes.built_in(enabled=measures))

    async def _ensure(self, kind: Kind[Any], message: Any) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            await repository.lock(connection, kind, message.id)
            if await repository.get(connection, kind, message.id) is None:
                await _write(connection, kind, message.id, message, None, "registry")

    async def PutNode(  # noqa: N802 - the names that gRPC generated
        self, request: registry_pb2.PutNodeRequest, context: Any
    ) -> registry_pb2.PutNodeResponse:
        """Create or change a node."""
        node = service.node(request.node)
        node_ends.store(node)
        keep = functools.partial(node_ends.keep_unsaid, request=request)
        actor = rpc.actor(context)
        stored, created = await self._put(NODE, node.id, node, request.expected_revision, {}, actor, keep)
        return registry_pb2.PutNodeResponse(node=stored.message, revision=stored.revision, created=created)

    async def DeleteNode(  # noqa: N802
        self, request: registry_pb2.DeleteNodeRequest, context: Any
    ) -> registry_pb2.DeleteNodeResponse:
        """Delete a node that nothing uses."""
        await self._delete(NODE, request.id, rpc.actor(context))
        return registry_pb2.DeleteNodeResponse()

    async def ListNodes(  # noqa: N802
        self, request: registry_pb2.ListNodesRequest, context: Any
    ) -> registry_pb2.ListNodesResponse:
        """Every node."""
        rows = await self._list(NODE)
        return registry_pb2.ListNodesResponse(
            nodes=[row.message for row in rows], revisions=[row.revision for row in rows]
        )

    async def PutLink(  # noqa: N802
        self, request: registry_pb2.PutLinkRequest, context: Any
    ) -> registry_pb2.PutLinkResponse:
        """Create or change a link between nodes that exist."""
        stated = service.link(request.link)
        link = service.with_reported_capacity(stated, self._reported_bps.get(stated.id, 0))
        ends = {"from_node": link.from_node, "to_node": link.to_node}
        stored, created = await self._put(
            LINK,
            link.id,
            link,
            request.expected_revision,
            ends,
            rpc.actor(context),
            service.keep_reported_capacity,
        )
        return registry_pb2.PutLinkResponse(link=stored.message, revision=stored.revision, created=created)

    async def DeleteLink(  # noqa: N802
        self, request: registry_pb2.DeleteLinkRequest, context: Any
    ) -> registry_pb2.DeleteLinkResponse:
        """Delete a link."""
        await self._delete(LINK, request.id, rpc.actor(context))
        return registry_pb2.DeleteLinkResponse()

    async def ListLinks(  # noqa: N802
        self, request: registry_pb2.ListLinksRequest, context: Any
    ) -> registry_pb2.ListLinksResponse:
        """Every link."""
        rows = await self._list(LINK)
        return registry_pb2.ListLinksResponse(
            links=[row.message for row in rows], revisions=[row.revision for row in rows]
        )

    async def PutPolicy(  # noqa: N802
        self, request: registry_pb2.PutPolicyRequest, context: Any
    ) -> registry_pb2.PutPolicyResponse:
        """Create or change a policy."""
        policy = service.policy(request.policy)
        keep = functools.partial(service.keep_unsaid, request=request)
        actor = rpc.actor(context)
        stored, created = await self._put(POLICY, policy.id, policy, request.expected_revision, {}, actor, keep)
        return registry_pb2.PutPolicyResponse(policy=_numbered(stored), created=created)

    async def DeletePolicy(  # noqa: N802
        self, request: registry_pb2.DeletePolicyRequest, context: Any
    ) -> registry_pb2.DeletePolicyResponse:
        """Delete a node's policy: the node follows the default policy."""
        service.check_policy_deletion(request.id)
        await self._delete(POLICY, request.id, rpc.actor(context))
        return registry_pb2.DeletePolicyResponse()

    async def ListPolicies(  # noqa: N802
        self, request: registry_pb2.ListPoliciesRequest, context: Any
    ) -> registry_pb2.ListPoliciesResponse:
        """Every policy."""
        return registry_pb2.ListPoliciesResponse(policies=[_numbered(row) for row in await self._list(POLICY)])

    async def PutPlatformSettings(  # noqa: N802
        self, request: registry_pb2.PutPlatformSettingsRequest, context: Any
    ) -> registry_pb2.PutPlatformSettingsResponse:
        """Change what holds for the whole platform."""
        settings = platform_settings(request.settings)
        actor = rpc.actor(context)
        stored, _ = await self._put(PLATFORM_SETTINGS, KEY, settings, request.expected_revision, {}, actor)
        return registry_pb2.PutPlatformSettingsResponse(settings=_numbered(stored))

    async def GetPlatformSettings(  # noqa: N802
        self, request: registry_pb2.GetPlatformSettingsRequest, context: Any
    ) -> registry_pb2.GetPlatformSettingsResponse:
        """What is set for the whole platform."""
        (stored,) = await self._list(PLATFORM_SETTINGS)
        return registry_pb2.GetPlatformSettingsResponse(settings=_numbered(stored))

    async def PutSensingConfiguration(  # noqa: N802
        self, request: registry_pb2.PutSensingConfigurationRequest, context: Any
    ) -> registry_pb2.PutSensingConfigurationResponse:
        """Create or change a sensing configuration between nodes that exist."""
        configuration = service.sensing_configuration(request.configuration)
        ends = {"source_node": configuration.source_node, "destination_node": configuration.destination_node}
        stored, created = await self._put(
            SENSING_CONFIGURATION,
            configuration.id,
            configuration,
            request.expected_revision,
            ends,
            rpc.actor(context),
        )
        return registry_pb2.PutSensingConfigurationResponse(configuration=_numbered(stored), created=created)

    async def DeleteSensingConfiguration(  # noqa: N802
        self, request: registry_pb2.DeleteSensingConfigurationRequest, context: Any
    ) -> registry_pb2.DeleteSensingConfigurationResponse:
        """Delete a sensing configuration."""
        service.check_not_of_mesh(request.id)
        await self._delete(SENSING_CONFIGURATION, request.id, rpc.actor(context))
        return registry_pb2.DeleteSensingConfigurationResponse()

    async def ListSensingConfigurations(  # noqa: N802
        self, request: registry_pb2.ListSensingConfigurationsRequest, context: Any
    ) -> registry_pb2.ListSensingConfigurationsResponse:
        """Every sensing configuration, or those of one node."""
        rows = await self._list(SENSING_CONFIGURATION, request.source_node)
        rows = [row for row in rows if request.mesh in ("", row.message.mesh)]
        return registry_pb2.ListSensingConfigurationsResponse(configurations=[_numbered(row) for row in rows])

    async def PutSessionRule(  # noqa: N802
        self, request: registry_pb2.PutSessionRuleRequest, context: Any
    ) -> registry_pb2.PutSessionRuleResponse:
        """Create or change a session rule."""
        rule = session_rules.session_rule(request.rule)
        actor = rpc.actor(context)
        stored, created = await self._put(SESSION_RULE, rule.id, rule, request.expected_revision, {}, actor)
        return registry_pb2.PutSessionRuleResponse(rule=_numbered(stored), created=created)

    async def DeleteSessionRule(  # noqa: N802
        self, request: registry_pb2.DeleteSessionRuleRequest, context: Any
    ) -> registry_pb2.DeleteSessionRuleResponse:
        """Delete a session rule that is not built in."""
        refusal = session_rules.built_in_stays(request.id)
        if refusal is not None:
            raise refusal
        await self._delete(SESSION_RULE, request.id, rpc.actor(context))
        return registry_pb2.DeleteSessionRuleResponse()

    async def ListSessionRules(  # noqa: N802
        self, request: registry_pb2.ListSessionRulesRequest, context: Any
    ) -> registry_pb2.ListSessionRulesResponse:
        """Every session rule."""
        return registry_pb2.ListSessionRulesResponse(rules=[_numbered(row) for row in await self._list(SESSION_RULE)])

    async def PutSensingMesh(  # noqa: N802
        self, request: registry_pb2.PutSensingMeshRequest, context: Any
    ) -> registry_pb2.PutSensingMeshResponse:
        """Create or change a mesh; its configurations follow within a second."""
        mesh = meshes.sensing_mesh(request.mesh)
        actor = rpc.actor(context)
        stored, created = await self._put(SENSING_MESH, mesh.id, mesh, request.expected_revision, {}, actor)
        return registry_pb2.PutSensingMeshResponse(mesh=_numbered(stored), created=created)

    async def DeleteSensingMesh(  # noqa: N802
        self, request: registry_pb2.DeleteSensingMeshRequest, context: Any
    ) -> registry_pb2.DeleteSensingMeshResponse:
        """Delete a mesh that is not built in, with its configurations."""
        meshes.check_deletion(request.id)
        await self._delete(SENSING_MESH, request.id, rpc.actor(context))
        return registry_pb2.DeleteSensingMeshResponse()

    async def ListSensingMeshes(  # noqa: N802
        self, request: registry_pb2.ListSensingMeshesRequest, context: Any
    ) -> registry_pb2.ListSensingMeshesResponse:
        """Every mesh, and what it was laid out to last."""
        rows = await self._list(SENSING_MESH)
        return registry_pb2.ListSensingMeshesResponse(
            meshes=[_numbered(row) for row in rows], plans=[self.planner.plan_of(row.message.id) for row in rows]
        )

    async def PutTenant(  # noqa: N802
        self, request: registry_pb2.PutTenantRequest, context: Any
    ) -> registry_pb2.PutTenantResponse:
        """Create or change a tenant of nodes that exist, with members that no other tenant has."""
        tenant = tenants.tenant(request.tenant)
        nodes = {f"ends[{index}].node": end.node for index, end in enumerate(tenant.ends) if end.node}
        stored, created = await self._put(
            TENANT, tenant.id, tenant, request.expected_revision, nodes, rpc.actor(context), alone=tenants.members_apart
        )
        return registry_pb2.PutTenantResponse(tenant=_numbered(stored), created=created)

    async def DeleteTenant(  # noqa: N802
        self, request: registry_pb2.DeleteTenantRequest, context: Any
    ) -> registry_pb2.DeleteTenantResponse:
        """Delete a tenant: its members belong to the tenant "default"."""
        tenants.check_deletion(request.id)
        await self._delete(TENANT, request.id, rpc.actor(context))
        return registry_pb2.DeleteTenantResponse()

    async def ListTenants(  # noqa: N802
        self, request: registry_pb2.ListTenantsRequest, context: Any
    ) -> registry_pb2.ListTenantsResponse:
        """Every tenant."""
        return registry_pb2.ListTenantsResponse(tenants=[_numbered(row) for row in await self._list(TENANT)])

    async def remove_over(self, before_us: int, most: int = 1000) -> int:
        """Delete sensing configurations whose validity ended before then; returns how many."""
        async with self._pool.connection() as connection:
            identities = await repository.over(connection, before_us, most)
        removed = 0
        for identity in identities:
            async with self._pool.connection() as connection, connection.transaction():
                await repository.lock(connection, SENSING_CONFIGURATION, identity)
                stored = await repository.get(connection, SENSING_CONFIGURATION, identity)
                # Renewed or deleted meanwhile.
                if stored is None or not 0 < stored.message.valid_until_us <= before_us:
                    continue
                await _remove(connection, SENSING_CONFIGURATION, identity, stored, "registry")
                removed += 1
        return removed

    async def _put(
        self,
        kind: Kind[M],
        identity: str,
        message: M,
        expected: int,
        nodes: dict[str, str],
        actor: str,
        keep: Callable[[M, M], M] | None = None,
        alone: Callable[[M, list[M]], None] | None = None,
    ) -> tuple[Stored[M], bool]:
        """Store an entity; ``nodes`` are the nodes it names, by field. Stating what is stored already changes nothing.

        ``keep`` makes of the new message and the stored one what is stored instead; ``alone`` compares the message with
        all others of its kind, none of which changes meanwhile.

        Raises:
            RefusalError: unknown node, or another revision than expected.
        """
        async with self._pool.connection() as connection, connection.transaction():
            if alone is not None:
                await repository.lock(connection, kind, "")
                alone(message, [one.message for one in await repository.listing(connection, kind)])
            await repository.lock(connection, kind, identity)
            stored = await repository.get(connection, kind, identity)
            if keep is not None and stored is not None:
                message = keep(message, stored.message)
            if stored is not None and stored.message == message:
                # Also the answer to a call that was repeated because its first answer got lost.
                return stored, False
            service.check_revision(kind.name, identity, expected, None if stored is None else stored.revision)
            for field, node in nodes.items():
                if not await repository.keep_node(connection, node):
                    raise service.unknown_node(field, node, await repository.ids(connection, NODE))
            return await _write(connection, kind, identity, message, stored, actor), stored is None

    async def _delete(self, kind: Kind[M], identity: str, actor: str) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            await repository.lock(connection, kind, identity)
            stored = await repository.get(connection, kind, identity)
            if stored is None:
                raise not_found(kind.name, identity, await repository.ids(connection, kind))
            if kind.table == NODE.table:
                refusal = service.node_in_use(identity, *await repository.users_of_node(connection, identity))
                if refusal is not None:
                    raise refusal
                await mesh_planner.remove(connection, node=identity)
            if kind.table == SENSING_MESH.table:
                await mesh_planner.remove(connection, mesh=identity)
            await _remove(connection, kind, identity, stored, actor)

    async def _list(self, kind: Kind[M], source_node: str = "") -> list[Stored[M]]:
        async with self._pool.connection() as connection:
            return await repository.listing(connection, kind, source_node)


async def _remove(connection: Connection, kind: Kind[M], identity: str, stored: Stored[M], actor: str) -> None:
    """Row, audit row and outgoing tombstone of one deletion."""
    await repository.delete(connection, kind, identity)
    await audit.add(connection, actor, f"{kind.table}.delete", identity, {"before": _json(stored)})
    await streams.announce(connection, kind, identity, None)


async def _write(
    connection: Connection, kind: Kind[M], identity: str, message: M, before: Stored[M] | None, actor: str
) -> Stored[M]:
    """Row, audit row and outgoing record of one change."""
    stored = Stored(message, await repository.next_revision(connection))
    await repository.put(connection, kind, identity, message, stored.revision)
    change = {"before": _json(before), "after": _json(stored)}
    await audit.add(connection, actor, f"{kind.table}.put", identity, change)
    await streams.announce(connection, kind, identity, stored)
    return stored


def _json(stored: Stored[M] | None) -> dict[str, Any] | None:
    if stored is None:
        return None
    return {
        "revision": stored.revision,
        **json_format.MessageToDict(stored.message, preserving_proto_field_name=True),
    }


P = TypeVar("P", PlatformSettings, Policy, SensingConfiguration, SensingMesh, SessionRule, Tenant)


def _numbered(stored: Stored[P]) -> P:
    """The message with its revision in it."""
    numbered = streams.value_of(stored.message, stored.revision)
    assert isinstance(numbered, type(stored.message))
    return numbered
