"""The database in memory keeps PostgreSQL's promises: the simulation is worth nothing without them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from chart_lab.simulation.database import Database, Transaction
from chart_lab.simulation.processes import Process
from support import simulated


class Bench(simulated.Bench):
    def __init__(self) -> None:
        super().__init__()
        self.database = Database(self.loop, random.Random(1))
        self.commits: list[dict[Any, Any]] = []
        self.database.watchers.append(lambda process, before, after: self.commits.append(dict(after)))


async def lock(bench: Bench, process: Process) -> None:
    async with bench.database.transaction(process) as transaction:
        await transaction.lock("t", 1)


@pytest.fixture
def bench() -> Iterator[Bench]:
    one = Bench()
    yield one
    one.end()


def test_a_transaction_happens_wholly_or_not_at_all(bench: Bench) -> None:
    process = bench.process("one")

    async def story() -> None:
        async def fail() -> None:
            async with bench.database.transaction(process) as transaction:
                await transaction.write("t", 1, {"value": 1})
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        assert bench.database.table("t") == {}
        async with bench.database.transaction(process) as transaction:
            await transaction.write("t", 1, {"value": 1})
            await transaction.write("u", 2, {"value": 2})
            assert bench.database.table("t") == {}
            assert transaction.read("t", 1) == {"value": 1}
        assert bench.database.table("t") == {1: {"value": 1}}
        assert bench.commits == [{("t", 1): {"value": 1}, ("u", 2): {"value": 2}}]

    bench.run(story)


def test_a_row_that_is_locked_is_waited_for_and_read_anew(bench: Bench) -> None:
    one, two = bench.process("one"), bench.process("two")

    async def add(process: Process, amount: int) -> None:
        async with bench.database.transaction(process) as transaction:
            await transaction.lock("t", "sum")
            row = transaction.read("t", "sum") or {"value": 0}
            await transaction.pause()
            await transaction.write("t", "sum", {"value": row["value"] + amount})

    async def story() -> None:
        await asyncio.gather(*(add(random.choice([one, two]), amount) for amount in range(20)))
        assert bench.database.table("t")["sum"] == {"value": sum(range(20))}

    bench.run(story)


def test_locked_rows_are_skipped_by_who_does_not_wait(bench: Bench) -> None:
    process = bench.process("one")

    async def story() -> None:
        async with bench.database.transaction(process) as first, bench.database.transaction(process) as second:
            await first.lock("t", 1)
            assert not second.try_lock("t", 1)
            assert second.try_lock("t", 2)

    bench.run(story)


def test_a_lock_that_never_comes_is_an_error_and_the_lock_lives_on(bench: Bench) -> None:
    process = bench.process("one")

    async def story() -> None:
        async with bench.database.transaction(process) as first:
            await first.lock("t", 1)
            with pytest.raises(psycopg.errors.LockNotAvailable):
                await lock(bench, process)
        async with bench.database.transaction(process) as third:
            await third.lock("t", 1)

    bench.run(story)


def test_a_server_that_dies_undoes_what_is_under_way_and_keeps_no_lock(bench: Bench) -> None:
    process = bench.process("one")

    async def hold(transaction: Transaction) -> None:
        await transaction.lock("t", 1)
        await transaction.write("t", 1, {"value": 1})
        await asyncio.sleep(1.0)
        await transaction.pause()

    async def work() -> None:
        async with bench.database.transaction(process) as transaction:
            await hold(transaction)

    async def story() -> None:
        tasks = [asyncio.ensure_future(work()) for _ in range(3)]
        await asyncio.sleep(0.5)
        bench.database.crash()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, psycopg.OperationalError) for result in results), results
        assert bench.database.table("t") == {}
        bench.database.up = True
        async with bench.database.transaction(process) as transaction:
            await transaction.lock("t", 1)

    bench.run(story)


def test_a_process_that_is_killed_loses_its_transaction_and_its_locks(bench: Bench) -> None:
    one, two = bench.process("one"), bench.process("two")

    async def work() -> None:
        async with bench.database.transaction(one) as transaction:
            await transaction.write("t", 1, {"value": 1})
            await asyncio.sleep(10.0)

    async def story() -> None:
        one.spawn(work())
        await asyncio.sleep(0.5)
        one.kill()
        async with bench.database.transaction(two) as transaction:
            await transaction.lock("t", 1)
            assert transaction.read("t", 1) is None

    bench.run(story)


def test_numbers_of_a_sequence_are_given_at_the_insert(bench: Bench) -> None:
    assert [bench.database.next_number() for _ in range(3)] == [1, 2, 3]
