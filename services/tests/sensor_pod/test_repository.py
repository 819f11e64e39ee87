"""The pod's file and the publisher behind it, with a broker that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from chart.common.clock import FakeClock, SystemClock
from chart.common.streams_local import LocalBroker
from chart.sensor_pod import publisher as module
from chart.sensor_pod.publisher import CURSOR, TOPIC, Publisher
from chart.sensor_pod.repository import Repository, Retention, RunRecord, SkipRecord
from chart.v1 import measurement_pb2, sensing_configuration_pb2
from support.waiting import eventually


@pytest.fixture
async def repository(tmp_path: Path) -> AsyncIterator[Repository]:
    opened = Repository(tmp_path / "pod.sqlite")
    await opened.open()
    yield opened
    await opened.close()


def run(number: int, metric: str = "rtt_us") -> RunRecord:
    measurement = measurement_pb2.Measurement(
        id=f"id{number}", source_node="a", destination_node="b", metric=metric, value=number, measured_at_us=number
    )
    return RunRecord(f"group{number}", number, (measurement,))


async def identities(broker: LocalBroker, count: int) -> list[str]:
    found: list[str] = []
    async with broker.subscribe([TOPIC], start="earliest") as subscription:
        async for record in subscription:
            assert isinstance(record.value, measurement_pb2.Measurement)
            found.append(record.value.id)
            if len(found) == count:
                break
    return found


async def test_writes_that_come_together_are_all_stored(repository: Repository) -> None:
    await asyncio.gather(*(repository.write(run(number)) for number in range(1, 201)))
    assert await repository.count() == 200
    assert [number for number, _ in await repository.after(0, 3)] == [1, 2, 3]


async def test_one_bad_record_fails_its_writers_and_nothing_of_its_batch_stays(repository: Repository) -> None:
    await repository.write(run(1))
    with pytest.raises(Exception, match="UNIQUE"):
        await repository.write(run(1))
    await repository.write(run(2))
    assert await repository.count() == 2


async def test_a_second_life_finds_everything(tmp_path: Path) -> None:
    first = Repository(tmp_path / "pod.sqlite")
    await first.open()
    configuration = sensing_configuration_pb2.SensingConfiguration(id="c", sensor="ping")
    await first.put_configuration(configuration, "stream")
    await first.write(run(5))
    await first.write(SkipRecord(1, "group5", "budget", "why", 2))
    await first.move_cursor(CURSOR, 1)
    await first.close()
    second = Repository(tmp_path / "pod.sqlite")
    await second.open()
    assert await second.configurations() == [(configuration, "stream")]
    assert await second.last_starts_us() == {"group5": 5}
    assert await second.cursor(CURSOR) == 1
    assert (await second.skips(10))[0].detail == "why"
    assert [entry.id for entry in await second.results_since("group5", 5)] == ["id5"]
    assert await second.results_since("group5", 6) == []
    await second.close()


async def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "pod.sqlite"
    path.write_bytes(b"this is no database" * 500)
    repository = Repository(path)
    await repository.open()
    assert await repository.count() == 0
    assert (tmp_path / "pod.damaged").exists()
    await repository.close()


async def test_retention_spares_what_was_not_published_until_the_last_limit(repository: Repository) -> None:
    for number in range(1, 101):
        await repository.write(run(number))
    await repository.move_cursor(CURSOR, 50)
    pruned = await repository.prune(CURSOR, 10**9, Retention(age_us=1, rows=10, unpublished_rows=1000))
    assert (pruned.rows, pruned.lost) == (50, 0)
    pruned = await repository.prune(CURSOR, 10**9, Retention(age_us=1, rows=10, unpublished_rows=30))
    assert (pruned.rows, pruned.lost) == (20, 20)
    assert await repository.count() == 30


async def test_an_outage_is_replayed_in_order_by_the_next_process(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BACK_OFF_S", (0.01, 0.02))
    broker = LocalBroker(FakeClock())
    publisher = Publisher(repository, broker, SystemClock(), Retention())
    task = asyncio.create_task(publisher.run())
    for number in range(1, 11):
        await repository.write(run(number))
    publisher.wake()
    await eventually(lambda: repository.cursor(CURSOR))
    broker.available = False
    for number in range(11, 21):
        await repository.write(run(number))
    publisher.wake()
    await asyncio.wait([task], timeout=0.1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    broker.available = True
    task = asyncio.create_task(Publisher(repository, broker, SystemClock(), Retention()).run())
    assert await asyncio.wait_for(identities(broker, 20), 10) == [f"id{number}" for number in range(1, 21)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await broker.close()
