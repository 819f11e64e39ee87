"""Notices to applications on a real PostgreSQL: their order, what becomes of a request's state, sending again."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import socket
from collections.abc import AsyncIterator, Callable

import psycopg
import pytest
import pytest_asyncio
import sqlalchemy
from alembic import command

from chart.common import database, migrate
from chart.common.clock import SystemClock
from chart.common.database import Pool
from chart.common.places import migrations_dir
from chart.common.rpc_errors import RefusalError
from chart.common.settings import BaseServiceSettings
from chart.reservations.decisions import notices
from chart.reservations.decisions.admission import Ask, Granted
from chart.reservations.decisions.lifecycle import create
from chart.reservations.decisions.network import NetworkLink
from chart.reservations.decisions.reservation import Outcome, Reservation, Timing
from chart.reservations.decisions.validation import CheckedRequest
from chart.reservations.decisions.windows import FOREVER_US
from chart.reservations.edges import deliveries
from chart.reservations.edges.deliveries import Deliveries
from chart.reservations.store import rows
from chart.reservations.store.callbacks import Callbacks
from chart.reservations.store.changes import Changes
from chart.v1 import rate_request_pb2 as rr
from chart.v1.flow_grant_pb2 import FlowSelector
from support.postgres import PostgresServer
from support.receiver import receiver
from support.waiting import eventually

pytestmark = pytest.mark.contract
NOW_US = 1_750_000_000_000_000
S = 1_000_000


@pytest_asyncio.fixture
async def pool(postgres: PostgresServer) -> AsyncIterator[Pool]:
    postgres.truncate("reservations")
    async with database.pool(BaseServiceSettings(database_url=postgres.role_url("reservations"))) as opened:
        yield opened


async def write(pool: Pool, before: Reservation | None, *outcomes: Outcome) -> Reservation:
    """Store changes of a request, one transaction each; returns it as it is then."""
    for outcome in outcomes:
        async with pool.connection() as connection, connection.transaction():
            changes = Changes()
            before = changes.save(before, outcome, "test", NOW_US)
            await changes.write(connection)
    assert before is not None
    return before


def made(url: str) -> Outcome:
    link = NetworkLink("a:x", "a", "b", 10**8)
    specification = rr.RateRequestSpecification(guaranteed_bps=10**7, callback_url=url)
    checked = CheckedRequest(specification, FlowSelector(), Ask("a", "b", 10**7, 0, NOW_US, FOREVER_US))
    return create("r1", "alice", checked, Granted(10**7, (link,), link, 8 * 10**7), NOW_US, "", Timing())


def rate(before: Outcome, bps: int) -> Outcome:
    return Outcome(dataclasses.replace(before.reservation, granted_bps=bps))


async def state_of(pool: Pool) -> int:
    async with pool.connection() as connection:
        row = await (await connection.execute(rows.SELECT + " WHERE id = 'r1'")).fetchone()
    assert row is not None
    return rows.reservation_of(row).callback_state


def is_in(pool: Pool, state: int) -> Callable[[], object]:
    async def reached() -> bool:
        return await state_of(pool) == state

    return reached


async def test_notices_of_one_moment_are_told_as_they_were_written(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    # The worst that ids can do: those of one millisecond in the wrong order.
    numbers = iter(range(99, 0, -1))
    monkeypatch.setattr("chart.reservations.store.changes.ULID", lambda: f"{next(numbers):026d}")
    with receiver() as (address, received):
        first = made(address)
        await write(pool, None, first, *(rate(first, bps) for bps in range(1, 6)))
        delivering = asyncio.create_task(Deliveries(Callbacks(pool), SystemClock(), anywhere=True).run())
        try:
            await eventually(is_in(pool, rr.CALLBACK_STATE_DELIVERED), 15)
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)
    assert [json.loads(body)["data"]["granted_bps"] for _, body in received] == [10**7, 1, 2, 3, 4, 5]
    listed, cursor = await Callbacks(pool).page("r1", "", 0, 4, "")
    rest, end = await Callbacks(pool).page("r1", "", 0, 4, cursor)
    assert [one.id[-2:] for one in (*listed, *rest)] == sorted(one.id[-2:] for one in (*listed, *rest))
    assert (len(listed), len(rest), end) == (4, 2, "")
    with pytest.raises(RefusalError, match="cursor"):
        await Callbacks(pool).page("r1", "", 0, 4, "msg_1")


async def test_a_notice_that_comes_while_another_is_noted_keeps_the_request_pending(pool: Pool) -> None:
    first = made("http://127.0.0.1:9/")
    before = await write(pool, None, first)
    callbacks = Callbacks(pool)
    (taken,) = await callbacks.take(NOW_US + S)
    async with pool.connection() as connection, connection.transaction():
        # As every change of a request does: it locks the request, and adds a notice.
        await connection.execute("SELECT 1 FROM rate_request WHERE id = 'r1' FOR UPDATE")
        noting = asyncio.create_task(callbacks.note(taken, "", SystemClock().now_us()))
        done, _ = await asyncio.wait([noting], timeout=0.5)
        assert not done, "it waits for the change"
        changes = Changes()
        changes.save(before, rate(first, 5), "test", NOW_US)
        await changes.write(connection)
    await asyncio.wait_for(noting, 5)
    assert await state_of(pool) == rr.CALLBACK_STATE_PENDING
    (taken,) = await callbacks.take(NOW_US + S)
    await callbacks.note(taken, "", SystemClock().now_us())
    assert await state_of(pool) == rr.CALLBACK_STATE_DELIVERED


async def test_what_was_given_up_can_be_sent_again(pool: Pool) -> None:
    await write(pool, None, made("http://127.0.0.1:9/"))
    callbacks = Callbacks(pool)
    (taken,) = await callbacks.take(NOW_US + S)
    await callbacks.note(taken, "the receiver answered 410", SystemClock().now_us())
    # A day after it was made the last try is over.
    assert await state_of(pool) == rr.CALLBACK_STATE_DEAD
    with pytest.raises(RefusalError):
        await callbacks.retry(taken.id, "mallory", "mallory", SystemClock().now_us())
    again = await callbacks.retry(taken.id, "alice", "alice", SystemClock().now_us())
    assert (again.state, again.attempts) == (notices.PENDING, 0)
    assert await state_of(pool) == rr.CALLBACK_STATE_PENDING
    (taken,) = await callbacks.take(SystemClock().now_us())
    await callbacks.note(taken, "", SystemClock().now_us())
    assert await state_of(pool) == rr.CALLBACK_STATE_DELIVERED


async def test_too_many_notices_give_up_the_oldest(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "MOST_WAITING", 3)
    first = made("http://127.0.0.1:9/")
    await write(pool, None, first, *(rate(first, bps) for bps in range(1, 6)))
    callbacks = Callbacks(pool)
    (taken,) = await callbacks.take(NOW_US + S)
    await callbacks.note(
        dataclasses.replace(taken, created_at_us=SystemClock().now_us()), "no answer", SystemClock().now_us()
    )
    listed, _ = await callbacks.page("r1", "", 0, 10, "")
    assert [one.state for one in listed] == [notices.PENDING] * 3 + [notices.DEAD] * 3


async def test_a_receiver_that_hangs_holds_up_nobody_else(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Longer than this test waits: while it looks, the first delivery is under way and nothing else ends it.
    monkeypatch.setattr(deliveries, "TIMEOUT_S", 120.0)
    hanging = socket.create_server(("127.0.0.1", 0))
    hanging.setblocking(False)
    with hanging, receiver() as (address, received):
        await write(pool, None, made(f"http://127.0.0.1:{hanging.getsockname()[1]}/"))
        delivering = asyncio.create_task(Deliveries(Callbacks(pool), SystemClock(), anywhere=True).run())
        try:
            hangs, _ = await asyncio.wait_for(asyncio.get_running_loop().sock_accept(hanging), 30)
            with hangs:
                other = made(address)
                await write(
                    pool, None, dataclasses.replace(other, reservation=dataclasses.replace(other.reservation, id="r2"))
                )
                await eventually(lambda: received, 30)
                assert await state_of(pool) == rr.CALLBACK_STATE_PENDING
        finally:
            delivering.cancel()
            await asyncio.gather(delivering, return_exceptions=True)


def test_notices_of_a_version_before_are_numbered_in_their_order(postgres: PostgresServer) -> None:
    columns = "(id, request_id, owner, event, url, body, state, created_at_us, next_attempt_us)"
    with psycopg.connect(postgres.url, autocommit=True) as admin:
        admin.execute("CREATE DATABASE before")
    url = postgres.url.rsplit("/", 1)[0] + "/before"
    try:
        migrate.upgrade(url)
        engine = sqlalchemy.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text("SET search_path TO reservations"))
            versions = migrations_dir() / "reservations" / "versions"
            command.downgrade(migrate.configuration("reservations", versions, connection), "reservations_0002")
        with psycopg.connect(url, options="-c search_path=reservations") as connection:
            for number, at in ((3, 30), (1, 10), (2, 20)):
                connection.execute(
                    f"INSERT INTO callback {columns} VALUES ('m{number}', 'r', 'o', 'e', 'u', 'b', 2, {at}, 0)"
                )
            # Moves the row: the order of the table is not that of time.
            connection.execute("UPDATE callback SET attempts = 1 WHERE id = 'm1'")
        migrate.upgrade(url)
        with psycopg.connect(url, options="-c search_path=reservations") as connection:
            # The version before goes on writing: it knows no numbers.
            connection.execute(f"INSERT INTO callback {columns} VALUES ('m0', 'r', 'o', 'e', 'u', 'b', 2, 40, 0)")
            found = connection.execute("SELECT id FROM callback ORDER BY sequence").fetchall()
        assert [identity for (identity,) in found] == ["m1", "m2", "m3", "m0"]
        engine.dispose()
    finally:
        with psycopg.connect(postgres.url, autocommit=True) as admin:
            admin.execute("DROP DATABASE before WITH (FORCE)")
