"""The pod with a sensor that does not believe what it measured: nothing is published of it, and it runs again."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from chart.common.clock import SystemClock
from chart.common.streams_local import LocalBroker
from chart.sensor_pod.drivers import Drivers
from chart.sensor_pod.model import Configuration
from chart.sensor_pod.pod import Pod
from chart.sensor_pod.publisher import Publisher
from chart.sensor_pod.repository import Repository, Retention

# Its first run is spoilt, as pathchirp says it, the second is not.
PROGRAM = f"""#!{sys.executable}
import json, sys
runs = 0
for line in sys.stdin:
    request = json.loads(line)
    answer = {{"id": request["id"], "sensor": "pathchirp"}}
    if request.get("declare"):
        answer.update(probe_bytes=1000, duration_ms=100)
    elif runs == 0:
        runs += 1
        answer["error"] = {{"kind": "spoilt", "message": "9 of 12 chirps were spoilt"}}
        answer.update(probes_sent=200, probes_lost=0, probe_bytes=900)
    else:
        answer["metrics"] = [{{"metric": "available_bandwidth_bps", "value": 58e6, "unit": "bps"}}]
        answer.update(probes_sent=200, probes_lost=0, probe_bytes=900)
    print(json.dumps(answer), flush=True)
"""


async def test_a_spoilt_run_gives_a_reason_instead_of_a_number_and_is_made_again(tmp_path: Path) -> None:
    sensors = tmp_path / "sensors"
    sensors.mkdir()
    program = sensors / "pathchirp"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    clock = SystemClock()
    repository = Repository(tmp_path / "pod.sqlite")
    await repository.open()
    try:
        async with Drivers(sensors, None, None) as drivers:
            publisher = Publisher(repository, LocalBroker(), clock, Retention())
            pod = Pod("alpha", repository, drivers, publisher, clock)
            loop = asyncio.create_task(pod.run())
            asked = Configuration(
                id="",
                destination_node="bravo",
                destination_address="10.0.0.2",
                sensor="pathchirp",
                parameters=(),
                period_us=0,
                tolerance_us=0,
            )
            async with asyncio.timeout(30):
                results = await pod.run_once(asked)
            skips = await repository.skips(10)
            loop.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await loop
            stored = await repository.count()
    finally:
        await repository.close()
    assert [(one.metric, one.value, one.error) for one in results] == [("available_bandwidth_bps", 58e6, "")]
    assert [(skip.reason, skip.detail) for skip in skips] == [("spoilt", "9 of 12 chirps were spoilt")]
    assert stored == 1
    assert pod.scheduler.statistics.skipped == {"spoilt": 1}
