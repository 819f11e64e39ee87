"""The registry as a whole: gRPC in, tables and streams out, on a real PostgreSQL and a real Kafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx
import psycopg
import pytest
import pytest_asyncio
from grpc import aio

from chart.common import rpc
from chart.common.rpc import RefusalError
from chart.common.streams import CompactedState, KafkaBroker
from chart.registry.main import serve
from chart.registry.settings import RegistrySettings
from chart.v1 import (
    node_state_pb2,
    platform_settings_pb2,
    policy_pb2,
    registry_pb2,
    registry_pb2_grpc,
    sensing_configuration_pb2,
    session_rule_pb2,
    tenant_pb2,
    topology_pb2,
)
from support.postgres import PostgresServer
from support.processes import free_ports
from support.waiting import eventually

pytestmark = pytest.mark.contract


@dataclass
class Registry:
    """A running registry, the streams it writes, and its database."""

    stub: Any
    topology: CompactedState
    policies: CompactedState
    configurations: CompactedState
    broker: KafkaBroker
    database_url: str
    settings: RegistrySettings

    async def put_node(self, identity: str, expected: int = 0, **fields: Any) -> registry_pb2.PutNodeResponse:
        node = topology_pb2.Node(id=identity, **fields)
        request = registry_pb2.PutNodeRequest(node=node, expected_revision=expected)
        with rpc.refusals():
            answer: registry_pb2.PutNodeResponse = await self.stub.PutNode(
                request, metadata=((rpc.ACTOR_METADATA, "alice"),)
            )
            return answer

    async def put_link(self, identity: str, to_node: str) -> registry_pb2.PutLinkResponse:
        link = topology_pb2.Link(id=identity, to_node=to_node, capacity_bps=10**8)
        with rpc.refusals():
            answer: registry_pb2.PutLinkResponse = await self.stub.PutLink(registry_pb2.PutLinkRequest(link=link))
            return answer


@pytest_asyncio.fixture
async def registry(kafka_bootstrap: str, postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Registry]:
    postgres.truncate("registry")
    grpc_port, http_port = free_ports(2)
    settings = RegistrySettings(
        kafka_bootstrap=kafka_bootstrap,
        database_url=postgres.role_url("registry"),
        grpc_listen=f"127.0.0.1:{grpc_port}",
        http_listen=f"127.0.0.1:{http_port}",
        state_dir=tmp_path,
        registry_keep_over_s=2.0,
    )
    broker = KafkaBroker(kafka_bootstrap)
    running = asyncio.create_task(serve(settings))
    channel = rpc.channel(settings.grpc_listen)
    states = [await broker.compacted(f"chart.{name}.v1") for name in ("topology", "policy", "sensing-configuration")]
    # Also brings the streams, which the tests of this session share, in line with the empty tables.
    await eventually(lambda: [key for key, _ in states[1].items()] == ["default"] and not len(states[0]), 20)
    yield Registry(
        registry_pb2_grpc.RegistryStub(channel),
        states[0],
        states[1],
        states[2],
        broker,
        postgres.role_url("registry"),
        settings,
    )
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await channel.close(None)
    await broker.close()


async def test_the_default_policy_exists_and_is_published(registry: Registry) -> None:
    answer = await registry.stub.ListPolicies(registry_pb2.ListPoliciesRequest())
    (policy,) = answer.policies
    assert (policy.id, policy.link_controller) == ("default", "nec")
    assert policy.enforcement == policy_pb2.EnforcementMode.ENFORCEMENT_MODE_OBSERVE
    await eventually(lambda: registry.policies.get("default") == policy)


async def test_weights_of_customers_stay_when_a_change_does_not_name_them(registry: Registry) -> None:
    enforce = policy_pb2.EnforcementMode.ENFORCEMENT_MODE_ENFORCE
    observe = policy_pb2.EnforcementMode.ENFORCEMENT_MODE_OBSERVE

    async def put(keep: bool, **fields: Any) -> dict[str, int]:
        stated = policy_pb2.Policy(id="weighed", **fields)
        call = registry_pb2.PutPolicyRequest(policy=stated, keep_customer_weights=keep)
        return dict((await registry.stub.PutPolicy(call)).policy.customer_weights)

    def published() -> policy_pb2.Policy | None:
        found = registry.policies.get("weighed")
        return found if isinstance(found, policy_pb2.Policy) else None

    assert await put(True, enforcement=enforce) == {}
    assert await put(False, enforcement=enforce, customer_weights={"gold": 3}) == {"gold": 3}
    assert await put(True, enforcement=observe) == {"gold": 3}
    await eventually(lambda: (now := published()) is not None and now.enforcement == observe)
    now = published()
    assert now is not None
    assert dict(now.customer_weights) == {"gold": 3}
    assert await put(False, enforcement=observe) == {}


async def test_nodes_and_links_are_stored_published_and_removed(registry: Registry) -> None:
    created = await registry.put_node("bravo", addresses=["10.1.0.2"])
    assert created.created
    await registry.put_node("charlie")
    link = await registry.put_link("bravo:to-charlie", "charlie")
    await eventually(lambda: len(registry.topology) == 3)
    entity = registry.topology.get("bravo:to-charlie")
    assert entity == topology_pb2.TopologyEntity(revision=link.revision, link=link.link)
    listed = await registry.stub.ListNodes(registry_pb2.ListNodesRequest())
    assert [node.id for node in listed.nodes] == ["bravo", "charlie"]
    assert listed.revisions[0] == created.revision

    await registry.stub.DeleteLink(registry_pb2.DeleteLinkRequest(id="bravo:to-charlie"))
    await registry.stub.DeleteNode(registry_pb2.DeleteNodeRequest(id="bravo"))
    await eventually(lambda: [key for key, _ in registry.topology.items()] == ["charlie"])


# 200 characters and more.
HOST = ".".join(["node" + "a" * 50, "rack" + "b" * 50, "room" + "c" * 50, "site" + "d" * 20, "example.net"])


async def test_a_link_without_a_capacity_gets_what_its_node_reports(registry: Registry) -> None:
    link = f"{HOST}:eth0"

    async def report(capacity_bps: int, node: str = HOST) -> None:
        state = node_state_pb2.NodeState(node=node, reported_at_us=time.time_ns() // 1000)
        state.interfaces.add(link_id=link, interface="eth0", own_capacity_bps=capacity_bps)
        await registry.broker.publish("chart.node-state.v1", node, state)

    def published() -> tuple[int, bool]:
        entity = registry.topology.get(link)
        assert isinstance(entity, topology_pb2.TopologyEntity)
        return entity.link.capacity_bps, entity.link.capacity_from_interface

    await registry.put_node(HOST)
    await registry.put_node("charlie")
    stated = topology_pb2.Link(id=link, to_node="charlie")
    answer = await registry.stub.PutLink(registry_pb2.PutLinkRequest(link=stated))
    assert (answer.link.capacity_bps, answer.link.capacity_from_interface) == (0, True)
    # Nobody speaks for another node.
    await report(7, node="charlie")
    await report(10**9)
    await eventually(lambda: registry.topology.get(link) is not None and published() == (10**9, True))
    await report(10**8)
    await eventually(lambda: published() == (10**8, True))
    again = await registry.stub.PutLink(registry_pb2.PutLinkRequest(link=stated))
    assert (again.link.capacity_bps, again.created) == (10**8, False)
    await registry.put_link(link, "charlie")
    await report(10**7)
    await eventually(lambda: published() == (10**8, False))


async def test_stating_the_same_again_changes_nothing(registry: Registry) -> None:
    first = await registry.put_node("bravo", description="b")
    again = await registry.put_node("bravo", description="b")
    assert not again.created
    assert again.revision == first.revision
    changed = await registry.put_node("bravo", description="c", expected=first.revision)
    assert changed.revision > first.revision


async def test_a_change_to_an_old_revision_is_aborted_with_the_new_one(registry: Registry) -> None:
    first = await registry.put_node("bravo", description="one")
    second = await registry.put_node("bravo", description="two")
    with pytest.raises(RefusalError, match=f"revision {second.revision}") as caught:
        await registry.put_node("bravo", description="three", expected=first.revision)
    assert caught.value.status is grpc.StatusCode.ABORTED


async def test_of_concurrent_changes_to_one_revision_one_wins(registry: Registry) -> None:
    first = await registry.put_node("bravo")
    outcomes = await asyncio.gather(
        *(registry.put_node("bravo", description=str(number), expected=first.revision) for number in range(8)),
        return_exceptions=True,
    )
    won = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(won) == 1
    await eventually(lambda: registry.topology.get("bravo") is not None)
    await eventually(lambda: registry.topology.get("bravo").revision == won[0].revision)  # type: ignore[union-attr]


async def test_a_node_in_use_is_not_deleted(registry: Registry) -> None:
    await registry.put_node("bravo")
    await registry.put_node("charlie")
    await registry.put_link("bravo:to-charlie", "charlie")
    with pytest.raises(RefusalError) as caught, rpc.refusals():
        await registry.stub.DeleteNode(registry_pb2.DeleteNodeRequest(id="charlie"))
    assert caught.value.status is grpc.StatusCode.FAILED_PRECONDITION
    assert caught.value.refusal.code == "node-in-use"
    assert "bravo:to-charlie" in caught.value.refusal.detail


async def test_a_link_to_an_unknown_node_is_refused_with_those_that_there_are(registry: Registry) -> None:
    await registry.put_node("bravo")
    with pytest.raises(RefusalError) as caught:
        await registry.put_link("bravo:to-nowhere", "nowhere")
    assert caught.value.refusal.field == "to_node"
    assert list(caught.value.refusal.suggestions) == ["bravo"]


async def test_what_is_wrong_or_absent_has_its_own_status(registry: Registry) -> None:
    with pytest.raises(RefusalError) as caught:
        await registry.put_node("Not A Label")
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(RefusalError) as caught, rpc.refusals():
        await registry.stub.DeleteLink(registry_pb2.DeleteLinkRequest(id="no:link"))
    assert caught.value.status is grpc.StatusCode.NOT_FOUND


async def test_sensing_configurations_are_published_and_removed(registry: Registry) -> None:
    await registry.put_node("bravo")
    await registry.put_node("charlie")
    configuration = sensing_configuration_pb2.SensingConfiguration(
        id="c1",
        source_node="bravo",
        destination_node="charlie",
        destination_address="10.1.0.3",
        sensor="ping",
        period_ms=1000,
    )
    answer = await registry.stub.PutSensingConfiguration(
        registry_pb2.PutSensingConfigurationRequest(configuration=configuration)
    )
    assert answer.created
    await eventually(lambda: registry.configurations.get("c1") == answer.configuration)
    of_charlie = registry_pb2.ListSensingConfigurationsRequest(source_node="charlie")
    assert not (await registry.stub.ListSensingConfigurations(of_charlie)).configurations
    await registry.stub.DeleteSensingConfiguration(registry_pb2.DeleteSensingConfigurationRequest(id="c1"))
    await eventually(lambda: "c1" not in registry.configurations)


async def test_session_rules_are_there_from_the_start_and_published(registry: Registry) -> None:
    rules = await registry.broker.compacted("chart.session-rule.v1")
    listing = registry_pb2.ListSessionRulesRequest()
    built_in = {one.id: one for one in (await registry.stub.ListSessionRules(listing)).rules}
    assert sorted(built_in) == ["telephony", "video"]
    await eventually(lambda: dict(rules.items()) == built_in)
    telephony = session_rule_pb2.SessionRule()
    telephony.CopyFrom(built_in["telephony"])
    telephony.enabled = True
    call = registry_pb2.PutSessionRuleRequest(rule=telephony, expected_revision=telephony.revision)
    changed = (await registry.stub.PutSessionRule(call)).rule
    assert changed.revision > telephony.revision
    await eventually(lambda: rules.get("telephony") == changed)
    telephony.delay_class = 7
    with pytest.raises(RefusalError) as late, rpc.refusals():
        await registry.stub.PutSessionRule(registry_pb2.PutSessionRuleRequest(rule=telephony, expected_revision=1))
    assert late.value.status is grpc.StatusCode.ABORTED
    own = session_rule_pb2.SessionRule()
    own.CopyFrom(telephony)
    own.id = "calls"
    assert (await registry.stub.PutSessionRule(registry_pb2.PutSessionRuleRequest(rule=own))).created
    await eventually(lambda: "calls" in rules)
    await registry.stub.DeleteSessionRule(registry_pb2.DeleteSessionRuleRequest(id="calls"))
    await eventually(lambda: "calls" not in rules)
    with pytest.raises(RefusalError) as kept, rpc.refusals():
        await registry.stub.DeleteSessionRule(registry_pb2.DeleteSessionRuleRequest(id="telephony"))
    assert kept.value.refusal.code == "built-in-rule"


async def test_tenants_are_there_from_the_start_and_published(registry: Registry) -> None:
    stream = await registry.broker.compacted("chart.tenant.v1")
    found = (await registry.stub.ListTenants(registry_pb2.ListTenantsRequest())).tenants
    assert [(one.id, len(one.ends)) for one in found] == [("default", 2)]
    await registry.put_node("alpha")
    shop = tenant_pb2.Tenant(id="shop", members=["till"], ends=[tenant_pb2.TenantEnd(node="alpha")])
    made = await registry.stub.PutTenant(registry_pb2.PutTenantRequest(tenant=shop))
    assert made.created
    await eventually(lambda: stream.get("shop") == made.tenant)
    for tenant, code in (
        (tenant_pb2.Tenant(id="other", members=["till"]), "member-of-another"),
        (tenant_pb2.Tenant(id="other", ends=[tenant_pb2.TenantEnd(node="nowhere")]), "unknown-node"),
    ):
        with pytest.raises(RefusalError) as refused, rpc.refusals():
            await registry.stub.PutTenant(registry_pb2.PutTenantRequest(tenant=tenant))
        assert refused.value.refusal.code == code
    await registry.stub.DeleteTenant(registry_pb2.DeleteTenantRequest(id="shop"))
    await eventually(lambda: "shop" not in stream)
    with pytest.raises(RefusalError, match="cannot be deleted"), rpc.refusals():
        await registry.stub.DeleteTenant(registry_pb2.DeleteTenantRequest(id="default"))


async def test_configurations_that_have_long_been_over_are_removed(registry: Registry) -> None:
    now_us = time.time_ns() // 1000
    for node in ("alpha", "bravo"):
        await registry.put_node(node)
    for identity, valid_until_us in (("endless", 0), ("over", now_us - 1_500_000), ("ends", now_us + 60_000_000)):
        configuration = sensing_configuration_pb2.SensingConfiguration(
            id=identity,
            source_node="alpha",
            destination_node="bravo",
            destination_address="10.1.0.2",
            sensor="ping",
            period_ms=1000,
            valid_until_us=valid_until_us,
        )
        await registry.stub.PutSensingConfiguration(
            registry_pb2.PutSensingConfigurationRequest(configuration=configuration)
        )
    listing = registry_pb2.ListSensingConfigurationsRequest()

    async def left() -> list[str]:
        return sorted(one.id for one in (await registry.stub.ListSensingConfigurations(listing)).configurations)

    async def swept() -> bool:
        return await left() == ["endless", "ends"]

    await eventually(swept, 20)
    await eventually(lambda: sorted(key for key, _ in registry.configurations.items()) == ["endless", "ends"], 20)


async def test_a_change_leaves_an_audit_row_and_record(registry: Registry) -> None:
    async with registry.broker.subscribe(["chart.audit.v1"]) as audits:
        await registry.put_node("bravo", description="seen")
        async with asyncio.timeout(10):
            record = await anext(audits)
    assert record.key == "bravo"
    audit: Any = record.value
    assert (audit.actor, audit.action, audit.subject) == ("alice", "node.put", "bravo")
    assert "seen" in audit.detail_json
    async with await psycopg.AsyncConnection.connect(registry.database_url) as connection:
        cursor = await connection.execute("SELECT actor FROM audit WHERE subject = 'bravo'")
        assert await cursor.fetchall() == [("alice",)]


async def test_streams_that_differ_are_written_again_at_the_start(registry: Registry) -> None:
    from chart.common import database
    from chart.registry import streams

    node = await registry.put_node("bravo")
    await eventually(lambda: "bravo" in registry.topology)
    await registry.broker.publish("chart.topology.v1", "bravo", None)
    stale = topology_pb2.TopologyEntity(revision=1, link=topology_pb2.Link(id="old:link"))
    await registry.broker.publish("chart.topology.v1", "old:link", stale)
    await eventually(lambda: "bravo" not in registry.topology and "old:link" in registry.topology)
    async with database.pool(registry.settings) as pool:
        assert await streams.reconcile(pool, registry.broker) == 2
    await eventually(lambda: "bravo" in registry.topology and "old:link" not in registry.topology)
    assert registry.topology.get("bravo") == topology_pb2.TopologyEntity(revision=node.revision, node=node.node)


async def test_a_database_that_is_away_is_said_and_found_again(registry: Registry, postgres: PostgresServer) -> None:
    await registry.put_node("bravo")
    postgres.stop()
    try:
        with pytest.raises(aio.AioRpcError) as caught:
            await registry.put_node("charlie")
        assert caught.value.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://{registry.settings.http_listen}/readyz")
        assert answer.status_code == 503
        assert "database" in answer.json()["checks"]
    finally:
        postgres.start()

    async def accepted() -> bool:
        try:
            await registry.put_node("charlie")
        except aio.AioRpcError:
            return False
        return True

    await eventually(accepted, 30)
    await eventually(lambda: "charlie" in registry.topology, 30)


async def test_platform_settings_are_there_from_the_start_kept_and_published(registry: Registry) -> None:
    stream = await registry.broker.compacted("chart.platform-settings.v1")
    first = (await registry.stub.GetPlatformSettings(registry_pb2.GetPlatformSettingsRequest())).settings
    await eventually(lambda: stream.get("platform") == first)
    assert not first.HasField("oversubscription")
    wanted = platform_settings_pb2.PlatformSettings(oversubscription=2, inference_active_pairs=0)
    call = registry_pb2.PutPlatformSettingsRequest(settings=wanted, expected_revision=first.revision)
    changed = (await registry.stub.PutPlatformSettings(call)).settings
    assert (changed.oversubscription, changed.HasField("inference_active_pairs")) == (2, True)
    await eventually(lambda: stream.get("platform") == changed)
    assert (await registry.stub.GetPlatformSettings(registry_pb2.GetPlatformSettingsRequest())).settings == changed
    call.settings.oversubscription = 5
    with pytest.raises(RefusalError) as late, rpc.refusals():
        await registry.stub.PutPlatformSettings(call)
    assert late.value.status is grpc.StatusCode.ABORTED
