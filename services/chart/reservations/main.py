"""Entry point of chart-reservations."""

from __future__ import annotations

import sys

import uvloop

from chart.common import database, rpc, runtime, telemetry
from chart.common.clock import SystemClock
from chart.common.health import HealthServer
from chart.common.outbox import OutboxRelay
from chart.common.streams import connect
from chart.reservations import rpc as reservations_rpc
from chart.reservations.decisions.in_band import LeaseRule
from chart.reservations.decisions.reservation import Timing
from chart.reservations.edges.batches import Batches
from chart.reservations.edges.deliveries import Deliveries
from chart.reservations.edges.leasing import LeaseWork
from chart.reservations.edges.network_view import NetworkView
from chart.reservations.edges.path_publisher import PathPublisher
from chart.reservations.edges.watch import Watch
from chart.reservations.settings import ReservationsSettings
from chart.reservations.store.callbacks import Callbacks
from chart.reservations.store.repository import Repository
from chart.reservations.streams import Worker

SCHEMA = "reservations"


async def serve(settings: ReservationsSettings) -> None:
    """Run the service until cancelled."""
    timing = Timing(
        settings.grant_validity_us,
        settings.confirmation_limit_us,
        settings.remember_ended_us,
        settings.hold_limit_us,
        clock_error_us=settings.clock_error_us,
    )
    rule = LeaseRule(
        settings.lease_idle_share,
        settings.lease_greatest_share,
        settings.lease_length_us,
        settings.lease_lifetime_us,
        settings.clock_error_us,
    )
    anywhere = settings.callbacks_anywhere
    if anywhere is None:
        anywhere = settings.environment == "development"
    clock = SystemClock()
    view = NetworkView(settings.oversubscription)
    broker = connect(settings)
    try:
        async with database.pool(settings) as pool:

            async def streams_are_read() -> bool:
                return view.ready

            async def database_answers() -> None:
                await database.reachable(pool)

            checks = {"streams": streams_are_read, "database": database_answers}
            repository = Repository(pool, settings.idempotency_us)
            callbacks = Callbacks(pool)
            watch = Watch(clock)
            batches = Batches(
                pool,
                lambda: view.network,
                settings.idempotency_us,
                clock,
                freed=lambda: worker.freed(),
                changed=watch.changed,
            )
            worker = Worker(
                broker, repository, batches, view, timing, settings.reservations_group, changed=watch.changed
            )
            leases = LeaseWork(broker, pool, view, rule, settings.reservations_group, clock)
            servicer = reservations_rpc.ReservationsServicer(repository, batches, callbacks, view, timing, clock, watch)
            async with HealthServer(settings.http_listen, checks):
                # Answers only once the topology is known: before, every request would be refused as unknown.
                await view.open(broker)
                async with rpc.serve([reservations_rpc.registration(servicer)], settings):
                    await runtime.run_together(
                        batches.run(),
                        worker.run(),
                        Deliveries(callbacks, clock, anywhere=anywhere).run(),
                        leases.run(),
                        PathPublisher(broker, view).run(),
                        OutboxRelay(pool, broker, SCHEMA).run(),
                    )
    finally:
        await broker.close()


def main() -> None:
    """Run chart-reservations."""
    settings = ReservationsSettings()
    telemetry.setup(SCHEMA, settings)
    runtime.collect_rarely()
    sys.exit(runtime.run(serve(settings), loop_factory=uvloop.new_event_loop))


if __name__ == "__main__":
    main()
