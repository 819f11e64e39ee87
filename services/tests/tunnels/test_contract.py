"""chart-tunnels as a process on a real Kafka and PostgreSQL: a simulated tunnel reports, is commanded, and outlives
kill -9 of the service, with what was stated, growing generations and the audit kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg
import pytest

from chart.common import rpc
from chart.common.rpc_errors import RefusalError
from chart.common.streams import CompactedState, KafkaBroker
from chart.v1 import flow_grant_pb2, tunnels_pb2, tunnels_pb2_grpc
from chart.v1.tunnel_command_pb2 import TunnelCommand, TunnelController
from chart.v1.tunnel_report_pb2 import TunnelReport
from chart_lab.models.tunnel import Simulator
from support.postgres import PostgresServer
from support.tunnels import TunnelsProcess
from support.waiting import eventually

pytestmark = pytest.mark.contract

MEGA = 1_000_000
CAPACITY_BPS = 16 * MEGA
PERIOD_S = 0.1
COMMAND = "chart.tunnel-command.v1"
PI = TunnelController.TUNNEL_CONTROLLER_PI


@dataclass
class SimulatedTunnel:
    """What chart-tunnel does, over the fast model: reports each period, takes commands, decays without them."""

    name: str
    broker: KafkaBroker
    commands: CompactedState
    connections: int = 4
    cross: int = 10
    rates_bps: list[float] = field(default_factory=list)
    generation: int = 0

    async def run(self) -> None:
        """Until cancelled."""
        simulator = Simulator(CAPACITY_BPS, 0.2 * PERIOD_S, PERIOD_S, noise=0.005)
        number, session = 0, time.time_ns()
        while True:
            number += 1
            rate_bps = simulator.period(self.connections, self.cross)
            self.rates_bps.append(rate_bps)
            made = TunnelReport(
                tunnel=self.name,
                origin_node="tuna",
                destination_node="tunb",
                session=session,
                period_number=number,
                period_us=round(PERIOD_S * 1e6),
                period_end_us=time.time_ns() // 1000,
                received_bytes=round(rate_bps * PERIOD_S / 8 * 948 / 1000),
                connections_wanted=self.connections,
                connections_established=self.connections,
                command_generation=self.generation,
                backlogged_us=round(PERIOD_S * 1e6),
            )
            for _ in range(self.connections):
                made.windows.add(cwnd_segments=10, rtt_us=4_000, mss_bytes=948)
            await self.broker.publish("chart.tunnel-report.v1", self.name, made)
            await asyncio.sleep(PERIOD_S)
            command = self.commands.get(self.name)
            if isinstance(command, TunnelCommand) and command.generation > self.generation:
                self.generation = command.generation
                self.connections = command.connections or self.connections


@asynccontextmanager
async def running(tunnel: SimulatedTunnel) -> AsyncIterator[SimulatedTunnel]:
    task = asyncio.create_task(tunnel.run())
    try:
        yield tunnel
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_tunnel_is_held_at_its_target_and_the_service_may_be_killed(
    service: TunnelsProcess, kafka_bootstrap: str, postgres: PostgresServer
) -> None:
    broker = KafkaBroker(kafka_bootstrap)
    commands = await broker.compacted(COMMAND)
    channel = rpc.channel(service.target)
    stub = tunnels_pb2_grpc.TunnelsStub(channel)

    async def shown() -> tunnels_pb2.Tunnel:
        return (await stub.GetTunnel(tunnels_pb2.GetTunnelRequest(tunnel="contract-gold"))).tunnel

    stated = tunnels_pb2.TunnelSettings(
        tunnel="contract-gold", controller=PI, target_bps=7_200_000, capacity_bps=CAPACITY_BPS
    )
    try:
        async with running(SimulatedTunnel("contract-gold", broker, commands)) as tunnel:
            # Nobody stated anything: watched, not commanded.
            async def watched() -> bool:
                listed = (await stub.ListTunnels(tunnels_pb2.ListTunnelsRequest())).tunnels
                return any(one.tunnel == "contract-gold" and one.HasField("report") for one in listed)

            await eventually(watched, 20)
            assert commands.get("contract-gold") is None

            put = tunnels_pb2.PutTunnelSettingsRequest(settings=stated)
            with rpc.refusals():
                first = await stub.PutTunnelSettings(put, metadata=((rpc.ACTOR_METADATA, "tester"),))
            assert first.created
            again = await stub.PutTunnelSettings(put)
            assert (again.created, again.settings.revision) == (False, first.settings.revision)

            async def settled() -> bool:
                steps = (await shown()).steps
                return bool(steps) and steps[0].HasField("settling_periods")

            await eventually(settled, 20)
            before = await shown()
            assert before.steps[0].settling_periods <= 20
            assert before.decision.spectral_radius < 1
            command = commands.get("contract-gold")
            assert isinstance(command, TunnelCommand)
            assert command.lease_us == 1_000_000

            # More cross traffic while the service is away: the tunnel keeps its m; afterwards it is held again.
            service.process.kill()
            tunnel.cross = 30
            generation = tunnel.generation
            await eventually(lambda: len(tunnel.rates_bps) > 10)
            kept = tunnel.connections
            await asyncio.to_thread(service.start)
            await eventually(lambda: tunnel.generation > generation and tunnel.connections > kept, 20)
            await eventually(lambda: abs(sum(tunnel.rates_bps[-10:]) / 10 - 7_200_000) < 400_000, 20)
            assert (await shown()).settings == first.settings

            await target_follows_a_grant(broker, stub, stated, tunnel)
            await refusals(stub, stated)

            deleted = tunnels_pb2.DeleteTunnelSettingsRequest(tunnel="contract-gold")
            await stub.DeleteTunnelSettings(deleted)
            await eventually(lambda: commands.get("contract-gold") is None)
        with psycopg.connect(postgres.url) as connection:
            rows = connection.execute("SELECT actor, action FROM tunnels.audit ORDER BY at").fetchall()
        assert rows[0] == ("tester", "tunnel.put")
        assert [action for _, action in rows] == ["tunnel.put", "tunnel.put", "tunnel.delete"]
    finally:
        await channel.close(None)
        await commands.close()
        await broker.publish(COMMAND, "contract-gold", None)
        await broker.publish("chart.flow-grant.v1", "01CONTRACTTUNNEL", None)
        await broker.close()


async def target_follows_a_grant(
    broker: KafkaBroker,
    stub: tunnels_pb2_grpc.TunnelsAsyncStub,
    stated: tunnels_pb2.TunnelSettings,
    tunnel: SimulatedTunnel,
) -> None:
    stated.request_id = "01CONTRACTTUNNEL"
    await stub.PutTunnelSettings(tunnels_pb2.PutTunnelSettingsRequest(settings=stated))

    async def source() -> int:
        return int((await stub.GetTunnel(tunnels_pb2.GetTunnelRequest(tunnel=stated.tunnel))).tunnel.target_source)

    async def is_the_operators() -> bool:
        return await source() == tunnels_pb2.TUNNEL_TARGET_SOURCE_OPERATOR

    async def is_the_grants() -> bool:
        return await source() == tunnels_pb2.TUNNEL_TARGET_SOURCE_GRANT

    await eventually(is_the_operators)
    now_us = time.time_ns() // 1000
    grant = flow_grant_pb2.FlowGrant(
        request_id="01CONTRACTTUNNEL",
        generation=1,
        guaranteed_bps=3_200_000,
        valid_from_us=now_us,
        valid_until_us=now_us + 60 * MEGA,
    )
    await broker.publish("chart.flow-grant.v1", grant.request_id, grant)
    await eventually(is_the_grants)
    # Beside 30 others 7.5 connections have a fifth of the capacity.
    await eventually(lambda: 6 <= tunnel.connections <= 9, 20)
    await broker.publish("chart.flow-grant.v1", grant.request_id, None)
    await eventually(is_the_operators)


async def refusals(stub: tunnels_pb2_grpc.TunnelsAsyncStub, stated: tunnels_pb2.TunnelSettings) -> None:
    wrong = tunnels_pb2.TunnelSettings()
    wrong.CopyFrom(stated)
    wrong.target_bps = 17 * MEGA
    with pytest.raises(RefusalError, match="cannot be reached"), rpc.refusals():
        await stub.PutTunnelSettings(tunnels_pb2.PutTunnelSettingsRequest(settings=wrong))
    wrong.target_bps = 5 * MEGA
    with pytest.raises(RefusalError, match="is at revision"), rpc.refusals():
        await stub.PutTunnelSettings(tunnels_pb2.PutTunnelSettingsRequest(settings=wrong, expected_revision=999_999))
    with pytest.raises(RefusalError, match="there is no tunnel"), rpc.refusals():
        await stub.GetTunnel(tunnels_pb2.GetTunnelRequest(tunnel="contract-nobody"))
    with pytest.raises(RefusalError, match="there is no tunnel with settings"), rpc.refusals():
        await stub.DeleteTunnelSettings(tunnels_pb2.DeleteTunnelSettingsRequest(tunnel="contract-nobody"))
