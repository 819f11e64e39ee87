"""A mesh from one call to results: registry, broker, database, sensor pods as processes, real pings over loopback."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from chart.common import rpc
from chart.common.streams_kafka import KafkaBroker
from chart.registry.main import serve
from chart.registry.settings import RegistrySettings
from chart.v1 import registry_pb2 as pb
from chart.v1 import registry_pb2_grpc
from chart.v1.measurement_pb2 import Measurement
from chart.v1.probe_lease_pb2 import ProbeLeases
from chart.v1.sensing_mesh_pb2 import MeshSensor, SensingMesh
from chart.v1.topology_pb2 import Link, Node
from support.kafka import KafkaServer
from support.postgres import PostgresServer
from support.processes import free_ports
from support.sensor_pods import PodProcess
from support.waiting import eventually

pytestmark = pytest.mark.contract

CAPACITY_BPS = 10**7


def among(nodes: list[str]) -> set[tuple[str, str]]:
    return {(a, b) for a in nodes for b in nodes if a != b}


async def test_pods_of_a_mesh_measure_each_other_on_leases_and_one_that_is_killed_is_left_out(
    kafka: KafkaServer, postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.truncate("registry")
    grpc_port, http_port = free_ports(2)
    settings = RegistrySettings(
        kafka_bootstrap=kafka.bootstrap,
        database_url=postgres.role_url("registry"),
        grpc_listen=f"127.0.0.1:{grpc_port}",
        http_listen=f"127.0.0.1:{http_port}",
        state_dir=tmp_path,
        registry_first_mesh=False,
    )
    nodes = [f"m{time.time_ns() % 10**9}-{letter}" for letter in "abc"]
    pods = []
    for node in nodes:
        (tmp_path / node).mkdir()
        pods.append(PodProcess(kafka, tmp_path / node, node))
    broker = KafkaBroker(kafka.bootstrap)
    running = asyncio.create_task(serve(settings))
    channel = rpc.channel(settings.grpc_listen)
    stub = registry_pb2_grpc.RegistryStub(channel)
    leases = await broker.compacted("chart.probe-lease.v1")
    results: set[tuple[str, str]] = set()

    async def listen() -> None:
        async with broker.subscribe(["chart.measurement.v1"], start="latest") as records:
            async for record in records:
                if isinstance(record.value, Measurement) and not record.value.error:
                    results.add((record.value.source_node, record.value.destination_node))

    listening = asyncio.create_task(listen())
    try:
        for at, node in enumerate(nodes, 1):
            stated = Node(id=node, addresses=[f"127.0.0.{at}/32"], tags={"mesh": "contract"})
            await stub.PutNode(pb.PutNodeRequest(node=stated), wait_for_ready=True)
        for a, b in among(nodes):
            link = Link(id=f"{a}:to-{b[-1]}", to_node=b, capacity_bps=CAPACITY_BPS)
            await stub.PutLink(pb.PutLinkRequest(link=link))
        await asyncio.gather(*(asyncio.to_thread(pod.start) for pod in pods))
        ping = MeshSensor(sensor="ping", period_ms=2000, parameters={"count": "2", "interval_ms": "5"})
        mesh = SensingMesh(id="contract", enabled=True, node_tags={"mesh": "contract"}, sensors=[ping])
        await stub.PutSensingMesh(pb.PutSensingMeshRequest(mesh=mesh))
        await eventually(lambda: results >= among(nodes), 60)

        def leased() -> bool:
            held = (leases.get(node) for node in nodes)
            return all(isinstance(one, ProbeLeases) and any(part.minute_bytes for part in one.leases) for one in held)

        await eventually(leased, 20)
        pods[2].kill()
        begun = time.monotonic()

        async def planned() -> int:
            call = pb.ListSensingConfigurationsRequest(mesh="contract")
            return len((await stub.ListSensingConfigurations(call)).configurations)

        while await planned() != 2:
            assert time.monotonic() - begun < 10, "a pod that was killed is still measured after 10 s"
            await asyncio.sleep(0.2)
    finally:
        for pod in pods:
            pod.stop()
        for task in (listening, running):
            task.cancel()
        await asyncio.gather(listening, running, return_exceptions=True)
        await leases.close()
        await channel.close(None)
        await broker.close()
