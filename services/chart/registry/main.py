"""Entry point of `chart-registry`."""

from __future__ import annotations

import asyncio
import functools
import time

import psycopg
import structlog

from chart.common import database, rpc, runtime, telemetry
from chart.common.health import HealthServer
from chart.common.outbox import OutboxRelay
from chart.common.platform_settings import PlatformView
from chart.common.retries import for_ever, until_done
from chart.common.streams import Broker, StreamError, connect
from chart.registry import capacities, streams
from chart.registry.lease_giver import LeaseGiver
from chart.registry.rpc import RegistryServicer
from chart.registry.settings import RegistrySettings
from chart.v1 import registry_pb2_grpc

RECONCILE_RETRY_S = 10.0
# How often sensing configurations that are over are looked for; tenths of the time that they are kept, if that is less.
SWEEP_EVERY_S = 60.0

_log = structlog.get_logger("chart.registry")


async def _reconcile(pool: database.Pool, broker: Broker) -> None:
    """Compare streams and tables once the broker answers; the registry serves without waiting for it."""

    def told(error: Exception, _: float) -> None:
        _log.warning("streams not compared with the tables yet, trying again", reason=str(error))

    reconcile = functools.partial(streams.reconcile, pool, broker)
    await until_done(reconcile, (StreamError, psycopg.Error), told, RECONCILE_RETRY_S)


async def _follow_capacities(servicer: RegistryServicer, broker: Broker) -> None:
    """Take the capacities that nodes report of their links once the broker answers."""

    def told(error: Exception, _: float) -> None:
        _log.warning("capacities of interfaces not followed yet, trying again", reason=str(error))

    follow = functools.partial(capacities.follow, broker, servicer.take_capacity)
    await for_ever(follow, StreamError, told, RECONCILE_RETRY_S)


async def _follow_pods(servicer: RegistryServicer, broker: Broker) -> None:
    """Take what sensor pods report once the broker answers."""

    def told(error: Exception, _: float) -> None:
        _log.warning("reports of sensor pods not followed yet, trying again", reason=str(error))

    follow = functools.partial(servicer.planner.follow, broker)
    await for_ever(follow, StreamError, told, RECONCILE_RETRY_S)


async def _follow_wishes(servicer: RegistryServicer, broker: Broker) -> None:
    """Take what inference wants measured once the broker answers."""

    def told(error: Exception, _: float) -> None:
        _log.warning("pairs that inference wants are not followed yet, trying again", reason=str(error))

    follow = functools.partial(servicer.planner.follow_wishes, broker)
    await for_ever(follow, StreamError, told, RECONCILE_RETRY_S)


async def _sweep(servicer: RegistryServicer, keep_s: float) -> None:
    """Delete what has been over for long, for ever."""
    while True:
        await asyncio.sleep(min(SWEEP_EVERY_S, keep_s / 10))
        try:
            removed = await servicer.remove_over(round((time.time() - keep_s) * 1e6))
        except psycopg.Error as error:
            _log.warning("sensing configurations that are over were not deleted, trying again", reason=str(error))
        else:
            if removed:
                _log.info("deleted sensing configurations that were over", count=removed, kept_s=keep_s)


async def serve(settings: RegistrySettings) -> None:
    """Serve until cancelled."""
    async with database.pool(settings) as pool:
        broker = connect(settings)
        try:
            servicer = RegistryServicer(pool)
            await servicer.ensure_built_in(
                settings.registry_first_enforcement,
                development=settings.environment == "development",
                measures=settings.registry_first_mesh,
            )
            registration = ("chart.v1.Registry", registry_pb2_grpc.add_RegistryServicer_to_server, servicer)
            # The broker is no condition: changes are committed without it and published when it is back.
            checks = {"database": lambda: database.reachable(pool)}
            async with rpc.serve([registration], settings) as server, HealthServer(settings.http_listen, checks):
                relay = OutboxRelay(pool, broker, "registry")
                platform = PlatformView()
                giver = LeaseGiver(pool, broker, servicer.planner.wanted, platform)
                sweep = _sweep(servicer, settings.registry_keep_over_s)
                await runtime.run_together(
                    *(relay.run(), _reconcile(pool, broker), _follow_capacities(servicer, broker)),
                    *(_follow_pods(servicer, broker), servicer.planner.run(), giver.run(), sweep, server.wait()),
                    *(platform.run(broker), _follow_wishes(servicer, broker)),
                )
        finally:
            await broker.close()


def main() -> int:
    """Run the registry; returns the exit code."""
    settings = RegistrySettings()
    telemetry.setup("registry", settings)
    return runtime.run(serve(settings))
