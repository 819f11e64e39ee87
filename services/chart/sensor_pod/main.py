"""Entry point of chart-sensor-pod."""

from __future__ import annotations

import asyncio
import functools
import gc
import ipaddress
import subprocess
import sys
from pathlib import Path

import structlog

from chart.common import node_identity, rpc, runtime, telemetry
from chart.common.authority_calls import AuthorityCalls
from chart.common.broker_certificate import BrokerCertificate
from chart.common.clock import SystemClock
from chart.common.health import HealthServer
from chart.common.node_identity import NodeIdentity
from chart.common.platform_settings import PlatformView
from chart.common.record_sign import RecordSigner
from chart.common.rpc_tls import RpcFiles
from chart.common.streams import connect
from chart.sensor_pod import metrics
from chart.sensor_pod import rpc as pod_rpc
from chart.sensor_pod.applications import Applications, is_account, limits_from_json, limits_of
from chart.sensor_pod.drivers import RESPONDER, Drivers
from chart.sensor_pod.pod import Pod
from chart.sensor_pod.publisher import Publisher
from chart.sensor_pod.repository import Repository, Retention
from chart.sensor_pod.settings import PodSettings
from chart.sensor_pod.streams import ControlStreams

_log = structlog.get_logger("chart.sensor_pod")


async def serve(settings: PodSettings) -> None:
    """Run the pod until cancelled."""
    if not settings.node:
        msg = "CHART_NODE is not set: a sensor pod serves one node and must know its name"
        raise ValueError(msg)
    clock = SystemClock()
    calls = node_identity.calls_of(settings)
    identity = NodeIdentity(settings, calls, clock) if calls is not None else None
    signer = RecordSigner(settings.node, calls, clock) if calls is not None else None
    certificate = BrokerCertificate(clock)
    await certificate.present(identity.run() if identity is not None else None)
    broker = connect(settings, signer)
    repository = Repository(settings.state_dir / "sensor-pod.sqlite")
    await repository.open()
    retention = Retention(age_us=int(settings.retention_days * 86_400e6), rows=settings.retention_rows)
    publisher = Publisher(repository, broker, clock, retention)
    drivers = Drivers(
        settings.sensors_dir, key_file(settings), settings.responder_listen if settings.responder else None
    )
    pod = Pod(
        settings.node,
        repository,
        drivers,
        publisher,
        clock,
        probe_share=settings.probe_share,
        default_capacity_bps=settings.default_capacity_bps,
        applications=Applications(limits_from_json(settings.application_limits)),
    )
    platform = PlatformView(settings.state_dir / "platform-settings.pb")
    _apply_platform(settings, platform, pod)
    streams = ControlStreams(broker, pod, clock)
    platform.changed(functools.partial(_apply_platform, settings, platform, pod))
    platform.changed(streams.limits_changed)

    async def sensors_are_there() -> None:
        if not drivers.sensors():
            msg = f"no sensor in {settings.sensors_dir}"
            raise RuntimeError(msg)

    async def responder_runs() -> bool:
        return drivers.responder_runs

    checks = {"repository": repository.count, "sensors": sensors_are_there, "responder": responder_runs}
    try:
        await pod.load()
        # What is loaded stays: without this the collector looks through 10,000 configurations and delays their runs.
        gc.collect()
        gc.freeze()
        async with (
            drivers,
            rpc.serve([pod_rpc.registration(pod)], settings, guard_of(settings, calls)),
            HealthServer(settings.http_listen, checks),
        ):
            await runtime.run_together(
                pod.run(),
                publisher.run(),
                publisher.keep_bounded(),
                streams.run_configurations(),
                streams.run_refused(),
                streams.run_topology(),
                streams.run_state(),
                streams.run_leases(),
                platform.run(broker),
                _keep_gauges(pod, clock),
                certificate.replaced(),
                *(one.run() for one in (identity, signer) if one is not None),
            )
    finally:
        await repository.close()
        await broker.close()
        if calls is not None:
            await calls.close()


def _apply_platform(settings: PodSettings, platform: PlatformView, pod: Pod) -> None:
    """What operators set for the platform, or else what the pod was started with."""
    now = platform.now
    started = limits_from_json(settings.application_limits)
    limits = limits_of(now.application_limits) if now.HasField("application_limits") else started
    pod.set_limits(platform.applied(settings).probe_share, limits)


def guard_of(settings: PodSettings, calls: AuthorityCalls | None) -> rpc.Guard | None:
    """How the pod's gRPC interface is guarded; None: plain.

    Raises:
        ValueError: plain in production, on an address that others reach.
    """
    if calls is not None:
        return rpc.Guard(RpcFiles(calls.certificate, calls.key, calls.ca), settings.grpc_callers)
    host = settings.grpc_listen.rpartition(":")[0].strip("[]")
    if settings.environment == "production" and not is_loopback(host):
        msg = (
            f"plain gRPC on {settings.grpc_listen}: give the pod its node's identity (CHART_NODE_IDENTITY or"
            " CHART_ENROLMENT_TOKEN_FILE, and CHART_AUTHORITY_CA), or let it listen on 127.0.0.1"
        )
        raise ValueError(msg)
    return None


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def key_file(settings: PodSettings) -> Path | None:
    """The keys of the sensors; without a setting the pod makes one of its own, which only it and its responder know."""
    if settings.sensor_key_file is not None:
        return settings.sensor_key_file
    path = settings.state_dir / "sensor.key"
    program = settings.sensors_dir / RESPONDER
    if not path.exists():
        if not program.exists():
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(program), "--generate-key", str(path)], check=True, timeout=10, capture_output=True)
        _log.warning("made a sensor key that no other node knows; set CHART_SENSOR_KEY_FILE", path=str(path))
    return path


async def _keep_gauges(pod: Pod, clock: SystemClock) -> None:
    while True:
        scheduler = pod.scheduler
        metrics.CONFIGURATIONS.set(len(scheduler.configurations()))
        metrics.GROUPS.set(scheduler.group_count)
        metrics.RUNNING.set(scheduler.running)
        for link in scheduler.budget.links():
            if is_account(link):
                continue
            metrics.BUDGET_USED.labels(link=link).set(scheduler.budget.used_share(link, int(clock.monotonic() * 1e6)))
        await asyncio.sleep(1.0)


def main() -> None:
    """Run chart-sensor-pod."""
    settings = PodSettings()
    telemetry.setup("sensor-pod", settings)
    sys.exit(runtime.run(serve(settings)))


if __name__ == "__main__":
    main()
