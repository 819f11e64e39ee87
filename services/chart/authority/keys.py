"""Keys of pairs and of records: made when due, wrapped in the table, plain in the memory of this process only.

A pair that was read is answered from memory for as long as the database would tell of a change that another replica
made (`Changes` listens); without that it is read again after a second. When the key store is away, held keys go on
until they end.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from weakref import WeakValueDictionary

import structlog
from prometheus_client import Counter

from chart.authority import service
from chart.authority.keystore import KeyStore, KeyStoreUnavailable
from chart.authority.service import Epoch, KeyTimes
from chart.common import audit
from chart.common.clock import Clock
from chart.common.database import Connection, Pool
from chart.common.problems import ProblemError

# How long what was read counts, when the database tells of changes and when it does not.
FOLLOWED_S = 60.0
FRESH_S = 1.0
# The database was heard this lately, or it does not count as telling.
HEARD_S = 3.0
# Told there: "sender>receiver" has a new epoch, or all keys of "node" ended.
CHANNEL = "authority_keys"
MAX_PAIRS = 50_000
# Receiver of the keys under which a node authenticates its records.
RECORDS = ""

READS = Counter("chart_authority_key_reads_total", "Keys handed out", ["kind"])
_READ_RECORDS, _READ_SIGNALS = READS.labels("records"), READS.labels("signals")
MADE = Counter("chart_authority_keys_made_total", "Epochs made")
HELD = Counter("chart_authority_key_renewals_delayed_total", "Answers from held keys while the key store was away")

_log = structlog.get_logger("chart.authority")


@dataclass(frozen=True)
class HeldKey:
    """An epoch and its plain key."""

    epoch: Epoch
    key: bytes


@dataclass
class _Entry:
    keys: list[HeldKey]
    read_at: float


class Keys:
    """All keys of a domain."""

    def __init__(self, pool: Pool, store: KeyStore, clock: Clock, times: KeyTimes) -> None:
        self._pool = pool
        self._store = store
        self._clock = clock
        self._times = times
        self._held: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        # Pairs that are being read; True: a change was told meanwhile, so what comes may be old.
        self._reading: dict[tuple[str, str], bool] = {}
        self._followed_from = self._heard_at = float("-inf")
        # One for each pair that somebody reads or waits for, and for as long.
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    def follow(self) -> None:
        """From now on every change is told; what was read before may have missed one."""
        self._followed_from = self._clock.monotonic()

    def heard(self) -> None:
        """The database spoke just now: whatever it had to tell has come."""
        self._heard_at = self._clock.monotonic()

    def changed(self, told: str) -> None:
        """Take what was told on `CHANNEL`."""
        sender, arrow, receiver = told.partition(">")
        if not arrow:
            self.forget_node(told)
            return
        pair = (sender, receiver)
        if pair in self._held:
            self._held[pair].read_at = float("-inf")
        if pair in self._reading:
            self._reading[pair] = True

    def forget_node(self, node: str) -> None:
        """Drop what concerns a node that was revoked."""
        for pair in [pair for pair in self._held if node in pair]:
            del self._held[pair]
        self._reading.update({pair: True for pair in self._reading if node in pair})

    async def of_pair(self, sender: str, receiver: str, *, demanded_by: str | None = None) -> list[HeldKey]:
        """The epochs of an ordered pair that are accepted now, oldest first; makes one when it is due.

        ``demanded_by``: an end that started anew and must not go on with an old epoch.

        Raises:
            ProblemError: 503 with the reason when no key can be had, 429 when demanded too often.
        """
        pair = (sender, receiver)
        (_READ_RECORDS if receiver == RECORDS else _READ_SIGNALS).inc()
        if demanded_by is None and (fresh := self._fresh(pair)) is not None:
            return fresh
        lock = self._locks.get(pair)
        if lock is None:
            lock = self._locks[pair] = asyncio.Lock()
        async with lock:
            if demanded_by is None and (fresh := self._fresh(pair)) is not None:
                return fresh
            return await self._read(pair, demanded_by)

    def _fresh(self, pair: tuple[str, str]) -> list[HeldKey] | None:
        entry = self._held.get(pair)
        if entry is None:
            return None
        now = self._clock.monotonic()
        followed = entry.read_at > self._followed_from and now - self._heard_at < HEARD_S
        if now - entry.read_at > (FOLLOWED_S if followed else FRESH_S):
            return None
        now_us = self._clock.now_us()
        newest = entry.keys[-1].epoch
        if now_us >= newest.renew_at_us or now_us >= entry.keys[0].epoch.expires_at_us:
            return None
        return entry.keys

    async def _read(self, pair: tuple[str, str], demanded_by: str | None) -> list[HeldKey]:
        self._reading[pair] = False
        read_at = self._clock.monotonic()
        try:
            held = await self._read_and_make(pair, demanded_by)
        finally:
            overtaken = self._reading.pop(pair)
        self._held[pair] = _Entry(held, float("-inf") if overtaken else read_at)
        self._held.move_to_end(pair)
        if len(self._held) > MAX_PAIRS:
            self._held.popitem(last=False)
        return held

    async def _read_and_make(self, pair: tuple[str, str], demanded_by: str | None) -> list[HeldKey]:
        now_us = self._clock.now_us()
        async with self._pool.connection() as connection:
            rows = await _epochs(connection, pair)
        due = service.next_epoch([epoch for epoch, _ in rows], now_us, self._times, demanded=demanded_by is not None)
        made: tuple[Epoch, str, bytes] | None = None
        try:
            if due is not None:
                key = await self._store.generate(context(pair, due.generation))
                made = (due, key.wrapped, key.plain)
                rows = await self._insert(pair, made, demanded_by)
            return await self._open(pair, rows, made)
        except KeyStoreUnavailable as error:
            return self._go_on(pair, rows, now_us, demanded_by, error)

    async def _insert(
        self, pair: tuple[str, str], made: tuple[Epoch, str, bytes], demanded_by: str | None
    ) -> list[tuple[Epoch, str]]:
        """Store an epoch unless another replica was faster; returns what stands."""
        epoch, wrapped, _ = made
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtext('authority.key'), hashtext(%s))", (" ".join(pair),)
            )
            await _check_enrolled(connection, pair)
            rows = await _epochs(connection, pair)
            known = max((one.generation for one, _ in rows), default=0)
            if known < epoch.generation:
                await _add_epoch(connection, pair, epoch, wrapped)
                await audit.add(
                    connection,
                    demanded_by or "authority",
                    "key.create",
                    _name(pair),
                    {"generation": epoch.generation, "expires_at_us": epoch.expires_at_us},
                )
                MADE.inc()
                rows.append((epoch, wrapped))
        return rows

    async def _open(
        self, pair: tuple[str, str], rows: list[tuple[Epoch, str]], made: tuple[Epoch, str, bytes] | None
    ) -> list[HeldKey]:
        """Plain keys of the newest two epochs that are accepted: the signals' receivers hold two."""
        plain = {key.epoch: key.key for key in self._held[pair].keys} if pair in self._held else {}
        wrapped = dict(rows)
        if made is not None and wrapped.get(made[0]) == made[1]:
            plain[made[0]] = made[2]
        held = []
        for epoch in service.live(wrapped, self._clock.now_us())[-2:]:
            if epoch not in plain:
                plain[epoch] = await self._store.unwrap(context(pair, epoch.generation), wrapped[epoch])
            held.append(HeldKey(epoch, plain[epoch]))
        return held

    def _go_on(
        self, pair: tuple[str, str], rows: list[tuple[Epoch, str]], now_us: int, demanded_by: str | None,
        error: KeyStoreUnavailable,
    ) -> list[HeldKey]:  # fmt: skip
        entry = self._held.get(pair)
        standing = {epoch for epoch, _ in rows}
        held = [
            key
            for key in (entry.keys if entry is not None else [])
            if key.epoch in standing and key.epoch.expires_at_us > now_us
        ]
        if not held or demanded_by is not None:
            raise unavailable(error) from error
        HELD.inc()
        _log.warning("held keys go on because the key store is away", pair=_name(pair), reason=str(error))
        return held


