"""Having pairs measured: short-lived sensing configurations at the registry, taken away when they are over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import grpc
import structlog
from prometheus_client import Counter

from chart.common import rpc
from chart.common.rpc_errors import RefusalError
from chart.inference import service
from chart.inference.settings import InferenceSettings
from chart.v1 import registry_pb2, registry_pb2_grpc, sensing_configuration_pb2, topology_pb2

OWNER = "inference"

ASKED = Counter("chart_inference_asked_pairs_total", "Pairs that the pods were asked to measure", ["reason"])

_log = structlog.get_logger("chart.inference.asking")


class Asker:
    """What the pods were asked for."""

    def __init__(self, settings: Callable[[], InferenceSettings]) -> None:
        """``settings``: those of the moment."""
        self._settings = settings
        # Our configurations at the registry by id, and until when they hold; None: not read yet.
        self._ours: dict[str, int] | None = None
        self.asked: dict[tuple[str, str], int] = {}

    async def ask(self, wanted: Iterable[service.Wanted], nodes: Mapping[str, topology_pb2.Node], now_us: int) -> None:
        """Have pairs measured that can be, and take away what is over. A registry that is away is tried next time."""
        settings = self._settings()
        channel = rpc.channel(settings.registry_target)
        stub = registry_pb2_grpc.RegistryStub(channel)
        try:
            await self._clear(stub, now_us)
            put: set[str] = set()
            for one in wanted:
                configuration = configuration_of(one, nodes, settings, now_us)
                # One run of a sensor serves all its metrics.
                if configuration is not None and configuration.id not in put:
                    put.add(configuration.id)
                    await self._put(stub, one, configuration)
        except grpc.aio.AioRpcError as error:
            _log.warning("the registry did not take what to measure next", reason=error.details())
        finally:
            await channel.close(None)

    def forget(self, now_us: int) -> None:
        """Pairs whose time is over may be asked for again."""
        self.asked = {pair: until_us for pair, until_us in self.asked.items() if until_us > now_us}

    async def _put(
        self,
        stub: registry_pb2_grpc.RegistryAsyncStub,
        wanted: service.Wanted,
        configuration: sensing_configuration_pb2.SensingConfiguration,
    ) -> None:
        try:
            with rpc.refusals():
                await stub.PutSensingConfiguration(
                    registry_pb2.PutSensingConfigurationRequest(configuration=configuration)
                )
            if self._ours is not None:
                self._ours[configuration.id] = configuration.valid_until_us
            ASKED.labels(reason=wanted.reason).inc()
        except RefusalError as error:
            _log.info("the registry refused a pair", pair=configuration.id, reason=error.refusal.detail)
        # A refused pair, too, is not asked for again at once.
        self.asked[wanted.source, wanted.destination] = configuration.valid_until_us

    async def _clear(self, stub: registry_pb2_grpc.RegistryAsyncStub, now_us: int) -> None:
        """Take away configurations that are over, those of an earlier life of this service included."""
        if self._ours is None:
            answer = await stub.ListSensingConfigurations(registry_pb2.ListSensingConfigurationsRequest())
            self._ours = {one.id: one.valid_until_us for one in answer.configurations if one.owner == OWNER}
        for identity in [one for one, until_us in self._ours.items() if until_us <= now_us]:
            try:
                with rpc.refusals():
                    await stub.DeleteSensingConfiguration(registry_pb2.DeleteSensingConfigurationRequest(id=identity))
            except RefusalError as error:
                # Somebody else took it away.
                _log.info("a configuration was not taken away", configuration=identity, reason=error.refusal.detail)
            del self._ours[identity]


def configuration_of(
    wanted: service.Wanted, nodes: Mapping[str, topology_pb2.Node], settings: InferenceSettings, now_us: int
) -> sensing_configuration_pb2.SensingConfiguration | None:
    """One run of the metric's sensor by a pod that is there; None when the pair cannot be measured."""
    source, destination = nodes.get(wanted.source), nodes.get(wanted.destination)
    kind = service.kind_of(wanted.metric)
    if source is None or destination is None or kind is None or not destination.addresses:
        return None
    if not source.sensor_pod_target:
        return None
    valid_us = round(settings.inference_active_valid_s * 1e6)
    return sensing_configuration_pb2.SensingConfiguration(
        id=f"inference-{wanted.source}-{wanted.destination}-{kind.sensor}",
        source_node=wanted.source,
        destination_node=wanted.destination,
        destination_address=destination.addresses[0].partition("/")[0],
        sensor=kind.sensor,
        # The period is the validity: it runs once.
        period_ms=valid_us // 1000,
        priority=settings.inference_active_priority,
        valid_until_us=now_us + valid_us,
        owner=OWNER,
    )
