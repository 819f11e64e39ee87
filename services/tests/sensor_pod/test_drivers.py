"""Workers that answer, die, fall silent or are not there; written as small programs that speak the protocol."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chart.sensor_pod import drivers as module
from chart.sensor_pod.drivers import Drivers, SensorError
from chart.sensor_pod.model import GroupKey
from support.waiting import eventually

# Answers at once; dies or stays silent when a parameter says so.
PROGRAM = f"""#!{sys.executable}
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request.get("mode") == "die":
        os._exit(7)
    if request.get("mode") == "silent":
        continue
    if request.get("mode") == "garbage":
        print("not json", flush=True)
    answer = {{"id": request["id"], "pid": os.getpid(), "destination": request["destination"]}}
    print(json.dumps(answer), flush=True)
"""


def key(mode: str = "", sensor: str = "toy") -> GroupKey:
    return GroupKey(sensor, "bravo", "10.0.0.2", (("mode", mode),) if mode else ())


@pytest.fixture
async def drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Drivers]:
    monkeypatch.setattr(module, "BACK_OFF_S", (0.01, 0.1))
    program = tmp_path / "toy"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    (tmp_path / "readme.txt").write_text("no sensor")
    async with Drivers(tmp_path, None, None) as opened:
        yield opened


async def test_requests_share_one_worker_and_get_their_own_answers(drivers: Drivers) -> None:
    answers = await asyncio.gather(*(drivers.run(key(), 10) for _ in range(300)))
    assert len({answer["pid"] for answer in answers}) == 1
    assert len({answer["id"] for answer in answers}) == 300
    assert answers[0]["destination"] == "10.0.0.2"
    assert drivers.sensors() == ["toy"]


async def test_a_worker_that_dies_fails_its_requests_and_comes_back(drivers: Drivers) -> None:
    first = await drivers.run(key(), 10)
    with pytest.raises(SensorError, match="ended with status 7") as failure:
        await drivers.run(key("die"), 10)
    assert failure.value.record()["error"]["kind"] == "unavailable"
    again = await drivers.run(key(), 10)
    assert again["pid"] != first["pid"]


async def test_a_silent_worker_times_out_and_is_started_anew(drivers: Drivers) -> None:
    first = await drivers.run(key(), 10)
    for _ in range(module.SILENT_LIMIT):
        with pytest.raises(SensorError, match="no answer within"):
            await drivers.run(key("silent"), 0.05)
    await eventually(lambda: not Path(f"/proc/{first['pid']}").exists())
    assert (await drivers.run(key(), 10))["pid"] != first["pid"]


async def test_lines_that_are_no_answer_are_passed_over(drivers: Drivers) -> None:
    assert (await drivers.run(key("garbage"), 10))["destination"] == "10.0.0.2"


async def test_an_unknown_sensor_names_those_there_are(drivers: Drivers) -> None:
    with pytest.raises(SensorError, match="no sensor 'other'; it has toy"):
        await drivers.declare(key(sensor="other"))


async def test_a_cancelled_run_ends_at_once_and_the_next_one_is_not_kept_waiting(drivers: Drivers) -> None:
    await drivers.run(key(), 10)
    running = asyncio.create_task(drivers.run(key("silent"), 10))
    await asyncio.sleep(0)
    worker = drivers._workers["toy"]
    await eventually(lambda: len(worker._answers) == 1)
    drivers.cancel(key())
    with pytest.raises(SensorError) as failure:
        async with asyncio.timeout(5):
            await running
    assert failure.value.kind == "unavailable"
    assert (await drivers.run(key(), 5))["destination"] == "10.0.0.2"
