"""Entry point of chart-rate-controller; with --remove-finalizers it lets RateRequests go that nobody serves."""

from __future__ import annotations

import argparse
import sys

import structlog

from chart.common import runtime, telemetry
from chart.common.clock import SystemClock
from chart.common.health import HealthServer
from chart.common.kubernetes import ApiServer
from chart.rate_controller.controller import Controller, remove_finalizers
from chart.rate_controller.gateway import GatewayClient
from chart.rate_controller.settings import RateControllerSettings

_log = structlog.get_logger("chart.rate_controller")


async def serve(settings: RateControllerSettings) -> None:
    """Run the controller until cancelled."""
    async with GatewayClient(settings) as gateway:
        controller = Controller(settings, api_of(settings), gateway, SystemClock())

        async def cluster_and_gateway_answered() -> bool:
            return controller.ready

        async with HealthServer(settings.http_listen, {"cluster and gateway": cluster_and_gateway_answered}):
            await controller.run()


async def clean_up(settings: RateControllerSettings) -> None:
    """Take our finalizer from every RateRequest."""
    _log.info("finalizers removed", count=await remove_finalizers(api_of(settings)))


def api_of(settings: RateControllerSettings) -> ApiServer:
    """The API server as the settings say."""
    return ApiServer(settings.kubernetes_url, settings.kubernetes_ca_file, settings.kubernetes_token_file)


def main() -> None:
    """Run chart-rate-controller."""
    parser = argparse.ArgumentParser(prog="chart-rate-controller", description=__doc__)
    parser.add_argument(
        "--remove-finalizers", action="store_true", help="after an uninstallation: let every RateRequest go, and end"
    )
    arguments = parser.parse_args()
    settings = RateControllerSettings()
    telemetry.setup("rate_controller", settings)
    sys.exit(runtime.run(clean_up(settings) if arguments.remove_finalizers else serve(settings)))


if __name__ == "__main__":
    main()
