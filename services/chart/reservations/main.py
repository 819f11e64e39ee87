"""Entry point of chart-reservations."""

from __future__ import annotations

import sys

from chart.common import database, rpc, runtime, telemetry
from chart.common.health import HealthServer
from chart.common.outbox import OutboxRelay
from chart.common.streams import connect
from chart.reservations import rpc as reservations_rpc
from chart.reservations.repository import Repository
from chart.reservations.service import Timing
from chart.reservations.settings import ReservationsSettings
from chart.reservations.streams import NetworkView, Worker

SCHEMA = "reservations"


async def serve(settings: ReservationsSettings) -> None:
    """Run the service until cancelled."""
    timing = Timing(settings.grant_validity_us, settings.confirmation_limit_us, settings.remember_ended_us)
    view = NetworkView()
    broker = connect(settings)
    try:
        async with database.pool(settings) as pool:

            async def streams_are_read() -> bool:
                return view.ready

            async def database_answers() -> None:
                await database.reachable(pool)

            checks = {"streams": streams_are_read, "database": database_answers}
            repository = Repository(pool, settings.idempotency_us)
            servicer = reservations_rpc.ReservationsServicer(repository, view, timing)
            async with HealthServer(settings.http_listen, checks):
                # Answers only once the topology is known: before, every request would be refused as unknown.
                await view.open(broker)
                async with rpc.serve([reservations_rpc.registration(servicer)], settings):
                    worker = Worker(broker, repository, view, timing, settings.reservations_group)
                    await runtime.run_together(worker.run(), OutboxRelay(pool, broker, SCHEMA).run())
    finally:
        await broker.close()


def main() -> None:
    """Run chart-reservations."""
    settings = ReservationsSettings()
    telemetry.setup(SCHEMA, settings)
    sys.exit(runtime.run(serve(settings)))


if __name__ == "__main__":
    main()
