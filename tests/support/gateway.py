"""A gateway over a local broker, with small in-memory services behind it, for tests of the gateway and its clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import uvicorn
from fastapi import FastAPI

from chart.common import rpc
from chart.common.rpc_errors import RefusalError, conflict, invalid, not_found
from chart.common.settings import BaseServiceSettings
from chart.common.streams import LocalBroker
from chart.gateway.api import attach, create_app
from chart.gateway.context import Gateway
from chart.gateway.main import listen
from chart.gateway.service import running
from chart.gateway.settings import GatewaySettings
from chart.registry import mesh_layout, meshes, node_ends, session_rules
from chart.registry import service as registry_service
from chart.registry import tenants as registry_tenants
from chart.registry.platform_settings import platform_settings
from chart.reservations.decisions import validation
from chart.reservations.store import allowances
from chart.v1 import (
    archive_pb2,
    archive_pb2_grpc,
    node_state_pb2,
    path_table_pb2,
    platform_settings_pb2,
    registry_pb2,
    registry_pb2_grpc,
    reservations_pb2,
    tunnels_pb2_grpc,
)
from chart.v1 import grant_status_pb2 as status
from chart.v1 import rate_request_pb2 as rr
from chart.v1 import reservations_pb2_grpc as reservations_grpc
from support import sensing
from support.memory_authority import NOW_US as NOW_US
from support.memory_authority import MemoryAuthority
from support.tunnels import MemoryTunnels
from support.waiting import eventually

CAPACITY_BPS = 100_000_000


@dataclass
class MemoryRegistry(registry_pb2_grpc.RegistryServicer):
    """Nodes, links, policies, sensing configurations, session rules in dictionaries: id -> (message, revision)."""

    broker: LocalBroker
    tables: dict[str, dict[str, tuple[Any, int]]] = field(
        default_factory=lambda: {
            table: {}
            for table in (
                *("node", "link", "policy", "configuration", "session rule", "sensing mesh", "tenant"),
                "platform settings",
            )
        }
    )

    def _put(self, table: str, message: Any, expected: int) -> tuple[Any, int, bool]:
        rows = self.tables[table]
        known = rows.get(message.id)
        if expected and (known is None or known[1] != expected):
            raise conflict(f"{table} {message.id} has another revision")
        revision = known[1] + 1 if known else 1
        if hasattr(message, "revision"):
            message.revision = revision
        rows[message.id] = (message, revision)
        return message, revision, known is None

    def _delete(self, table: str, identity: str) -> None:
        if self.tables[table].pop(identity, None) is None:
            raise not_found(table, identity)

    async def PutNode(self, request: Any, context: Any) -> Any:  # noqa: N802
        node_ends.store(request.node)
        before = self.tables["node"].get(request.node.id)
        stated = node_ends.keep_unsaid(request.node, before[0], request) if before else request.node
        node, revision, created = self._put("node", stated, request.expected_revision)
        return registry_pb2.PutNodeResponse(node=node, revision=revision, created=created)

    async def DeleteNode(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._delete("node", request.id)
        return registry_pb2.DeleteNodeResponse()

    async def ListNodes(self, request: Any, context: Any) -> Any:  # noqa: N802
        rows = self.tables["node"].values()
        return registry_pb2.ListNodesResponse(nodes=[row[0] for row in rows], revisions=[row[1] for row in rows])

    async def PutLink(self, request: Any, context: Any) -> Any:  # noqa: N802
        link, revision, created = self._put("link", request.link, request.expected_revision)
        return registry_pb2.PutLinkResponse(link=link, revision=revision, created=created)

    async def DeleteLink(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._delete("link", request.id)
        return registry_pb2.DeleteLinkResponse()

    async def ListLinks(self, request: Any, context: Any) -> Any:  # noqa: N802
        rows = self.tables["link"].values()
        return registry_pb2.ListLinksResponse(links=[row[0] for row in rows], revisions=[row[1] for row in rows])

    async def PutPolicy(self, request: Any, context: Any) -> Any:  # noqa: N802
        before = self.tables["policy"].get(request.policy.id)
        if request.keep_customer_weights and before is not None:
            request.policy.customer_weights.update(before[0].customer_weights)
        policy, _, created = self._put("policy", request.policy, request.expected_revision)
        return registry_pb2.PutPolicyResponse(policy=policy, created=created)

    async def DeletePolicy(self, request: Any, context: Any) -> Any:  # noqa: N802
        registry_service.check_policy_deletion(request.id)
        self._delete("policy", request.id)
        return registry_pb2.DeletePolicyResponse()

    async def ListPolicies(self, request: Any, context: Any) -> Any:  # noqa: N802
        return registry_pb2.ListPoliciesResponse(policies=[row[0] for row in self.tables["policy"].values()])

    async def PutSensingConfiguration(self, request: Any, context: Any) -> Any:  # noqa: N802
        item, _, created = self._put("configuration", request.configuration, request.expected_revision)
        return registry_pb2.PutSensingConfigurationResponse(configuration=item, created=created)

    async def DeleteSensingConfiguration(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._delete("configuration", request.id)
        return registry_pb2.DeleteSensingConfigurationResponse()

    async def ListSensingConfigurations(self, request: Any, context: Any) -> Any:  # noqa: N802
        rows = [row[0] for row in self.tables["configuration"].values()]
        found = [row for row in rows if request.source_node in ("", row.source_node) and request.mesh in ("", row.mesh)]
        return registry_pb2.ListSensingConfigurationsResponse(configurations=found)

    async def PutSessionRule(self, request: Any, context: Any) -> Any:  # noqa: N802
        stated = session_rules.session_rule(request.rule)
        rule, _, created = self._put("session rule", stated, request.expected_revision)
        return registry_pb2.PutSessionRuleResponse(rule=rule, created=created)

    async def DeleteSessionRule(self, request: Any, context: Any) -> Any:  # noqa: N802
        refusal = session_rules.built_in_stays(request.id)
        if refusal is not None:
            raise refusal
        self._delete("session rule", request.id)
        return registry_pb2.DeleteSessionRuleResponse()

    async def ListSessionRules(self, request: Any, context: Any) -> Any:  # noqa: N802
        rows = self.tables["session rule"].values()
        return registry_pb2.ListSessionRulesResponse(rules=[row[0] for row in rows])

    async def PutSensingMesh(self, request: Any, context: Any) -> Any:  # noqa: N802
        stated = meshes.sensing_mesh(request.mesh)
        mesh, _, created = self._put("sensing mesh", stated, request.expected_revision)
        return registry_pb2.PutSensingMeshResponse(mesh=mesh, created=created)

    async def DeleteSensingMesh(self, request: Any, context: Any) -> Any:  # noqa: N802
        meshes.check_deletion(request.id)
        self._delete("sensing mesh", request.id)
        return registry_pb2.DeleteSensingMeshResponse()

    async def ListSensingMeshes(self, request: Any, context: Any) -> Any:  # noqa: N802
        known = [row[0] for row in self.tables["sensing mesh"].values()]
        nodes = [row[0] for row in self.tables["node"].values()]
        plans = [mesh_layout.plan(mesh, nodes, [], {node.id for node in nodes}).shown for mesh in known]
        return registry_pb2.ListSensingMeshesResponse(meshes=known, plans=plans)

    async def PutPlatformSettings(self, request: Any, context: Any) -> Any:  # noqa: N802
        stated = platform_settings(request.settings)
        settings, _, _ = self._put("platform settings", stated, request.expected_revision)
        return registry_pb2.PutPlatformSettingsResponse(settings=settings)

    async def GetPlatformSettings(self, request: Any, context: Any) -> Any:  # noqa: N802
        if not self.tables["platform settings"]:
            self._put("platform settings", platform_settings(platform_settings_pb2.PlatformSettings()), 0)
        return registry_pb2.GetPlatformSettingsResponse(settings=self.tables["platform settings"]["platform"][0])

    async def PutTenant(self, request: Any, context: Any) -> Any:  # noqa: N802
        stated = registry_tenants.tenant(request.tenant)
        registry_tenants.members_apart(stated, [row[0] for row in self.tables["tenant"].values()])
        tenant, _, created = self._put("tenant", stated, request.expected_revision)
        return registry_pb2.PutTenantResponse(tenant=tenant, created=created)

    async def DeleteTenant(self, request: Any, context: Any) -> Any:  # noqa: N802
        registry_tenants.check_deletion(request.id)
        self._delete("tenant", request.id)
        return registry_pb2.DeleteTenantResponse()

    async def ListTenants(self, request: Any, context: Any) -> Any:  # noqa: N802
        return registry_pb2.ListTenantsResponse(tenants=[row[0] for row in self.tables["tenant"].values()])


@dataclass
class MemoryReservations(reservations_grpc.ReservationsServicer):
    """Grants up to CAPACITY_BPS in all, over one path; each grant is enforced at once by node alpha."""

    broker: LocalBroker
    requests: dict[str, Any] = field(default_factory=dict)
    by_key: dict[tuple[str, str], tuple[bytes, str]] = field(default_factory=dict)
    kept: dict[tuple[str, str, str], tuple[bytes, Any]] = field(default_factory=dict)
    enforce: bool = True
    # Nodes and addresses that requests may be for; who asked, by request.
    known: set[str] = field(default_factory=lambda: {"alpha", "delta"})
    callers: dict[str, Any] = field(default_factory=dict)
    quotas: dict[str, Any] = field(default_factory=dict)
    allowances: dict[str, tuple[float, float]] = field(default_factory=dict)

    def _free_bps(self) -> int:
        active = [one for one in self.requests.values() if one.lifecycle == rr.LIFECYCLE_ACTIVE]
        granted_bps: int = sum(one.granted_bps for one in active)
        return CAPACITY_BPS - granted_bps

    def _admit(self, asked: Any) -> None:
        validation.understood(asked)
        for name in ("source", "destination"):
            if getattr(asked, name) not in self.known:
                raise invalid(name, f"{getattr(asked, name)!r} is no known node", "alpha", "delta", code="unknown-node")
        if asked.guaranteed_bps > self._free_bps():
            raise RefusalError(
                reservations_pb2.Refusal(
                    code="insufficient-capacity",
                    detail="link alpha:to-delta has less left",
                    field="guaranteed_bps",
                    bottleneck_link_id="alpha:to-delta",
                    ceiling_bps=self._free_bps(),
                    suggestions=[f"ask for at most {self._free_bps()} bit/s"],
                )
            )

    async def CreateRateRequest(self, request: Any, context: Any) -> Any:  # noqa: N802
        body = request.specification.SerializeToString(deterministic=True)
        key = (request.owner, request.idempotency_key)
        if key in self.by_key:
            known_body, identity = self.by_key[key]
            if known_body != body:
                raise RefusalError(
                    reservations_pb2.Refusal(
                        code="idempotency-key-reused", detail="another body came with it", field="idempotency_key"
                    )
                )
            return reservations_pb2.CreateRateRequestResponse(rate_request=self.requests[identity], replayed=True)
        self._admit(request.specification)
        made = rr.RateRequest(
            id=f"request-{len(self.requests) + 1}",
            revision=1,
            owner=request.owner,
            specification=request.specification,
            lifecycle=rr.LIFECYCLE_ACTIVE,
            enforcement=rr.ENFORCEMENT_ENFORCED if self.enforce else rr.ENFORCEMENT_PENDING,
            service_state=rr.SERVICE_STATE_GRANTED,
            callback_state=rr.CALLBACK_STATE_NONE,
            granted_bps=request.specification.guaranteed_bps,
            link_ids=["alpha:to-delta"],
            created_at_us=NOW_US,
            updated_at_us=NOW_US,
            enforced_at_us=NOW_US + 50_000 if self.enforce else 0,
            confirming_nodes=["alpha"],
        )
        made.selector.source_prefix = "10.1.0.1/32"
        if self.enforce:
            made.confirmations.add(
                request_id=made.id, node="alpha", state=status.GRANT_STATE_APPLIED, kernel_rate_bps=made.granted_bps
            )
        self.requests[made.id] = made
        self.callers[made.id] = request.caller
        self.by_key[key] = (body, made.id)
        await self.broker.publish("chart.rate-request.v1", made.id, made)
        return reservations_pb2.CreateRateRequestResponse(rate_request=made)

    async def PreviewRateRequest(self, request: Any, context: Any) -> Any:  # noqa: N802
        try:
            self._admit(request.specification)
        except validation.ContradictionError:
            raise
        except RefusalError as error:
            return reservations_pb2.PreviewRateRequestResponse(refusal=error.refusal, ceiling_bps=self._free_bps())
        return reservations_pb2.PreviewRateRequestResponse(
            granted=True, granted_bps=request.specification.guaranteed_bps, link_ids=["alpha:to-delta"]
        )

    def _find(self, identity: str, owner: str) -> Any:
        found = self.requests.get(identity)
        if found is None or (owner and found.owner != owner):
            raise not_found("rate request", identity)
        return found

    async def GetRateRequest(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.looked = request
        return reservations_pb2.GetRateRequestResponse(rate_request=self._find(request.id, request.owner))

    async def ListRateRequests(self, request: Any, context: Any) -> Any:  # noqa: N802
        mine = [one for one in self.requests.values() if request.owner in ("", one.owner)]
        mine = [one for one in mine if request.tags.items() <= dict(one.specification.tags).items()]
        wanted = [one for one in mine if request.lifecycle in (0, one.lifecycle)]
        begin = int(request.cursor) if request.cursor.isdecimal() else 0
        shown = wanted[begin : begin + request.page_size]
        more = str(begin + len(shown)) if begin + len(shown) < len(wanted) else ""
        return reservations_pb2.ListRateRequestsResponse(rate_requests=shown, next_cursor=more)

    async def ReleaseRateRequest(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = self._find(request.id, request.owner)
        found.lifecycle = rr.LIFECYCLE_RELEASED
        found.revision += 1
        await self.broker.publish("chart.rate-request.v1", found.id, found)
        return reservations_pb2.ReleaseRateRequestResponse(rate_request=found)

    async def CommitRateRequest(self, request: Any, context: Any) -> Any:  # noqa: N802
        return reservations_pb2.CommitRateRequestResponse(rate_request=self._find(request.id, request.owner))

    async def ChangeRateRequest(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = self._find(request.id, request.owner)
        if request.expected_revision and request.expected_revision != found.revision:
            raise conflict(f"revision {found.revision}")
        if request.guaranteed_bps > self._free_bps() + found.granted_bps:
            refusal = reservations_pb2.Refusal(code="insufficient-capacity", detail="less left", field="guaranteed_bps")
            if not request.preview:
                raise RefusalError(refusal)
            return reservations_pb2.ChangeRateRequestResponse(
                preview=reservations_pb2.PreviewRateRequestResponse(refusal=refusal)
            )
        if not request.preview:
            if request.HasField("guaranteed_bps"):
                found.granted_bps = found.specification.guaranteed_bps = request.guaranteed_bps
            found.specification.end_us = request.end_us
            found.revision += 1
        preview = reservations_pb2.PreviewRateRequestResponse(granted=True, granted_bps=found.granted_bps)
        return reservations_pb2.ChangeRateRequestResponse(rate_request=found, preview=preview)

    async def DrawAllowance(self, request: Any, context: Any) -> Any:  # noqa: N802
        now = time.monotonic()
        tokens, at = self.allowances.get(request.name, (request.burst, now))
        left, drawn = allowances.draw(
            tokens, now - at, need=request.need, want=request.want, per_s=request.per_s, burst=request.burst
        )
        self.allowances[request.name] = (left, now)
        return reservations_pb2.DrawAllowanceResponse(given=drawn.given, left=drawn.left, wait_s=drawn.wait_s)

    async def ClaimAnswer(self, request: Any, context: Any) -> Any:  # noqa: N802
        place = (request.owner, request.operation, request.key)
        if place not in self.kept:
            self.kept[place] = (request.fingerprint, None)
            return reservations_pb2.ClaimAnswerResponse(claim="c")
        fingerprint, answer = self.kept[place]
        if fingerprint != request.fingerprint:
            raise RefusalError(
                reservations_pb2.Refusal(code="idempotency-key-reused", detail="another body", field="idempotency_key")
            )
        return reservations_pb2.ClaimAnswerResponse(answer=answer)

    async def KeepAnswer(self, request: Any, context: Any) -> Any:  # noqa: N802
        place = (request.owner, request.operation, request.key)
        if request.HasField("answer"):
            self.kept[place] = (self.kept[place][0], request.answer)
        else:
            del self.kept[place]
        return reservations_pb2.KeepAnswerResponse()

    async def GetReceipt(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = self._find(request.id, request.owner)
        receipt = reservations_pb2.Receipt(
            request_id=found.id, owner=found.owner, lifecycle=found.lifecycle, created_at_us=NOW_US, start_us=NOW_US
        )
        receipt.rates.add(from_us=NOW_US, granted_bps=found.granted_bps, service_state=found.service_state)
        receipt.nodes.add(node="alpha", sent_bytes=10, delivered_bytes=9, applied_at_us=NOW_US)
        return reservations_pb2.GetReceiptResponse(receipt=receipt)

    async def ListCallbacks(self, request: Any, context: Any) -> Any:  # noqa: N802
        return reservations_pb2.ListCallbacksResponse(callbacks=[self._callback()])

    async def RetryCallback(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.id != "msg_1":
            raise not_found("callback", request.id)
        return reservations_pb2.RetryCallbackResponse(callback=self._callback())

    def _callback(self) -> Any:
        return reservations_pb2.Callback(
            id="msg_1",
            request_id="request-1",
            event="rate-request.granted",
            url="http://127.0.0.1:9/",
            state=rr.CALLBACK_STATE_PENDING,
            created_at_us=NOW_US,
            next_attempt_us=NOW_US,
            body="{}",
        )

    async def GetCallbackSecret(self, request: Any, context: Any) -> Any:  # noqa: N802
        return reservations_pb2.GetCallbackSecretResponse(secret="whsec_AAAA", created_at_us=NOW_US)

    async def PutQuota(self, request: Any, context: Any) -> Any:  # noqa: N802
        before = self.quotas.get(request.quota.owner)
        if request.expected_revision and (before is None or before.revision != request.expected_revision):
            raise conflict("another revision")
        request.quota.revision = before.revision + 1 if before else 1
        self.quotas[request.quota.owner] = request.quota
        return reservations_pb2.PutQuotaResponse(quota=request.quota, created=before is None)

    async def DeleteQuota(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.quotas.pop(request.owner, None) is None:
            raise not_found("quota", request.owner)
        return reservations_pb2.DeleteQuotaResponse()

    async def ListQuotas(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = list(self.quotas.values())
        return reservations_pb2.ListQuotasResponse(
            quotas=found, uses=[reservations_pb2.QuotaUse(requests=1, total_bps=5) for _ in found]
        )

    async def FindPaths(self, request: Any, context: Any) -> Any:  # noqa: N802
        for name in ("source", "destination"):
            if getattr(request, name) not in ("alpha", "delta"):
                raise invalid(name, f"{getattr(request, name)!r} is no known node", code="unknown-node")
        path = reservations_pb2.FoundPath(
            kinds=[reservations_pb2.PATH_KIND_WIDEST_SHORTEST],
            link_ids=["alpha:to-delta"],
            node_ids=["alpha", "delta"],
            free_bps=self._free_bps(),
            admissible_bps=CAPACITY_BPS,
            bottleneck_link_id="alpha:to-delta",
            source=reservations_pb2.PATH_SOURCE_ROUTED,
        )
        return reservations_pb2.FindPathsResponse(paths=[path])

    async def GetLinkCapacity(self, request: Any, context: Any) -> Any:  # noqa: N802
        if request.link_id != "alpha:to-delta":
            raise not_found("link", request.link_id)
        answer = reservations_pb2.GetLinkCapacityResponse(capacity_bps=CAPACITY_BPS, admissible_bps=CAPACITY_BPS)
        answer.steps.add(start_us=request.start_us or NOW_US, free_bps=self._free_bps())
        return answer


class MemoryArchive(sensing.MemoryBackplane):
    """One measurement, a series of two points with a hole, an overlay of one link that failed."""

    async def ListOverlayEvents(self, request: Any, context: Any) -> Any:  # noqa: N802
        event = node_state_pb2.OverlayEvent(
            sequence=1,
            at_us=NOW_US,
            kind=node_state_pb2.OVERLAY_EVENT_KIND_LINK_FAILED,
            link_id="alpha:to-delta",
            rtt_us=1500,
        )
        found = request.node in ("", "alpha") and request.link_id in ("", event.link_id) and not request.owner
        events = [archive_pb2.NodeOverlayEvent(node="alpha", agent_instance="1", event=event)] if found else []
        return archive_pb2.ListOverlayEventsResponse(events=events)

    async def GetOverlayAt(self, request: Any, context: Any) -> Any:  # noqa: N802
        events = await self.ListOverlayEvents(archive_pb2.ListOverlayEventsRequest(), context)
        return archive_pb2.GetOverlayAtResponse(tables=[alpha_table()], events=events.events)

    async def QuerySeries(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = archive_pb2.QuerySeriesResponse(unit="bps")
        answer.points.add(at_us=request.from_us, value=5.0, minimum=4.0, maximum=6.0, count=3)
        answer.points.add(at_us=request.from_us + 1_000_000)
        return answer

    async def ListLatestMeasurements(self, request: Any, context: Any) -> Any:  # noqa: N802
        answer = archive_pb2.ListLatestMeasurementsResponse()
        answer.measurements.add(
            source_node="alpha",
            destination_node="delta",
            metric="rtt_us",
            sensor="ping",
            value=1234.5,
            unit="us",
            measured_at_us=NOW_US,
        )
        return answer


def alpha_table() -> path_table_pb2.PathTable:
    """Of alpha, which has one link, to delta."""
    link = path_table_pb2.OverlayLink(
        link_id="alpha:to-delta", neighbour="delta", local_address="10.0.1.1", remote_address="10.0.1.2"
    )
    path = path_table_pb2.OverlayPath(colour=0, next_hops=[link.link_id])
    delta = path_table_pb2.OverlayOwner(node="delta", prefixes=["10.20.0.0/16"], paths=[path])
    alpha = path_table_pb2.OverlayOwner(node="alpha", prefixes=["10.1.0.1/32"])
    return path_table_pb2.PathTable(node="alpha", generation=3, links=[link], owners=[delta, alpha])


@dataclass
class World:
    """A running gateway and what stands behind it."""

    gateway: Gateway
    app: FastAPI
    broker: LocalBroker
    registry: MemoryRegistry
    reservations: MemoryReservations
    client: httpx.AsyncClient
    tunnels: MemoryTunnels
    authority: MemoryAuthority

    def token(self, *roles: str, subject: str = "tester") -> str:
        """A token with these roles."""
        assert self.gateway.issuer is not None
        return self.gateway.issuer.issue(subject, roles or ("operator",))[0]

    def headers(self, *roles: str, subject: str = "tester") -> dict[str, str]:
        """The header that carries a token."""
        return {"Authorization": f"Bearer {self.token(*roles, subject=subject)}"}


@asynccontextmanager
async def world(state_dir: Path, **settings: Any) -> AsyncIterator[World]:
    """A gateway in this process; ``client`` speaks to it without a network."""
    broker = LocalBroker()
    registry, reservations, tunnels = MemoryRegistry(broker), MemoryReservations(broker), MemoryTunnels()
    registrations: list[rpc.Registration] = [
        ("chart.v1.Registry", registry_pb2_grpc.add_RegistryServicer_to_server, registry),
        ("chart.v1.Reservations", reservations_grpc.add_ReservationsServicer_to_server, reservations),
        ("chart.v1.Archive", archive_pb2_grpc.add_ArchiveServicer_to_server, MemoryArchive()),
        *((name, add, make()) for name, add, make in sensing.REGISTRATIONS),
        ("chart.v1.Tunnels", tunnels_pb2_grpc.add_TunnelsServicer_to_server, tunnels),
    ]
    async with rpc.serve(registrations, BaseServiceSettings(grpc_listen="127.0.0.1:0")) as server:
        target = f"127.0.0.1:{server.port}"
        chosen = {
            "state_dir": state_dir,
            "web_dir": state_dir / "web",
            "registry_target": target,
            "reservations_target": target,
            "archiver_target": target,
            "tunnels_target": target,
            "inference_target": target,
            **settings,
        }
        async with running(GatewaySettings(**chosen), broker=broker) as gateway:
            authority = MemoryAuthority()
            gateway.authority = cast("Any", authority)
            app = create_app(gateway.settings)
            attach(app, gateway)
            await eventually(lambda: not gateway.followers.missing)
            transport = httpx.ASGITransport(app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
                yield World(gateway, app, broker, registry, reservations, client, tunnels, authority)


@asynccontextmanager
async def listening(place: World) -> AsyncIterator[str]:
    """The same gateway on a free port of loopback, as the real program listens; gives the base address."""
    socket = listen("127.0.0.1:0")
    config = uvicorn.Config(place.app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([socket]))
    try:
        await eventually(lambda: server.started)
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        socket.close()
