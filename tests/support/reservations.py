"""Reservations as processes on a real PostgreSQL and Kafka."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psycopg

from chart.common import rpc
from chart.common.streams import CompactedState, KafkaBroker
from chart.registry.tenants import default_tenant
from chart.v1 import flow_grant_pb2, grant_status_pb2, reservations_pb2_grpc, topology_pb2
from chart.v1 import rate_request_pb2 as rr
from support.postgres import PostgresServer
from support.processes import ServerProcess, free_ports

MEGA = 1_000_000
NODES = ("resa", "resb", "resc")
LINKS = ("resa:to-resb", "resb:to-resc")


@dataclass
class Replica:
    process: ServerProcess
    target: str
    http_port: int
    state_dir: Path

    def stub(self) -> tuple[grpc.aio.Channel, reservations_pb2_grpc.ReservationsAsyncStub]:
        channel = rpc.channel(self.target, deadline_s=15)
        return channel, reservations_pb2_grpc.ReservationsStub(channel)

    def start(self) -> None:
        def ready() -> bool:
            import urllib.error
            import urllib.request

            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/readyz", timeout=2) as answer:
                    ok = answer.status == 200
            except (urllib.error.URLError, OSError):
                return False
            from support.processes import listens

            return bool(ok and listens(self.target))

        self.process.start(ready)


@dataclass
class Platform:
    broker: KafkaBroker
    bootstrap: str
    database_url: str
    admin_url: str
    directory: Path
    grants: CompactedState
    requests: CompactedState

    def replica(self, name: str, **environment: str) -> Replica:
        grpc_port, http_port = free_ports(2)
        state_dir = self.directory / name
        state_dir.mkdir()
        settings = {
            "PATH": os.environ["PATH"],
            "CHART_KAFKA_BOOTSTRAP": self.bootstrap,
            "CHART_DATABASE_URL": self.database_url,
            "CHART_STATE_DIR": str(state_dir),
            "CHART_GRPC_LISTEN": f"127.0.0.1:{grpc_port}",
            "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}",
            "CHART_RESERVATIONS_GROUP": f"reservations-{self.directory.name}",
            **environment,
        }
        command = (
            "env",
            "-i",
            *(f"{key}={value}" for key, value in settings.items()),
            sys.executable,
            "-m",
            "chart.reservations.main",
        )
        process = ServerProcess(name, command, state_dir / "log")
        return Replica(process, f"127.0.0.1:{grpc_port}", http_port, state_dir)

    async def status(self, grant: flow_grant_pb2.FlowGrant, node: str, state: int = 1, reason: str = "") -> None:
        status = grant_status_pb2.GrantStatus(
            request_id=grant.request_id,
            node=node,
            generation=grant.generation,
            state=grant_status_pb2.GrantState.ValueType(state),
            reason=reason,
            applied_at_us=time.time_ns() // 1000,
        )
        await self.broker.publish("chart.grant-status.v1", f"{grant.request_id},{node}", status)

    @asynccontextmanager
    async def agents(self, *nodes: str) -> AsyncIterator[None]:
        """What agents do: every grant that passes is applied and confirmed."""

        async def confirm() -> None:
            async for _, grant in self.grants.subscribe_changes(with_current=True):
                if isinstance(grant, flow_grant_pb2.FlowGrant):
                    for node in nodes:
                        await self.status(grant, node)

        task = asyncio.create_task(confirm())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def execute(self, statement: str) -> None:
        """Change the database behind the replicas' backs."""
        with psycopg.connect(self.admin_url) as connection:
            connection.execute(statement)

    def scalar(self, query: str) -> int:
        with psycopg.connect(self.admin_url) as connection:
            row = connection.execute(query).fetchone()
            assert row is not None
            return int(row[0] or 0)


@asynccontextmanager
async def running(kafka_bootstrap: str, postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Platform]:
    """Three nodes in a line, empty tables, and the streams that replicas write."""
    postgres.truncate("reservations")
    broker = KafkaBroker(kafka_bootstrap)
    for node in NODES:
        entity = topology_pb2.TopologyEntity(
            node=topology_pb2.Node(id=node, addresses=[f"192.0.2.{NODES.index(node)}"])
        )
        await broker.publish("chart.topology.v1", node, entity)
    for identity, (origin, target) in zip(LINKS, itertools.pairwise(NODES), strict=True):
        link = topology_pb2.Link(id=identity, from_node=origin, to_node=target, capacity_bps=100 * MEGA)
        await broker.publish("chart.topology.v1", identity, topology_pb2.TopologyEntity(link=link))
    await broker.publish("chart.tenant.v1", "default", default_tenant(everything=True))
    grants = await broker.compacted("chart.flow-grant.v1")
    requests = await broker.compacted("chart.rate-request.v1")
    yield Platform(
        broker,
        kafka_bootstrap,
        postgres.role_url("reservations"),
        postgres.url,
        tmp_path,
        grants,
        requests,
    )
    for node in (*NODES, *LINKS):
        await broker.publish("chart.topology.v1", node, None)
    for key in list(dict(grants.items())):
        await broker.publish("chart.flow-grant.v1", key, None)
    await broker.close()


def ask(bps: int, **more: Any) -> rr.RateRequestSpecification:
    return rr.RateRequestSpecification(source="resa", destination="resc", guaranteed_bps=bps, **more)
