"""Entry point of chart-tunnels."""

from __future__ import annotations

import sys

from chart.common import database, rpc, runtime, telemetry
from chart.common.health import HealthServer
from chart.common.outbox import OutboxRelay
from chart.common.streams import connect
from chart.tunnels import rpc as tunnels_rpc
from chart.tunnels.settings import TunnelsSettings
from chart.tunnels.streams import Tunnels

SCHEMA = "tunnels"


async def serve(settings: TunnelsSettings) -> None:
    """Run the service until cancelled."""
    broker = connect(settings)
    try:
        async with database.pool(settings) as pool:
            tunnels = Tunnels(broker, pool, settings)

            async def state_is_read() -> bool:
                return tunnels.ready

            async def database_answers() -> None:
                await database.reachable(pool)

            checks = {"state": state_is_read, "database": database_answers}
            servicer = tunnels_rpc.TunnelsServicer(pool, tunnels)
            async with (
                HealthServer(settings.http_listen, checks),
                rpc.serve([tunnels_rpc.registration(servicer)], settings),
            ):
                await runtime.run_together(tunnels.run(), OutboxRelay(pool, broker, SCHEMA).run())
    finally:
        await broker.close()


def main() -> None:
    """Run chart-tunnels."""
    settings = TunnelsSettings()
    telemetry.setup(SCHEMA, settings)
    sys.exit(runtime.run(serve(settings)))


if __name__ == "__main__":
    main()