def unavailable(error: KeyStoreUnavailable) -> ProblemError:
    """503: the key store is away, and why."""
    return ProblemError(
        503,
        "Key store unavailable",
        f"No new key, certificate or receipt can be had: {error}. Keys already held go on until they end.",
        suggestions=["Try again later; nothing that runs is disturbed meanwhile."],
        kind="key-store-unavailable",
    )


def _name(pair: tuple[str, str]) -> str:
    return f"{pair[0]}>{pair[1]}" if pair[1] != RECORDS else f"{pair[0]} records"


def context(pair: tuple[str, str], generation: int) -> str:
    """What a wrapped key is bound to."""
    return f"pair:{pair[0]}:{pair[1]}:{generation}"


async def _epochs(connection: Connection, pair: tuple[str, str]) -> list[tuple[Epoch, str]]:
    """The newest epochs of a pair, ended ones too: numbers must go on."""
    cursor = await connection.execute(
        "SELECT generation, created_at_us, sign_from_us, renew_at_us, expires_at_us, wrapped FROM key_epoch"
        " WHERE sender = %s AND receiver = %s ORDER BY generation DESC LIMIT 256",
        pair,
    )
    return [(Epoch(**{name: row[name] for name in Epoch.__slots__}), row["wrapped"]) for row in await cursor.fetchall()]


