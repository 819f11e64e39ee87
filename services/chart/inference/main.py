"""Entry point of chart-inference."""

from __future__ import annotations

import sys

from chart.common import rpc, runtime, telemetry
from chart.common.health import HealthServer
from chart.common.streams import connect
from chart.inference import rpc as inference_rpc
from chart.inference.settings import InferenceSettings
from chart.inference.streams import InferenceService


async def serve(settings: InferenceSettings) -> None:
    """Run the service until cancelled."""
    broker = connect(settings)
    inference = InferenceService(broker, settings)

    async def streams_are_read() -> bool:
        return inference.ready

    try:
        async with (
            HealthServer(settings.http_listen, {"streams": streams_are_read}),
            rpc.serve([inference_rpc.registration(inference)], settings),
        ):
            await inference.run()
    finally:
        await broker.close()


def main() -> None:
    """Run chart-inference."""
    settings = InferenceSettings()
    telemetry.setup("inference", settings)
    sys.exit(runtime.run(serve(settings)))


if __name__ == "__main__":
    main()
