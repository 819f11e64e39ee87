"""The allocator as processes on a real Kafka: loads in, rates out, across kill -9 and hand-over to another replica."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from chart.common import rpc
from chart.common.streams import CompactedState, KafkaBroker
from chart.v1 import allocator_pb2, allocator_pb2_grpc, link_load_pb2, link_rate_pb2, topology_pb2
from support.processes import ServerProcess, free_ports, listens
from support.waiting import eventually

pytestmark = pytest.mark.contract

MEGA = 1_000_000
LEASE_S = 10.0
NODES = tuple(f"alloc{number}" for number in range(8))


def replica(directory: Path, name: str, bootstrap: str) -> tuple[ServerProcess, str, int]:
    grpc_port, http_port = free_ports(2)
    (directory / name).mkdir()
    settings = {
        "PATH": os.environ["PATH"],
        "CHART_KAFKA_BOOTSTRAP": bootstrap,
        "CHART_STATE_DIR": str(directory / name),
        "CHART_GRPC_LISTEN": f"127.0.0.1:{grpc_port}",
        "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}",
        "CHART_ALLOCATOR_GROUP": f"allocator-{directory.name}",
        "CHART_LINK_RATE_LEASE_US": "2000000",
    }
    environment = (f"{key}={value}" for key, value in settings.items())
    command = ("env", "-i", *environment, sys.executable, "-m", "chart.allocator.main")
    return ServerProcess(name, command, directory / name / "log"), f"127.0.0.1:{grpc_port}", http_port


def start(process: ServerProcess, target: str, http_port: int) -> None:
    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200) and listens(target)
        except (urllib.error.URLError, OSError):
            return False

    process.start(ready)


@asynccontextmanager
async def reporting(broker: KafkaBroker) -> AsyncIterator[None]:
    """Agents of all nodes: one busy flow on each link, ten reports a second."""

    async def report() -> None:
        while True:
            for node in NODES:
                one = link_load_pb2.LinkLoad(link_id=f"{node}:x", explicit_rate_bytes=1_200_000, users=1)
                value = link_load_pb2.LinkLoadReport(
                    node=node, interval_us=100_000, links=[one], interval_end_us=time.time_ns() // 1000
                )
                await broker.publish("chart.link-load.v1", node, value)
            await asyncio.sleep(0.1)

    task = asyncio.create_task(report())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def rates_of(state: CompactedState) -> dict[str, link_rate_pb2.LinkRates]:
    return {key: value for key, value in state.items() if isinstance(value, link_rate_pb2.LinkRates) and key in NODES}


async def test_rates_survive_kill_and_replicas_take_over(kafka_bootstrap: str, tmp_path: Path) -> None:
    broker = KafkaBroker(kafka_bootstrap)
    for node in NODES:
        link = topology_pb2.Link(id=f"{node}:x", from_node=node, to_node="alloc0", capacity_bps=100 * MEGA)
        await broker.publish("chart.topology.v1", link.id, topology_pb2.TopologyEntity(link=link))
    state = await broker.compacted("chart.link-rate.v1")
    one, one_target, one_http = replica(tmp_path, "one", kafka_bootstrap)
    two, two_target, two_http = replica(tmp_path, "two", kafka_bootstrap)

    def all_fresh() -> bool:
        rates = rates_of(state)
        now_us = time.time_ns() // 1000
        return len(rates) == len(NODES) and all(value.valid_until_us > now_us for value in rates.values())

    def grown(before: dict[str, link_rate_pb2.LinkRates]) -> bool:
        return all(value.generation > before[key].generation for key, value in rates_of(state).items())

    try:
        start(one, one_target, one_http)
        async with reporting(broker):
            await eventually(all_fresh, 15)
            assert {rate.links[0].available_bps for rate in rates_of(state).values()} == {97 * MEGA}
            before = rates_of(state)
            one.kill()
            start(one, one_target, one_http)
            await eventually(lambda: all_fresh() and grown(before), 20)

            start(two, two_target, two_http)
            channel = rpc.channel(two_target)
            stub = allocator_pb2_grpc.AllocatorStub(channel)

            async def second_works() -> bool:
                answer = await stub.ListLinkRates(allocator_pb2.ListLinkRatesRequest())
                return 0 < len(answer.nodes) < len(NODES)

            await eventually(second_works, 20)
            before = rates_of(state)
            one.kill()
            # The lease that replicas give out by default: within it a dead one is replaced, by whoever is left.
            await eventually(lambda: all_fresh() and grown(before), LEASE_S)

            async def second_has_all() -> bool:
                answer = await stub.ListLinkRates(allocator_pb2.ListLinkRatesRequest())
                return len(answer.nodes) == len(NODES)

            await eventually(second_has_all, 5)
            await channel.close(None)
    finally:
        one.stop()
        two.stop()
        for node in NODES:
            await broker.publish("chart.topology.v1", f"{node}:x", None)
            await broker.publish("chart.link-rate.v1", node, None)
        await broker.close()
