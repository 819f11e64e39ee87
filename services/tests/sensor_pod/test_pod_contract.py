"""The pod as a process with the real sensors over loopback and a real broker: kill -9, broker outage, restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from chart.common import rpc
from chart.common.record_check import AuthorityKeys, RecordCheck
from chart.common.rpc_tls import RpcFiles, node_credentials
from chart.common.settings import BaseServiceSettings
from chart.common.streams_kafka import KafkaBroker
from chart.v1 import measurement_pb2, sensing_configuration_pb2, sensor_pod_pb2, sensor_pod_pb2_grpc
from chart.v1.platform_settings_pb2 import PlatformSettings
from support import authority
from support.authority import Place
from support.kafka import KafkaServer
from support.postgres import PostgresServer
from support.sensor_pods import PodProcess
from support.waiting import eventually

pytestmark = pytest.mark.contract

CONFIGURATIONS = "chart.sensing-configuration.v1"


@pytest.fixture
def pod(kafka: KafkaServer, tmp_path: Path) -> Iterator[PodProcess]:
    process = PodProcess(kafka, tmp_path, f"pod-{time.time_ns() % 10**9}")
    process.start()
    yield process
    process.stop()


@pytest.fixture
async def broker(kafka: KafkaServer) -> AsyncIterator[KafkaBroker]:
    opened = KafkaBroker(kafka.bootstrap)
    yield opened
    await opened.close()


@pytest.fixture
async def stub(pod: PodProcess) -> AsyncIterator[sensor_pod_pb2_grpc.SensorPodAsyncStub]:
    channel = rpc.channel(pod.target, deadline_s=20)
    yield sensor_pod_pb2_grpc.SensorPodStub(channel)
    await channel.close(None)


@pytest.fixture
async def place(postgres: PostgresServer, tmp_path: Path) -> AsyncIterator[Place]:
    """An authority."""
    authority.empty(postgres)
    settings = authority.settings_of(postgres.role_url("authority"), tmp_path / "authority-state")
    async with authority.running(settings, tmp_path) as made:
        yield made


def ping(pod: PodProcess, identity: str, period_ms: int = 200) -> sensing_configuration_pb2.SensingConfiguration:
    return sensing_configuration_pb2.SensingConfiguration(
        id=identity,
        source_node=pod.node,
        destination_node="self",
        destination_address="127.0.0.1",
        sensor="ping",
        parameters={"count": "2", "interval_ms": "5"},
        period_ms=period_ms,
    )


async def published(broker: KafkaBroker, node: str, wanted: list[str], limit_s: float) -> list[str]:
    """Ids that the node published, read from the beginning until all wanted ones came."""
    seen: list[str] = []
    missing = set(wanted)
    async with broker.subscribe(["chart.measurement.v1"], start="earliest") as subscription:
        async with asyncio.timeout(limit_s):
            async for record in subscription:
                value = record.value
                if isinstance(value, measurement_pb2.Measurement) and value.source_node == node:
                    seen.append(value.id)
                    missing.discard(value.id)
                if not missing:
                    return seen
    return seen


async def test_kill_and_broker_outage_lose_no_result(pod: PodProcess, kafka: KafkaServer, broker: KafkaBroker) -> None:
    await broker.publish(CONFIGURATIONS, f"{pod.node}-a", ping(pod, f"{pod.node}-a"))
    await broker.publish(CONFIGURATIONS, "other", ping(pod, "other-node"))
    await eventually(lambda: len(pod.stored()) > 10, 30)
    kafka.stop()
    before = len(pod.stored())
    await eventually(lambda: len(pod.stored()) > before + 10, 30)
    pod.kill()
    # Without a control plane it goes on with what it holds.
    pod.start()
    before = len(pod.stored())
    await eventually(lambda: len(pod.stored()) > before + 10, 30)
    pod.kill()
    pod.start()
    kafka.start()
    before = len(pod.stored())
    await eventually(lambda: len(pod.stored()) > before + 10, 30)
    await broker.publish(CONFIGURATIONS, f"{pod.node}-a", None)
    stored = pod.stored()
    seen = await published(broker, pod.node, stored, 60)
    first_seen = list(dict.fromkeys(seen))
    assert set(stored) <= set(first_seen)
    # The results of one metric come in the order in which they were stored, repetitions aside.
    metric = [identity for identity in pod.stored("rtt_us") if identity in set(stored)]
    assert [identity for identity in first_seen if identity in set(metric)][: len(metric)] == metric


async def test_configurations_come_from_the_stream_and_tombstones_end_them(
    pod: PodProcess, broker: KafkaBroker, stub: sensor_pod_pb2_grpc.SensorPodAsyncStub
) -> None:
    identity = f"{pod.node}-stream"

    async def configured() -> list[str]:
        return [entry.id for entry in (await stub.List(sensor_pod_pb2.ListRequest())).configurations]

    await broker.publish(CONFIGURATIONS, identity, ping(pod, identity))

    async def there() -> bool:
        return identity in await configured()

    async def gone() -> bool:
        return identity not in await configured()

    await eventually(there, 30)
    await broker.publish(CONFIGURATIONS, identity, None)
    await eventually(gone, 30)


async def test_limits_that_operators_set_hold_at_once_and_over_a_restart(
    pod: PodProcess, broker: KafkaBroker, stub: sensor_pod_pb2_grpc.SensorPodAsyncStub, tmp_path: Path
) -> None:
    robot = ping(pod, f"{pod.node}-robot")
    robot.owner = "robot"
    settings = PlatformSettings(id="platform")
    settings.application_limits.owners["robot"].configurations = 0
    await broker.publish("chart.platform-settings.v1", "platform", settings)
    kept = tmp_path / "platform-settings.pb"
    await eventually(kept.exists, 30)

    async def refused() -> bool:
        try:
            with rpc.refusals():
                await stub.Configure(sensor_pod_pb2.ConfigureRequest(configuration=robot))
        except rpc.RefusalError as error:
            return "has its 0 configurations" in error.refusal.detail
        return False

    assert await refused()
    pod.kill()
    pod.start()
    assert await refused(), "from its own file, whatever the broker does"
    identity = robot.id
    await broker.publish(CONFIGURATIONS, identity, robot)
    await broker.publish("chart.platform-settings.v1", "platform", PlatformSettings(id="platform"))

    async def runs() -> bool:
        return identity in [entry.id for entry in (await stub.List(sensor_pod_pb2.ListRequest())).configurations]

    await eventually(runs, 30)
    await broker.publish(CONFIGURATIONS, identity, None)


async def test_one_shots_share_runs_and_history_and_stream_show_the_result(
    pod: PodProcess, stub: sensor_pod_pb2_grpc.SensorPodAsyncStub
) -> None:
    request = sensor_pod_pb2.RunOnceRequest(configuration=ping(pod, ""))
    request.configuration.parameters["count"] = "20"
    request.configuration.parameters["interval_ms"] = "20"
    watch = stub.Watch(sensor_pod_pb2.WatchRequest(metric="rtt_us"))
    await watch.initial_metadata()
    answers = await asyncio.gather(*(stub.RunOnce(request) for _ in range(5)))
    identities = {tuple(entry.id for entry in answer.measurements) for answer in answers}
    assert len(identities) == 1
    rtt = next(entry for entry in answers[0].measurements if entry.metric == "rtt_us")
    assert 0 < rtt.value < 50_000
    assert (rtt.probes_sent, rtt.probes_lost) == (20, 0)
    first = await watch.read()
    assert isinstance(first, sensor_pod_pb2.WatchResponse)
    assert first.measurement.id == rtt.id
    watch.cancel()
    request.configuration.tolerance_ms = 60_000
    again = await stub.RunOnce(request)
    assert [entry.id for entry in again.measurements] == [entry.id for entry in answers[0].measurements]
    history = await stub.Query(sensor_pod_pb2.QueryRequest(metric="rtt_us", destination_node="self"))
    assert [entry.id for entry in history.measurements] == [rtt.id]


async def test_a_chirp_over_loopback_and_a_sensor_that_is_not_there(
    pod: PodProcess, stub: sensor_pod_pb2_grpc.SensorPodAsyncStub
) -> None:
    chirp = ping(pod, "")
    chirp.sensor = "pathchirp"
    chirp.parameters.clear()
    chirp.parameters.update({"port": str(pod.responder_port), "high_bps": "5e7", "limit_bytes": "400000"})
    answer = await stub.RunOnce(sensor_pod_pb2.RunOnceRequest(configuration=chirp))
    (result,) = answer.measurements
    assert (result.metric, result.error) == ("available_bandwidth_bps", "")
    assert result.value > 1e6
    chirp.sensor = "nosuch"
    answer = await stub.RunOnce(sensor_pod_pb2.RunOnceRequest(configuration=chirp))
    assert "this pod has no sensor 'nosuch'; it has" in answer.measurements[0].error


async def test_bad_configurations_are_refused_with_the_field(
    pod: PodProcess, stub: sensor_pod_pb2_grpc.SensorPodAsyncStub
) -> None:
    for field, value in (
        ("destination_address", "nowhere"),
        ("period_ms", 5),
        ("sensor", "../x"),
        ("source_node", "q"),
    ):
        bad = ping(pod, "bad")
        setattr(bad, field, value)
        with pytest.raises(rpc.RefusalError) as refused, rpc.refusals():
            await stub.Configure(sensor_pod_pb2.ConfigureRequest(configuration=bad))
        assert refused.value.refusal.field == field


async def test_an_enrolled_pod_signs_and_is_called_by_the_gateway_alone(
    place: Place, kafka: KafkaServer, broker: KafkaBroker, tmp_path: Path
) -> None:
    node = f"pod-{time.time_ns() % 10**9}"
    identity = {
        "CHART_AUTHORITY_URL": place.url,
        "CHART_AUTHORITY_CA": str(place.ca_file),
        "CHART_NODE_IDENTITY": str(tmp_path / f"node-{node}"),
    }
    (tmp_path / "pod").mkdir()
    pod = PodProcess(kafka, tmp_path / "pod", node, **identity)
    await asyncio.to_thread(pod.start)
    keys = AuthorityKeys(BaseServiceSettings(state_dir=place.settings.state_dir, authority_url=place.url))
    reader = KafkaBroker(kafka.bootstrap, record_check=RecordCheck(keys, "require"))
    try:
        await broker.publish(CONFIGURATIONS, f"{node}-a", ping(pod, f"{node}-a"))
        # Its agent has not enrolled: results wait on its disk.
        await eventually(lambda: len(pod.stored()) > 4, 30)
        waited = pod.stored()[:4]
        # As the agent keeps them: the files' names are the node's here.
        await place.enrol(f"node/{node}")
        assert await published(reader, node, waited, 60) != []
        gateway = RpcFiles.of(place.settings.home / "identities" / "service-gateway", place.ca_file)
        assert await called(pod, gateway) is grpc.StatusCode.OK
        records = RpcFiles.of(place.settings.home / "identities" / "service-records", place.ca_file)
        assert await called(pod, records) is grpc.StatusCode.PERMISSION_DENIED
    finally:
        await reader.close()
        await asyncio.to_thread(pod.stop)


async def called(pod: PodProcess, files: RpcFiles) -> grpc.StatusCode:
    """What a call of the pod with this certificate ends with."""
    channel = rpc.channel(pod.target, deadline_s=20, node=node_credentials(files, pod.node))
    try:
        await sensor_pod_pb2_grpc.SensorPodStub(channel).Report(sensor_pod_pb2.ReportRequest())
    except grpc.aio.AioRpcError as error:
        return error.code()
    finally:
        await channel.close(None)
    return grpc.StatusCode.OK
