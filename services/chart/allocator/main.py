"""Entry point of chart-allocator."""

from __future__ import annotations

import sys

from chart.allocator import rpc as allocator_rpc
from chart.allocator.loads import LoadReport
from chart.allocator.settings import AllocatorSettings
from chart.allocator.streams import LINK_LOAD, Allocator
from chart.common import rpc, runtime, telemetry
from chart.common.health import HealthServer
from chart.common.streams import connect


async def serve(settings: AllocatorSettings) -> None:
    """Run the service until cancelled."""
    broker = connect(settings)
    broker.catalogue = broker.catalogue.with_class(LINK_LOAD, LoadReport)
    allocator = Allocator(broker, settings)

    async def streams_are_read() -> bool:
        return allocator.ready

    try:
        async with (
            HealthServer(settings.http_listen, {"streams": streams_are_read}),
            rpc.serve([allocator_rpc.registration(allocator)], settings),
        ):
            await allocator.run()
    finally:
        await broker.close()


def main() -> None:
    """Run chart-allocator."""
    settings = AllocatorSettings()
    telemetry.setup("allocator", settings)
    runtime.collect_rarely()
    sys.exit(runtime.run(serve(settings)))


if __name__ == "__main__":
    main()
