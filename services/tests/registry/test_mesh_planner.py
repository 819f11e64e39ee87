"""Meshes become sensing configurations in table and stream as sensor pods come and go: real PostgreSQL, real Kafka."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import grpc
import psycopg
import pytest
import pytest_asyncio

from chart.common import rpc
from chart.common.rpc import RefusalError
from chart.common.streams import CompactedState, KafkaBroker
from chart.registry import lease_giver, mesh_planner
from chart.registry.main import serve
from chart.registry.probe_leases import budget_of
from chart.registry.settings import RegistrySettings
from chart.v1 import registry_pb2 as pb
from chart.v1 import registry_pb2_grpc
from chart.v1.probe_lease_pb2 import ProbeLeases
from chart.v1.sensing_configuration_pb2 import SensingConfiguration
from chart.v1.sensing_mesh_pb2 import MeshPlan, MeshSensor, SensingMesh
from chart.v1.sensor_pod_state_pb2 import ProbedLink, SensorPodState
from chart.v1.topology_pb2 import Link, Node
from chart.v1.wanted_pairs_pb2 import WantedPair, WantedPairs
from support.postgres import PostgresServer
from support.processes import free_ports
from support.waiting import eventually

pytestmark = pytest.mark.contract

NODES = ("mesh-a", "mesh-b", "mesh-c")


class Place:
    """A running registry, the stream of configurations, and sensor pods that report."""

    def __init__(self, stub: Any, configurations: CompactedState, broker: KafkaBroker, database_url: str) -> None:
        self.stub = stub
        self.configurations = configurations
        self.broker = broker
        self.database_url = database_url
        self.reporting: set[str] = set()
        self.probes: dict[str, list[ProbedLink]] = {}

    async def report(self) -> None:
        """Every pod that is there reports, as pods do, for ever."""
        while True:
            for node in sorted(self.reporting):
                state = SensorPodState(
                    node=node, reported_at_us=time.time_ns() // 1000, probes=self.probes.get(node, [])
                )
                await self.broker.publish(mesh_planner.POD_STATE, node, state)
            await asyncio.sleep(0.5)

    async def put_mesh(self, **fields: Any) -> None:
        mesh = SensingMesh(id="sites", enabled=True, sensors=[MeshSensor(sensor="ping", period_ms=5000)], **fields)
        await self.stub.PutSensingMesh(pb.PutSensingMeshRequest(mesh=mesh))

    async def plan(self) -> MeshPlan:
        answer = await self.stub.ListSensingMeshes(pb.ListSensingMeshesRequest())
        plan = dict(zip((mesh.id for mesh in answer.meshes), answer.plans, strict=True))["sites"]
        assert isinstance(plan, MeshPlan)
        return plan

    def published(self) -> set[tuple[str, str]]:
        """Pairs that the stream says are measured."""
        return {
            (one.source_node, one.destination_node)
            for _, one in self.configurations.items()
            if isinstance(one, SensingConfiguration) and one.mesh == "sites"
        }


def among(nodes: Iterable[str]) -> set[tuple[str, str]]:
    known = list(nodes)
    return {(a, b) for a in known for b in known if a != b}


@pytest_asyncio.fixture
async def place(kafka_bootstrap: str, postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Place]:
    postgres.truncate("registry")
    grpc_port, http_port = free_ports(2)
    settings = RegistrySettings(
        kafka_bootstrap=kafka_bootstrap,
        database_url=postgres.role_url("registry"),
        grpc_listen=f"127.0.0.1:{grpc_port}",
        http_listen=f"127.0.0.1:{http_port}",
        state_dir=tmp_path,
    )
    broker = KafkaBroker(kafka_bootstrap)
    running = asyncio.create_task(serve(settings))
    channel = rpc.channel(settings.grpc_listen)
    configurations = await broker.compacted("chart.sensing-configuration.v1")
    found = Place(registry_pb2_grpc.RegistryStub(channel), configurations, broker, settings.database_url)
    reports = asyncio.create_task(found.report())
    for at, node in enumerate(NODES, 1):
        call = pb.PutNodeRequest(node=Node(id=node, addresses=[f"10.1.0.{at}/32"]))
        await found.stub.PutNode(call, wait_for_ready=True)
    yield found
    for task in (running, reports):
        task.cancel()
    await asyncio.gather(running, reports, return_exceptions=True)
    await configurations.close()
    await channel.close(None)
    await broker.close()


async def test_configurations_follow_the_pods_that_report(place: Place) -> None:
    place.reporting |= set(NODES)
    await place.put_mesh()
    await eventually(lambda: place.published() == among(NODES), 20)
    plan = await place.plan()
    assert plan.configurations == 6
    assert plan.changed_at_us > 0
    # Its pod stops reporting: within 10 s nobody measures it any more.
    begun = time.monotonic()
    place.reporting.discard("mesh-c")
    await eventually(lambda: place.published() == among(NODES[:2]), 15)
    assert time.monotonic() - begun < 10
    # And it comes back.
    place.reporting.add("mesh-c")
    await eventually(lambda: place.published() == among(NODES), 15)
    with psycopg.connect(place.database_url) as connection:
        actions = [row[0] for row in connection.execute("SELECT action FROM audit WHERE subject = 'sites' ORDER BY at")]
    assert actions == ["sensing_mesh.put", *["sensing_mesh.plan"] * 3]


async def test_pods_that_want_more_than_a_links_budget_get_leases_of_equal_parts(place: Place) -> None:
    link = Link(id="mesh-a:to-b", to_node="mesh-b", capacity_bps=10**7)
    await place.stub.PutLink(pb.PutLinkRequest(link=link))
    budget = budget_of(10**7)
    for node, wanted in (("mesh-a", budget), ("mesh-b", budget), ("mesh-c", 1000)):
        place.probes[node] = [ProbedLink(link_id=link.id, wanted_bytes=wanted)]
    place.reporting |= set(NODES)
    leases = await place.broker.compacted(lease_giver.TOPIC)

    def given() -> dict[str, int]:
        return {
            node: one.minute_bytes
            for node, value in leases.items()
            if isinstance(value, ProbeLeases) and value.valid_until_us > time.time_ns() // 1000
            for one in value.leases
            if one.link_id == link.id
        }

    try:
        await eventually(lambda: given().keys() == set(NODES), 20)
        assert given()["mesh-c"] <= 1000
        assert sum(given().values()) <= budget
        first = {node: value.valid_until_us for node, value in leases.items() if isinstance(value, ProbeLeases)}

        def renewed() -> bool:
            value = leases.get("mesh-c")
            return isinstance(value, ProbeLeases) and value.valid_until_us > first["mesh-c"]

        await eventually(renewed, 15)
    finally:
        await leases.close()


async def test_what_inference_wants_goes_ahead_where_a_link_has_not_room_for_all(place: Place) -> None:
    for a in NODES:
        for b in NODES:
            if a != b:
                link = Link(id=f"{a}:to-{b}", from_node=a, to_node=b, interface=f"to-{b}", capacity_bps=500_000)
                await place.stub.PutLink(pb.PutLinkRequest(link=link))
    place.reporting |= set(NODES)
    mesh = SensingMesh(
        id="sites",
        enabled=True,
        sensors=[MeshSensor(sensor="ping", period_ms=20_000, parameters={"count": "1"}) for _ in range(8)],
        budget_share=0.0005,
    )
    await place.stub.PutSensingMesh(pb.PutSensingMeshRequest(mesh=mesh))

    async def crowded() -> bool:
        return (await place.plan()).slowest > 1

    await eventually(crowded, 20)
    pair = WantedPair(source_node="mesh-a", destination_node="mesh-b", reason="landmark")
    wanted = WantedPairs(metric="rtt_us", pairs=[pair])
    await place.broker.publish(mesh_planner.WANTED_PAIRS, "rtt_us", wanted)

    async def chosen() -> bool:
        return (await place.plan()).chosen >= 1

    def periods() -> set[int]:
        found = [one for _, one in place.configurations.items() if isinstance(one, SensingConfiguration)]
        return {
            one.period_ms
            for one in found
            if one.mesh == "sites" and (one.source_node, one.destination_node) == ("mesh-a", "mesh-b")
        }

    await eventually(lambda: 20_000 in periods(), 20)
    await eventually(chosen, 10)
    await place.broker.publish(mesh_planner.WANTED_PAIRS, "rtt_us", WantedPairs(metric="rtt_us"))
    await eventually(lambda: 20_000 not in periods(), 20)


async def test_only_the_mesh_changes_its_configurations_and_they_go_with_it(place: Place) -> None:
    place.reporting |= set(NODES)
    await place.put_mesh(nodes=NODES[:2])
    await eventually(lambda: place.published() == among(NODES[:2]), 20)
    identity = "mesh:sites:ping:mesh-a:mesh-b"
    own = SensingConfiguration(
        id=identity,
        source_node="mesh-a",
        destination_node="mesh-b",
        destination_address="10.1.0.2",
        sensor="ping",
        period_ms=1000,
    )
    for call in (
        place.stub.PutSensingConfiguration(pb.PutSensingConfigurationRequest(configuration=own)),
        place.stub.DeleteSensingConfiguration(pb.DeleteSensingConfigurationRequest(id=identity)),
    ):
        with pytest.raises(RefusalError, match="kept by the mesh 'sites'"), rpc.refusals():
            await call
    # A node that only a mesh measures can be deleted.
    await place.stub.DeleteNode(pb.DeleteNodeRequest(id="mesh-b"))
    await eventually(lambda: place.published() == set(), 10)
    listed = await place.stub.ListSensingConfigurations(pb.ListSensingConfigurationsRequest(mesh="sites"))
    assert not listed.configurations
    await place.put_mesh()
    await eventually(lambda: place.published() == among(("mesh-a", "mesh-c")), 10)
    await place.stub.DeleteSensingMesh(pb.DeleteSensingMeshRequest(id="sites"))
    await eventually(lambda: place.published() == set(), 10)
    with contextlib.suppress(grpc.RpcError):
        await place.stub.DeleteSensingMesh(pb.DeleteSensingMeshRequest(id="sites"))
        pytest.fail("a mesh that is gone was deleted again")
