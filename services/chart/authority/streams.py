"""Topics in: topology (next hops), rate requests and grant statuses (accounts of receipts). The outbox carries audit.

Every replica follows the topology, but one at a time writes what follows from it; the accounts' records are shared by
the replicas of a group.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
from collections.abc import Iterable

import psycopg
import psycopg_pool
import structlog
from google.protobuf.message import Message

from chart.authority import accounts, next_hop_repository, repository, service
from chart.common import audit, runtime
from chart.common.clock import Clock
from chart.common.database import Pool
from chart.common.platform_settings import PlatformView
from chart.common.retries import for_ever
from chart.common.streams import Broker, StreamError
from chart.v1 import grant_status_pb2, rate_request_pb2, topology_pb2

TOPOLOGY = "chart.topology.v1"
RATE_REQUEST = "chart.rate-request.v1"
GRANT_STATUS = "chart.grant-status.v1"
GROUP = "authority-accounts"
RETRY_S = 2.0
# Changes of the topology come in bursts: one reckoning for all that come within this time.
SETTLE_S = 0.5
# What a report or an operator said may end: then the topology's word is written again.
AGAIN_S = 60.0
# Counters of a flow are stored this often.
COUNTERS_EVERY_S = 5.0
AWAY = (StreamError, psycopg.Error, psycopg_pool.PoolTimeout)

_log = structlog.get_logger("chart.authority")


def topology_of(entities: Iterable[tuple[str, Message]]) -> service.Topology:
    """What next hops are worked out from; addresses that make no sense are left out."""
    found = service.Topology()
    for _, entity in entities:
        assert isinstance(entity, topology_pb2.TopologyEntity)
        if entity.HasField("node"):
            interfaces = []
            for address in entity.node.addresses:
                try:
                    interfaces.append(ipaddress.ip_interface(address))
                except ValueError:
                    continue
            found.prefixes[entity.node.id] = tuple(one.network for one in interfaces)
            found.addresses[entity.node.id] = tuple(one.ip for one in interfaces)
        elif entity.HasField("link"):
            found.neighbours.setdefault(entity.link.from_node, set()).add(entity.link.to_node)
    return found


async def write_next_hops(pool: Pool, topology: service.Topology, clock: Clock) -> int:
    """Bring the table to what the topology says; entries of operators and reports stay. Returns how many changed."""
    wanted = {
        (element, str(prefix)): next_hop_repository.Standing(via, "topology", _text(topology, via, prefix.version))
        for (element, prefix), via in service.next_hops(topology).items()
    }
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('authority.topology'))")
        standing = await next_hop_repository.standing(connection)
        # What operators and reports said stays as long as it stands.
        fresh = {
            key: hop
            for key, hop in wanted.items()
            if (known := standing.get(key)) is None or (known.source == "topology" and known != hop)
        }
        gone = [key for key, hop in standing.items() if hop.source == "topology" and key not in wanted]
        if not fresh and not gone:
            return 0
        revision = await repository.next_revision(connection)
        for (element, prefix), hop in fresh.items():
            await next_hop_repository.put(
                connection, element, prefix, hop.next_element, hop.source, revision, shim_address=hop.shim_address
            )
        for element, prefix in gone:
            await next_hop_repository.remove(connection, element, prefix, clock.now_us(), revision)
        detail = {"changed": len(fresh), "removed": len(gone), "revision": revision}
        await audit.add(connection, "authority", "next-hop.topology", "next-hops", detail)
    _log.info("next hops follow the topology", changed=len(fresh), removed=len(gone))
    return len(fresh) + len(gone)


def _text(topology: service.Topology, element: str, version: int) -> str | None:
    address = topology.shim_address(element, version)
    return None if address is None else str(address)


async def follow_topology(pool: Pool, broker: Broker, clock: Clock) -> None:
    """Keep the table in line with the topology until cancelled."""

    def told(error: Exception, in_s: float) -> None:
        _log.warning("the topology cannot be followed, trying again", reason=str(error), in_s=in_s)

    await for_ever(functools.partial(_follow_topology, pool, broker, clock), AWAY, told, RETRY_S)


async def _follow_topology(pool: Pool, broker: Broker, clock: Clock) -> None:
    state = await broker.compacted(TOPOLOGY)
    changed = asyncio.Event()
    changed.set()

    async def watch() -> None:
        async for _ in state.subscribe_changes():
            changed.set()
        msg = "the topology ended"
        raise StreamError(msg)

    watching = asyncio.create_task(watch())
    try:
        while not watching.done():
            waiting = asyncio.create_task(changed.wait())
            await asyncio.wait([waiting, watching], timeout=AGAIN_S, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            await asyncio.sleep(SETTLE_S)
            changed.clear()
            await write_next_hops(pool, topology_of(state.items()), clock)
        await watching
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await state.close()


async def follow_platform(pool: Pool, platform: PlatformView, broker: Broker) -> None:
    """Follow what operators set for the whole platform until cancelled; elements that wait for news learn of it."""
    changed = asyncio.Event()
    platform.changed(changed.set)

    async def tell() -> None:
        while True:
            await changed.wait()
            changed.clear()
            try:
                # Each replica writes one of its own: those who wait ask again once it knows the change.
                async with pool.connection() as connection, connection.transaction():
                    await repository.next_revision(connection)
            except AWAY:
                changed.set()
                raise

    def told(error: Exception, in_s: float) -> None:
        _log.warning("elements do not learn of the platform settings yet", reason=str(error), again_in_s=in_s)

    await runtime.run_together(platform.run(broker), for_ever(tell, AWAY, told, RETRY_S))


async def follow_accounts(pool: Pool, broker: Broker, clock: Clock) -> None:
    """Take grants and counters into the accounts until cancelled."""
    stored: dict[tuple[str, str], tuple[int, float]] = {}

    async def follow() -> None:
        async with broker.subscribe([RATE_REQUEST, GRANT_STATUS], group=GROUP, start="earliest") as records:
            committed = clock.monotonic()
            async for record in records:
                await _take(pool, record.value, record.timestamp_us, stored, clock)
                if clock.monotonic() - committed > 1.0:
                    await records.commit(record)
                    committed = clock.monotonic()

    def told(error: Exception, in_s: float) -> None:
        _log.warning("accounts cannot be kept, trying again", reason=str(error), in_s=in_s)

    await for_ever(follow, AWAY, told, RETRY_S)


async def _take(
    pool: Pool, value: Message | None, at_us: int, stored: dict[tuple[str, str], tuple[int, float]], clock: Clock
) -> None:
    if isinstance(value, rate_request_pb2.RateRequest):
        async with pool.connection() as connection:
            await accounts.note_request(connection, value)
    elif isinstance(value, grant_status_pb2.GrantStatus):
        key = (value.request_id, value.node)
        before_bytes, before = stored.get(key, (-1, float("-inf")))
        final = value.state == grant_status_pb2.GRANT_STATE_REMOVED
        if not final and (value.sent_bytes == before_bytes or clock.monotonic() - before < COUNTERS_EVERY_S):
            return
        async with pool.connection() as connection:
            await accounts.note_status(connection, value, at_us)
        if len(stored) > 100_000:
            stored.clear()
        stored[key] = (value.sent_bytes, clock.monotonic())
