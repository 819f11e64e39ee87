"""The registry killed with -9 in the middle of changes: what was answered is stored and published."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

import pytest
from grpc import aio

from chart.common import rpc
from chart.common.streams import KafkaBroker
from chart.v1 import registry_pb2, registry_pb2_grpc, topology_pb2
from support.kafka import KafkaServer
from support.postgres import PostgresServer
from support.processes import free_ports
from support.waiting import eventually

pytestmark = pytest.mark.contract


async def test_no_answered_change_is_lost(kafka: KafkaServer, postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.truncate("registry")
    grpc_port, http_port = free_ports(2)
    environment = {
        **os.environ,
        "CHART_KAFKA_BOOTSTRAP": kafka.bootstrap,
        "CHART_DATABASE_URL": postgres.role_url("registry"),
        "CHART_GRPC_LISTEN": f"127.0.0.1:{grpc_port}",
        "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}",
        "CHART_STATE_DIR": str(tmp_path),
    }
    program = str(Path(sys.executable).parent / "chart-registry")
    channel = rpc.channel(f"127.0.0.1:{grpc_port}")
    stub = registry_pb2_grpc.RegistryStub(channel)
    answered: dict[str, int] = {}
    stop = asyncio.Event()

    async def change(worker: int) -> None:
        number = 0
        while not stop.is_set():
            node = topology_pb2.Node(id=f"n{worker}-{number % 20}", description=str(number))
            try:
                answer = await stub.PutNode(registry_pb2.PutNodeRequest(node=node), timeout=2)
            except aio.AioRpcError:
                await asyncio.sleep(0)
                continue
            answered[node.id] = answer.revision
            number += 1

    async def more_answers(count: int) -> None:
        goal = max(answered.values(), default=0) + count
        await eventually(lambda: max(answered.values(), default=0) >= goal, 40)

    with (tmp_path / "log").open("ab") as log:

        async def start() -> asyncio.subprocess.Process:
            return await asyncio.create_subprocess_exec(program, env=environment, stdout=log, stderr=log)

        process = await start()
        workers = [asyncio.create_task(change(worker)) for worker in range(4)]
        try:
            for _ in range(2):
                await more_answers(40)
                process.kill()
                await process.wait()
                process = await start()
            await more_answers(40)
            stop.set()
            await asyncio.gather(*workers)
            broker = KafkaBroker(kafka.bootstrap)
            state = await broker.compacted("chart.topology.v1")

            def published() -> bool:
                entities = {key: entity for key, entity in state.items() if key in answered}
                return {
                    key: entity.revision
                    for key, entity in entities.items()
                    if isinstance(entity, topology_pb2.TopologyEntity)
                } == answered

            await eventually(published, 30)
            await broker.close()
        finally:
            stop.set()
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            await asyncio.gather(*workers, return_exceptions=True)
            await channel.close(None)
