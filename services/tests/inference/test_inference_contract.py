"""chart-inference as a process on a real Kafka: measurements in, estimates out, the same again after kill -9."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from chart.common import rpc
from chart.common.streams import KafkaBroker
from chart.v1 import estimate_pb2, inference_pb2, inference_pb2_grpc, measurement_pb2
from support.processes import ServerProcess, free_ports, listens
from support.waiting import eventually

pytestmark = pytest.mark.contract

NODES = tuple(f"inf{number}" for number in range(5))
METRIC = "rtt_us"


def process(directory: Path, bootstrap: str) -> tuple[ServerProcess, str, int]:
    grpc_port, http_port = free_ports(2)
    settings = {
        "PATH": os.environ["PATH"],
        "CHART_KAFKA_BOOTSTRAP": bootstrap,
        "CHART_STATE_DIR": str(directory),
        "CHART_GRPC_LISTEN": f"127.0.0.1:{grpc_port}",
        "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}",
        "CHART_INFERENCE_PERIOD_S": "0.5",
    }
    environment = (f"{key}={value}" for key, value in settings.items())
    command = ("env", "-i", *environment, sys.executable, "-m", "chart.inference.main")
    return ServerProcess("inference", command, directory / "log"), f"127.0.0.1:{grpc_port}", http_port


def start(server: ServerProcess, target: str, http_port: int) -> None:
    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{http_port}/readyz", timeout=2) as answer:
                return bool(answer.status == 200) and listens(target)
        except (urllib.error.URLError, OSError):
            return False

    server.start(ready)


async def test_estimates_on_kafka_survive_a_kill(kafka_bootstrap: str, tmp_path: Path) -> None:
    broker = KafkaBroker(kafka_bootstrap)
    for near in range(5):
        # Everybody measured the first two; the rest follows from them.
        for far in range(min(near, 2)):
            key = f"{NODES[near]},{NODES[far]},{METRIC}"
            one = measurement_pb2.Measurement(
                source_node=NODES[near],
                destination_node=NODES[far],
                metric=METRIC,
                value=10_000.0 * (near - far),
                unit="us",
                measured_at_us=time.time_ns() // 1000,
            )
            await broker.publish("chart.measurement.v1", key, one)
    state = await broker.compacted("chart.estimate.v1")
    server, target, http_port = process(tmp_path, kafka_bootstrap)

    def ours() -> dict[str, estimate_pb2.Estimate]:
        return {
            key: value
            for key, value in state.items()
            if isinstance(value, estimate_pb2.Estimate) and value.source_node in NODES and value.metric == METRIC
        }

    def offsets_of(found: dict[str, estimate_pb2.Estimate]) -> dict[str, int]:
        return {key: record.offset for key in found if (record := state.record(key)) is not None}

    try:
        start(server, target, http_port)
        await eventually(lambda: len(ours()) == 20, 30)
        found = ours()
        assert found["inf0,inf3,rtt_us"].method == "measured"
        assert found["inf0,inf3,rtt_us"].value == 30_000
        guess = found["inf3,inf4,rtt_us"]
        assert guess.method != "measured"
        assert guess.interval_low <= guess.value <= guess.interval_high
        offsets = offsets_of(found)
        server.kill()
        start(server, target, http_port)
        channel = rpc.channel(target)
        stub = inference_pb2_grpc.InferenceStub(channel)

        async def answers() -> bool:
            answer = await stub.ListEstimates(inference_pb2.ListEstimatesRequest(metric=METRIC))
            return len([one for one in answer.estimates if one.source_node in NODES]) == 20

        await eventually(answers, 30)

        async def has_refreshed() -> bool:
            pairs = (await stub.NextPairs(inference_pb2.NextPairsRequest(metric=METRIC, count=3))).pairs
            return len(pairs) > 0

        await eventually(has_refreshed, 30)
        await channel.close(None)
        assert offsets_of(found) == offsets
    finally:
        server.stop()
        for node in NODES:
            await asyncio.gather(
                *(
                    broker.publish("chart.estimate.v1", f"{node},{other},{METRIC}", None)
                    for other in NODES
                    if other != node
                )
            )
        await broker.close()