async def _check_enrolled(connection: Connection, pair: tuple[str, str]) -> None:
    """No epoch is made for a node that another replica revoked a moment ago; holds until the end of the transaction."""
    cursor = await connection.execute(
        "SELECT name, active FROM identity WHERE name = ANY(%s) ORDER BY name FOR SHARE",
        ([f"node/{name}" for name in pair if name and "@" not in name],),
    )
    for row in await cursor.fetchall():
        if not row["active"]:
            raise not_enrolled(row["name"].removeprefix("node/"))


def not_enrolled(name: str) -> ProblemError:
    """404: an element without keys."""
    return ProblemError(404, "Not found", f"{name} is not enrolled here.", kind="unknown-element")


async def _add_epoch(connection: Connection, pair: tuple[str, str], epoch: Epoch, wrapped: str) -> None:
    await connection.execute(
        "INSERT INTO key_epoch (sender, receiver, generation, wrapped, created_at_us, sign_from_us, renew_at_us,"
        " expires_at_us) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
        (*pair, epoch.generation, wrapped, epoch.created_at_us, epoch.sign_from_us, epoch.renew_at_us,
         epoch.expires_at_us),
    )  # fmt: skip
    await connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, ">".join(pair)))


async def end_keys_of(connection: Connection, node: str, now_us: int) -> int:
    """End every epoch of a revoked node at once; returns how many were still accepted."""
    cursor = await connection.execute(
        "UPDATE key_epoch SET expires_at_us = %(now)s WHERE (sender = %(node)s OR receiver = %(node)s)"
        " AND expires_at_us > %(now)s",
        {"node": node, "now": now_us},
    )
    await connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, node))
    return cursor.rowcount


async def receivers_of(connection: Connection, sender: str, now_us: int) -> list[str]:
    """Everyone who holds a key of signals with this sender."""
    cursor = await connection.execute(
        "SELECT DISTINCT receiver FROM key_epoch WHERE sender = %s AND receiver <> '' AND expires_at_us > %s",
        (sender, now_us),
    )
    return [row["receiver"] for row in await cursor.fetchall()]
