"""The group commit on a real PostgreSQL: transactions of two replicas, some of which fail, leave what was promised."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest
import pytest_asyncio
from ulid import ULID

from chart.common import database
from chart.common.clock import SystemClock
from chart.common.database import Pool
from chart.common.rpc_errors import RefusalError
from chart.common.settings import BaseServiceSettings
from chart.reservations.decisions import lifecycle, validation
from chart.reservations.decisions.jobs import Create, IdempotencyKey, Relieve, Step
from chart.reservations.decisions.ledger import Kind, Ledger, LinkCommitment
from chart.reservations.decisions.network import Network, network_of
from chart.reservations.decisions.profile import Block, LinkProfile
from chart.reservations.decisions.reservation import Timing
from chart.reservations.edges.batch_transaction import Result
from chart.reservations.edges.batches import Batches
from chart.reservations.store import changes
from chart.v1 import rate_request_pb2, topology_pb2
from support.postgres import PostgresServer

pytestmark = pytest.mark.contract
MEGA = 1_000_000
LINES, NODES = 6, 3
TIMING = Timing()


def a_network() -> Network:
    entities = []
    for line, place in itertools.product(range(LINES), range(NODES)):
        node = topology_pb2.Node(id=f"n{line}-{place}", addresses=[f"10.{line}.{place}.1/32"])
        entities.append((node.id, topology_pb2.TopologyEntity(node=node)))
        if place + 1 < NODES:
            link = topology_pb2.Link(
                id=f"n{line}-{place}:up",
                from_node=node.id,
                to_node=f"n{line}-{place + 1}",
                capacity_bps=100 * MEGA,
            )
            entities.append((link.id, topology_pb2.TopologyEntity(link=link)))
    return network_of(entities)


NETWORK = a_network()


@pytest_asyncio.fixture
async def pool(postgres: PostgresServer) -> AsyncIterator[Pool]:
    postgres.truncate("reservations")
    async with database.pool(BaseServiceSettings(database_url=postgres.role_url("reservations"))) as opened:
        yield opened


@asynccontextmanager
async def replica(pool: Pool) -> AsyncIterator[Batches]:
    made = Batches(pool, lambda: NETWORK, 3_600_000_000, SystemClock())
    running = asyncio.create_task(made.run())
    try:
        yield made
        assert not running.done(), running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def a_request(chance: random.Random, key: str) -> Create:
    now_us = SystemClock().now_us()
    line = chance.randrange(LINES)
    first, last = sorted(chance.sample(range(NODES), 2))
    later = chance.random() < 0.5
    specification = rate_request_pb2.RateRequestSpecification(
        source=f"n{line}-{first}",
        destination=f"n{line}-{last}",
        guaranteed_bps=chance.randrange(1, 20) * MEGA,
        start_us=now_us + chance.randrange(60, 4000) * 1_000_000 if later else 0,
        duration_us=chance.randrange(1000, 5000) * 1_000_000,
    )
    return asked(specification, key, now_us)


def asked(specification: rate_request_pb2.RateRequestSpecification, key: str, now_us: int) -> Create:
    checked = validation.check(specification, NETWORK, now_us)
    idempotency = IdempotencyKey("alice", key, validation.body_hash(specification))
    return Create(str(ULID()), "alice", checked, "", TIMING, idempotency)


async def stored(pool: Pool) -> tuple[list[LinkCommitment], dict[str, int], Ledger]:
    """What is committed, the versions of links, and their profiles as stored."""
    async with pool.connection() as connection:
        rows = await connection.execute("SELECT link_id, rate_bps, start_us, end_us, kind FROM commitment")
        held = [
            LinkCommitment(row["link_id"], row["rate_bps"], row["start_us"], row["end_us"], Kind(row["kind"]))
            for row in await rows.fetchall()
        ]
        rows = await connection.execute("SELECT id, version FROM link WHERE NOT stale")
        versions = {row["id"]: row["version"] for row in await rows.fetchall()}
        rows = await connection.execute("SELECT link_id, kind, level, number, cells FROM profile")
        profiles = Ledger()
        for row in await rows.fetchall():
            block = Block.unpack(bytes(row["cells"]))
            profiles.track(row["link_id"], Kind(row["kind"])).put((row["level"], row["number"]), block)
    return held, versions, profiles


def blocks_of(track: LinkProfile) -> dict[tuple[int, int], bytes]:
    return {key: block.pack() for key, block in track._blocks.items() if block is not None and not block.empty}


def check(held: list[LinkCommitment], versions: dict[str, int], profiles: Ledger, replicas: list[Batches]) -> None:
    """No link is over-committed at any instant, and all profiles are those of the commitments."""
    for link_id, link in NETWORK.links.items():
        mine = [one for one in held if one.link_id == link_id]
        for moment in {one.start_us for one in mine}:
            total = sum(one.committed_bps for one in mine if one.start_us <= moment < one.end_us)
            assert total <= link.admissible_bps, link_id
    made = Ledger()
    made.add(held)
    for link_id in versions:
        assert blocks_of(profiles.track(link_id)) == blocks_of(made.track(link_id)), link_id
    for one in replicas:
        for link_id, version in one._known.versions.items():
            if version == versions.get(link_id):
                known = blocks_of(one._known.ledger.track(link_id))
                assert known.items() <= blocks_of(made.track(link_id)).items(), link_id


async def test_transactions_store_what_they_decided(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    write = changes.Changes.write

    async def write_or_fail(changes: changes.Changes, connection: database.Connection) -> None:
        drawn = chance.random()
        await write(changes, connection)
        if drawn < 0.1:
            await connection.execute("SELECT 1 / 0")
        elif drawn < 0.15:
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    monkeypatch.setattr(changes.Changes, "write", write_or_fail)
    monkeypatch.setattr("chart.reservations.edges.batches.BATCH", 5)
    granted: dict[str, Result] = {}
    outcomes: Counter[str] = Counter()

    async def ask(number: int) -> None:
        for turn in range(12):
            job = a_request(chance, f"{number}-{turn}")
            for one in (job, job) if turn % 4 == 3 else (job,):
                try:
                    result = await chance.choice(replicas).submit(one)
                except RefusalError as error:
                    outcomes[error.refusal.code] += 1
                except psycopg.Error as error:
                    outcomes[type(error).__name__] += 1
                else:
                    outcomes["replayed" if result.replayed else "granted"] += 1
                    identity = result.replayed.id if result.replayed else job.identity
                    assert result.replayed is not None or identity not in granted
                    granted[identity] = result
            if turn % 3 == 2 and granted:
                identity = chance.choice(sorted(granted))
                step = Step(
                    identity, "alice", lambda one: lifecycle.release(one, SystemClock().now_us(), TIMING), TIMING
                )
                try:
                    await chance.choice(replicas).submit(step)
                except psycopg.Error as error:
                    outcomes[type(error).__name__] += 1

    async with replica(pool) as first, replica(pool) as second:
        replicas = [first, second]
        await asyncio.gather(*(ask(number) for number in range(20)))
        monkeypatch.undo()
        # Of every link once more, so that what the replicas remember is compared with what is stored.
        await asyncio.gather(
            *(first.submit(a_request(chance, f"last-{number}")) for number in range(20)), return_exceptions=True
        )
        held, versions, profiles = await stored(pool)
        check(held, versions, profiles, replicas)
        async with pool.connection() as connection:
            rows = await connection.execute("SELECT id FROM rate_request")
            found = {row["id"] for row in await rows.fetchall()}
    assert granted.keys() <= found
    print(dict(outcomes))
    assert outcomes["granted"] > 20
    assert outcomes["replayed"] > 5
    assert outcomes["insufficient-capacity"] > 5
    assert set(outcomes) & {"AdminShutdown", "OperationalError"}, outcomes


@pytest.mark.parametrize("fault", [psycopg.OperationalError("gone"), psycopg.errors.QueryCanceled("too slow")])
async def test_refusals_that_cannot_be_explained_spoil_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, fault: psycopg.Error
) -> None:
    """Their batch is committed by then: who was granted something in it hears so."""

    async def fail(*_: object) -> None:
        raise fault

    def ask(rate_bps: int, key: str) -> Create:
        specification = rate_request_pb2.RateRequestSpecification(
            source="n0-0", destination="n0-1", guaranteed_bps=rate_bps, duration_us=1_000_000_000
        )
        return asked(specification, key, SystemClock().now_us())

    async with replica(pool) as admitting:
        with monkeypatch.context() as broken:
            broken.setattr("chart.reservations.store.committed.commitments", fail)
            first, second = await asyncio.gather(
                admitting.submit(ask(10 * MEGA, "one")),
                admitting.submit(ask(95 * MEGA, "two")),
                return_exceptions=True,
            )
        assert isinstance(first, Result)
        assert isinstance(second, RefusalError)
        # And the replica goes on.
        with pytest.raises(RefusalError):
            await admitting.submit(ask(95 * MEGA, "three"))
    held, _, _ = await stored(pool)
    assert [(one.link_id, one.committed_bps) for one in held] == [("n0-0:up", 10 * MEGA)]


async def test_what_is_alone_waits_for_those_that_began_before(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds nothing knows afterwards that what was decided before is stored."""
    chance = random.Random(3)
    done: list[str] = []
    monkeypatch.setattr("chart.reservations.edges.batches.BATCH", 4)

    async def ask(number: int) -> None:
        with suppress(RefusalError):
            await first.submit(a_request(chance, f"{number}"))
        done.append("ask")

    async with replica(pool) as first:
        asking = [asyncio.create_task(ask(number)) for number in range(30)]
        await asyncio.sleep(0)
        await first.submit(Relieve((), (), TIMING))
        assert len(done) == 30
        await asyncio.gather(*asking)
