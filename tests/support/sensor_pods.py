"""Sensor pods as processes, with the real sensors."""

from __future__ import annotations

import sqlite3
import sys
import urllib.request
from pathlib import Path

from chart.common.places import repository_root
from support.kafka import KafkaServer
from support.processes import ServerProcess, free_ports


class PodProcess:
    """chart-sensor-pod on free ports."""

    def __init__(self, kafka: KafkaServer, directory: Path, node: str, **more: str) -> None:
        grpc_port, http_port, responder_port = free_ports(3)
        self.node = node
        self.target = f"127.0.0.1:{grpc_port}"
        self.responder_port = responder_port
        self.database = directory / "sensor-pod.sqlite"
        self.log = directory / "pod.log"
        self._ready = f"http://127.0.0.1:{http_port}/readyz"
        environment = {
            "CHART_NODE": node,
            "CHART_KAFKA_BOOTSTRAP": kafka.bootstrap,
            "CHART_STATE_DIR": str(directory),
            "CHART_GRPC_LISTEN": self.target,
            "CHART_HTTP_LISTEN": f"127.0.0.1:{http_port}",
            "CHART_RESPONDER_LISTEN": f"127.0.0.1:{responder_port}",
            "CHART_SENSORS_DIR": str(repository_root() / "build" / "sensors"),
            "CHART_DEFAULT_CAPACITY_BPS": "1000000000",
            **more,
        }
        command = ("env", *(f"{name}={value}" for name, value in environment.items()))
        self._process = ServerProcess("pod", (*command, sys.executable, "-m", "chart.sensor_pod.main"), self.log)

    def start(self) -> None:
        self._process.start(self._answers)

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._process.stop()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self._ready, timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stored(self, metric: str = "%") -> list[str]:
        """Ids of all results in the pod's file, in order."""
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True, timeout=10) as database:
            rows = database.execute(
                "SELECT id FROM measurement WHERE metric LIKE ? ORDER BY sequence", (metric,)
            ).fetchall()
        database.close()
        return [str(row[0]) for row in rows]
