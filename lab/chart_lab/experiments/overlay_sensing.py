"""Sensors between the two ends of a virtual link, as a sensor pod would run and publish them, for `er-overlay`."""

from __future__ import annotations

import json
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from chart.v1 import measurement_pb2
from chart_lab.errors import LabError
from chart_lab.experiments import probing
from chart_lab.network import Lab
from chart_lab.programs import program

MEASUREMENT = "chart.measurement.v1"
# A reading of the available bandwidth takes 40 pairs; one of the round-trip time 8 probes, 20 ms apart.
PAIRS = 40
# Of the bottleneck, what spruce may take while it runs: it comes out of what is spare.
PROBE_SHARE = 0.01
PROBES, PROBE_INTERVAL_MS = 8, 20
SENSOR_LIMIT_S = 20.0


@dataclass(frozen=True)
class Reading:
    """What a sensor said, CLOCK_MONOTONIC."""

    at_ns: int
    metric: str
    value: float


class Sensors:
    """Spruce and ping from the nearer element to the farther one, again and again; results go to the stream."""

    def __init__(self, lab: Lab, ends: tuple[str, str], key_file: Path, capacity_bps: float, bootstrap: str) -> None:
        self.readings: list[Reading] = []
        self.failures: list[str] = []
        self._lab = lab
        self._near, self._far = ends
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 3})
        self._stop = threading.Event()
        address = lab.address(ends[1])
        spruce = [str(program("sensors/spruce")), "--destination", address, "--key-file", str(key_file), "--json"]
        spruce += ["--capacity-bps", f"{capacity_bps:.0f}", "--pairs", str(PAIRS), "--share", str(PROBE_SHARE)]
        ping = [str(program("sensors/ping")), "--destination", address, "--json", "--count", str(PROBES)]
        ping += ["--interval-ms", str(PROBE_INTERVAL_MS)]
        commands = (("available_bandwidth_bps", "bps", "spruce", spruce), ("rtt_us", "us", "ping", ping))
        self._threads = [threading.Thread(target=self._follow, args=one, daemon=True) for one in commands]
        for thread in self._threads:
            thread.start()

    def _follow(self, metric: str, unit: str, sensor: str, command: Sequence[str]) -> None:
        while not self._stop.is_set():
            try:
                told = self._lab.exec(self._near, command, timeout_s=SENSOR_LIMIT_S, check=False)
                record: dict[str, Any] = json.loads(told.stdout.splitlines()[-1])
                value = next(float(one["value"]) for one in record["metrics"] if one["metric"] == metric)
            except (LabError, IndexError, KeyError, ValueError, StopIteration) as error:
                self.failures.append(f"{sensor}: {error!r}")
                self._stop.wait(0.2)
                continue
            self.readings.append(Reading(time.monotonic_ns(), metric, value))
            measured = measurement_pb2.Measurement(
                id=secrets.token_hex(8),
                source_node=self._near,
                destination_node=self._far,
                sensor=sensor,
                metric=metric,
                value=value,
                unit=unit,
                measured_at_us=time.time_ns() // 1000,
                probe_bytes=int(record.get("probe_bytes", 0)),
            )
            self._producer.produce(
                MEASUREMENT, key=f"{self._near},{self._far},{metric}", value=measured.SerializeToString()
            )
            self._producer.poll(0)

    def seen(self, metric: str) -> int:
        """How many readings there are."""
        return sum(1 for one in self.readings if one.metric == metric)

    def close(self) -> None:
        """End; the readings stay."""
        self._stop.set()
        for thread in self._threads:
            thread.join(timeout=SENSOR_LIMIT_S + 1)
        self._producer.flush(2)


@contextmanager
def sensing(lab: Lab, ends: tuple[str, str], capacity_bps: float, bootstrap: str) -> Iterator[Sensors]:
    """Sensors from the nearer end to the farther one, with a responder there.

    Raises LabError when the responder does not start.
    """
    with tempfile.TemporaryDirectory(prefix="chart-overlay-") as folder:
        key_file = probing.make_key(Path(folder))
        with probing.responder(lab, ends[1], key_file):
            sensors = Sensors(lab, ends, key_file, capacity_bps, bootstrap)
            try:
                yield sensors
            finally:
                sensors.close()
