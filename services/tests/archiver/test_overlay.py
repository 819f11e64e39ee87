"""Records of the overlay as rows, and its history on plain PostgreSQL and on TimescaleDB."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from chart.archiver.overlay_repository import OverlayRepository
from chart.archiver.repository import Repository
from chart.archiver.rows import UnarchivableError, rows_of
from chart.archiver.times import day_of
from chart.common.database import Pool
from chart.common.records import Record
from chart.v1 import node_state_pb2, path_table_pb2
from chart.v1.node_state_pb2 import OverlayEvent, OverlayEventKind

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000
NOW_US = 1_750_000_000_000_000 // HOUR * HOUR
START_US = NOW_US - 5 * DAY
STARTED = OverlayEventKind.OVERLAY_EVENT_KIND_STARTED
FAILED = OverlayEventKind.OVERLAY_EVENT_KIND_LINK_FAILED
RETURNED = OverlayEventKind.OVERLAY_EVENT_KIND_LINK_RETURNED
LEFT = OverlayEventKind.OVERLAY_EVENT_KIND_PATH_LEFT
GOOD = OverlayEventKind.OVERLAY_EVENT_KIND_PATH_GOOD_AGAIN
VOICE, DATA = node_state_pb2.OVERLAY_CLASS_VOICE, node_state_pb2.OVERLAY_CLASS_DATA
LINK = "alpha:to-bravo"


def link_event(sequence: int, at_us: int, kind: OverlayEventKind.ValueType, link: str = LINK) -> OverlayEvent:
    return OverlayEvent(sequence=sequence, at_us=at_us, kind=kind, link_id=link, rtt_us=1500, exchange_loss=0.25)


def state(*events: OverlayEvent, node: str = "alpha", instance: str = "first") -> Record:
    value = node_state_pb2.NodeState(
        node=node, agent_instance=instance, overlay=node_state_pb2.OverlayState(events=events)
    )
    return Record("chart.node-state.v1", node, value, {}, START_US, 0, 0)


def table(at_us: int, offset: int, generation: int = 1, *, node: str = "alpha", part: bool = True) -> Record:
    value = None
    if part:
        value = path_table_pb2.PathTable(
            node=node, generation=generation, links=[path_table_pb2.OverlayLink(link_id=LINK)]
        )
    return Record("chart.path-table.v1", node, value, {}, at_us, 0, offset)


def test_each_event_of_a_state_is_a_row_and_a_state_without_any_is_none() -> None:
    left = OverlayEvent(sequence=2, at_us=START_US, kind=LEFT, owner="bravo", colour=1, flow_classes=[VOICE, DATA])
    rows = rows_of(state(link_event(1, START_US, FAILED), left))
    assert [name for name, _ in rows] == ["overlay_event"] * 2
    assert rows[0][1]["kind"] == "LINK_FAILED"
    assert rows[0][1]["flow_classes"] == []
    assert rows[1][1]["flow_classes"] == ["VOICE", "DATA"]
    assert (rows[1][1]["owner"], rows[1][1]["colour"]) == ("bravo", 1)
    assert rows_of(state()) == []
    assert rows_of(Record("chart.node-state.v1", "alpha", None, {}, START_US, 0, 0)) == []


def test_an_event_of_a_later_version_is_kept_and_one_without_time_refused() -> None:
    ((_, row),) = rows_of(state(OverlayEvent(sequence=1, at_us=START_US, kind=77)))  # type: ignore[arg-type]
    assert row["kind"] == "77"
    with pytest.raises(UnarchivableError, match="at_us"):
        rows_of(state(OverlayEvent(sequence=1, kind=FAILED)))


@pytest_asyncio.fixture
async def overlay(pool: Pool, repository: Repository) -> AsyncIterator[OverlayRepository]:
    yield OverlayRepository(pool)
    async with pool.connection() as connection:
        await connection.execute("TRUNCATE overlay_event, path_table")


@pytest.mark.contract
async def test_the_overlay_of_a_time_is_what_had_happened_since_it_began(
    repository: Repository, overlay: OverlayRepository
) -> None:
    records = [
        table(START_US, 1, 5),
        state(link_event(1, START_US + SECOND, STARTED, ""), link_event(2, START_US + 10 * SECOND, FAILED)),
        # Told again with the next state.
        state(link_event(2, START_US + 10 * SECOND, FAILED), link_event(3, START_US + 20 * SECOND, RETURNED)),
        table(START_US + 11 * SECOND, 2, 6),
        state(link_event(1, START_US + 40 * SECOND, STARTED, ""), instance="second"),
        table(START_US + 50 * SECOND, 3, part=False),
    ]
    await repository.insert([row for record in records for row in rows_of(record)])

    async def at(seconds: int) -> tuple[list[int], list[OverlayEventKind.ValueType]]:
        when_us = START_US + seconds * SECOND
        tables = await overlay.tables_at(when_us)
        return [one.generation for one in tables], [one.event.kind for one in await overlay.last_events(when_us)]

    assert await at(5) == ([5], [STARTED])
    assert await at(15) == ([6], [STARTED, FAILED])
    assert await at(30) == ([6], [STARTED, RETURNED])
    # Its agent began anew: what failed before does not count.
    assert await at(45) == ([6], [STARTED])
    assert await at(60) == ([], [STARTED])
    found = await overlay.events("alpha", "", "", "", START_US, START_US + 60 * SECOND, 10)
    assert [one.event.sequence for one in found] == [1, 3, 2, 1]
    assert found[2].event.rtt_us == 1500
    assert found[2].event.exchange_loss == 0.25
    assert [
        one.event.kind for one in await overlay.events("", LINK, "", "links", START_US, START_US + 15 * SECOND, 10)
    ] == [FAILED]
    assert await overlay.events("bravo", "", "", "", START_US, NOW_US, 10) == []


@pytest.mark.contract
async def test_what_each_class_thinks_of_a_path_counts_by_itself(
    repository: Repository, overlay: OverlayRepository
) -> None:
    left = OverlayEvent(
        sequence=1, at_us=START_US, kind=LEFT, owner="bravo", colour=1, rtt_us=2500, flow_classes=[VOICE, DATA]
    )
    good = OverlayEvent(sequence=2, at_us=START_US + SECOND, kind=GOOD, owner="bravo", colour=1, flow_classes=[DATA])
    await repository.insert(rows_of(state(left, good)))
    found = await overlay.last_events(START_US + 2 * SECOND)
    assert {tuple(one.event.flow_classes): one.event.kind for one in found} == {(VOICE,): LEFT, (DATA,): GOOD}
    every = await overlay.events("", "", "bravo", "paths", START_US, START_US + 2 * SECOND, 10)
    assert [list(one.event.flow_classes) for one in every] == [[DATA], [VOICE, DATA]]
    assert await overlay.events("", "", "", "links", START_US, START_US + 2 * SECOND, 10) == []


@pytest.mark.contract
async def test_the_table_of_the_oldest_day_that_is_kept_stays(
    repository: Repository, overlay: OverlayRepository
) -> None:
    records = [table(NOW_US - 9 * DAY, 1, 1), table(NOW_US - 8 * DAY, 2, 2), table(NOW_US - DAY, 3, 3)]
    records += [table(NOW_US - 9 * DAY, 4, node="bravo"), table(NOW_US - 8 * DAY, 5, node="bravo", part=False)]
    await repository.insert([row for record in records for row in rows_of(record)])
    await repository.maintain(day_of(NOW_US), {"overlay_event": 5})
    assert [one.generation for one in await overlay.tables_at(NOW_US)] == [3]
    assert [one.generation for one in await overlay.tables_at(NOW_US - 5 * DAY)] == [2]
    assert await overlay.tables_at(NOW_US - 8 * DAY - HOUR) == []
