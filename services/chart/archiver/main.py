"""Entry point of chart-archiver."""

from __future__ import annotations

import sys

from chart.archiver import rpc as archiver_rpc
from chart.archiver.alert_repository import AlertRepository
from chart.archiver.backplane import Backplane
from chart.archiver.overlay_repository import OverlayRepository
from chart.archiver.pair_repository import PairRepository
from chart.archiver.repository import Repository
from chart.archiver.rollup_repository import RollupRepository
from chart.archiver.settings import ArchiverSettings
from chart.archiver.snapshot_repository import SnapshotRepository
from chart.archiver.streams import Archiver
from chart.common import database, rpc, runtime, telemetry
from chart.common.clock import SystemClock
from chart.common.health import HealthServer
from chart.common.outbox import OutboxRelay
from chart.common.platform_settings import PlatformView
from chart.common.streams import connect


async def serve(settings: ArchiverSettings) -> None:
    """Run the service until cancelled."""
    broker = connect(settings)
    try:
        async with database.pool(settings) as pool:
            repository = Repository(pool)
            await repository.open()
            clock = SystemClock()
            archiver = Archiver(broker, repository, clock, settings)
            rollups, alerts, snapshots = (
                RollupRepository(pool, repository),
                AlertRepository(pool),
                SnapshotRepository(pool),
            )
            platform = PlatformView()
            backplane = Backplane(repository, rollups, alerts, snapshots, clock, settings, platform)
            relay = OutboxRelay(pool, broker, "archiver")
            servicer = archiver_rpc.ArchiveServicer(
                repository,
                rollups,
                alerts,
                snapshots,
                backplane,
                PairRepository(pool),
                OverlayRepository(pool),
                settings.rollup_minute_retention_days,
            )

            async def database_answers() -> None:
                await database.reachable(pool)

            async with (
                rpc.serve([archiver_rpc.registration(servicer)], settings),
                HealthServer(settings.http_listen, {"database": database_answers, "archiving": archiver.check}),
            ):
                await runtime.run_together(
                    *(archiver.run_facts(), archiver.run_overlay(), archiver.run_loads(), archiver.run_retention()),
                    *(backplane.run(), relay.run(), platform.run(broker)),
                )
    finally:
        await broker.close()


def main() -> None:
    """Run chart-archiver."""
    settings = ArchiverSettings()
    telemetry.setup("archiver", settings)
    sys.exit(runtime.run(serve(settings)))


if __name__ == "__main__":
    main()
