"""Links and the profiles of what is committed on them: locked for a decision, or read at one moment.

Locks are always taken in this order, each kind by id: idempotency keys, owners with a quota, links, requests. So no two
transactions wait for each other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from psycopg import AsyncCursor
from psycopg.rows import DictRow

from chart.common.database import Connection, Pool
from chart.reservations.decisions import room
from chart.reservations.decisions.ledger import Drain, Kind, Ledger, LinkCommitment
from chart.reservations.decisions.profile import Block, Key, seconds
from chart.reservations.decisions.reservation import Reservation
from chart.reservations.decisions.windows import Commitment
from chart.reservations.store import rows
from chart.reservations.store.arrays import array
from chart.reservations.store.changes import Changes
from chart.v1.flow_grant_pb2 import FlowSelector

# Blocks that a replica remembers; at 0.7 kB each. With more, it begins anew; they are counted from time to time.
MOST_BLOCKS = 100_000
COUNT_EVERY = 50

# Link and interval in seconds that a decision looks at.
Span = tuple[str, int, int]
# Link, kind, level and number.
BlockId = tuple[str, int, int, int]
_KINDS = tuple(Kind)


@dataclass
class Remembered:
    """Profiles of links as they were at a version, so that what did not change need not be read again."""

    versions: dict[str, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=lambda: Ledger(complete=False))
    # Transactions since the blocks were counted.
    uncounted: int = 0

    def forget(self, link_ids: Iterable[str]) -> None:
        """Links that somebody else changed, or whose change failed."""
        for link_id in link_ids:
            self.versions.pop(link_id, None)
            for kind in Kind:
                self.ledger.tracks.pop((link_id, kind), None)

    def shrink(self) -> None:
        """Keep within bounds; call after every transaction."""
        self.uncounted += 1
        if self.uncounted < COUNT_EVERY:
            return
        self.uncounted = 0
        if sum(len(track) for track in self.ledger.tracks.values()) > MOST_BLOCKS:
            self.versions.clear()
            self.ledger.tracks.clear()
            self.ledger.draining.clear()


async def lock_links(
    connection: Connection, link_ids: Collection[str], spans: Collection[Span], known: Remembered, changes: Changes
) -> set[str]:
    """Lock links against other admissions, forget what changed since it was read, and mend what has to be.

    What is not known of `spans` is read along with it, in a pipeline without waiting in between. Returns the links of
    which that is all that the spans need.
    """
    if not link_ids:
        return set()
    wanted = array(sorted(link_ids))
    select = "SELECT id, version, stale, draining FROM link WHERE id = ANY(%s::text[]) ORDER BY id FOR UPDATE"
    blocks = _unknown(spans, known.ledger)
    locking = await connection.execute(select, (wanted,))
    # Read after the lock was had, so that nobody changes it any more.
    reading = await _read(connection, blocks) if blocks else None
    found = await locking.fetchall()
    sound = {row["id"] for row in found if not row["stale"]}
    if len(found) < len(set(link_ids)):
        await connection.execute(
            "INSERT INTO link (id) SELECT unnest(%s::text[]) ORDER BY 1 ON CONFLICT DO NOTHING", (wanted,)
        )
        found = await (await connection.execute(select, (wanted,))).fetchall()
    complete = set(sound)
    for row in found:
        known.ledger.draining[row["id"]] = rows.drains_of(row["id"], row["draining"])
        if known.versions.get(row["id"]) != row["version"]:
            known.forget([row["id"]])
            known.versions[row["id"]] = row["version"]
            complete.discard(row["id"])
    if reading is not None:
        await _put(reading, {block: None for block in blocks if block[0] in sound}, known.ledger)
    stale = [row["id"] for row in found if row["stale"]]
    if stale:
        await _make_anew(connection, stale, known, changes)
    return complete


async def _make_anew(connection: Connection, link_ids: list[str], known: Remembered, changes: Changes) -> None:
    """Profiles from the commitments: of links that are new here, or that a version before changed."""
    made = await _from_rows(connection, link_ids)
    await connection.execute("DELETE FROM profile WHERE link_id = ANY(%s::text[])", (array(link_ids),))
    for link_id in link_ids:
        known.forget([link_id])
        for kind in room.kinds_of(link_id):
            track = made.track(link_id, kind)
            known.ledger.tracks[link_id, kind] = track
            changes.profile((link_id, kind), {k: b for k, b in track.take_changes().items() if b is not None})
    # The version grows when it is written; until then nobody else can look.
    versions = await connection.execute("SELECT id, version FROM link WHERE id = ANY(%s::text[])", (array(link_ids),))
    known.versions.update({row["id"]: row["version"] for row in await versions.fetchall()})


async def _from_rows(connection: Connection, link_ids: Collection[str]) -> Ledger:
    """What is committed on links by the rows of commitments, and held at nodes by those of the requests."""
    made = Ledger()
    found = await connection.execute(
        "SELECT link_id, rate_bps, start_us, end_us, kind FROM commitment WHERE link_id = ANY(%s::text[])",
        (array(link_ids),),
    )
    made.add(
        LinkCommitment(row["link_id"], row["rate_bps"], row["start_us"], row["end_us"], Kind(row["kind"]))
        for row in await found.fetchall()
    )
    tracks = {link_id for link_id in link_ids if room.is_track(link_id)}
    if tracks:
        found = await connection.execute(
            "SELECT confirming_nodes, selector, start_us, end_us, created_at_us FROM rate_request"
            " WHERE lifecycle IN (1, 2, 3) AND confirming_nodes && %s::text[]",
            (array(sorted(map(room.node_of, tracks))),),
        )
        for row in await found.fetchall():
            selectors = room.selectors_of(FlowSelector.FromString(bytes(row["selector"])))
            start_us = room.since_us(row["start_us"], row["created_at_us"])
            held = room.held_at(row["confirming_nodes"], selectors, start_us, row["end_us"])
            made.add(one for one in held if one.link_id in tracks)
    return made


async def load_profiles(connection: Connection, spans: Collection[Span], ledger: Ledger) -> None:
    """Read the blocks that decisions about these spans look at and that are not known yet."""
    wanted = _unknown(spans, ledger)
    if wanted:
        await _put(await _read(connection, wanted), wanted, ledger)


def _unknown(spans: Collection[Span], ledger: Ledger) -> dict[BlockId, None]:
    """The blocks that decisions about spans look at and that are not known yet."""
    wanted: dict[BlockId, None] = {}
    for link_id, start, end in spans:
        for kind in room.kinds_of(link_id):
            for level, number in ledger.track(link_id, kind).missing(start, end):
                wanted[link_id, int(kind), level, number] = None
    return wanted


async def _read(connection: Connection, wanted: Collection[BlockId]) -> AsyncCursor[DictRow]:
    """Ask for blocks."""
    return await connection.execute(
        "SELECT p.link_id, p.kind, p.level, p.number, p.cells FROM profile p JOIN unnest(%s::text[], %s::smallint[],"
        " %s::smallint[], %s::bigint[]) AS t(link_id, kind, level, number) ON (p.link_id, p.kind, p.level, p.number)"
        " = (t.link_id, t.kind, t.level, t.number)",
        [array(column) for column in zip(*wanted, strict=True)],
    )


async def _put(reading: AsyncCursor[DictRow], wanted: dict[BlockId, None], ledger: Ledger) -> None:
    """Note what was read of the wanted blocks; those that are not there are empty."""
    for row in await reading.fetchall():
        key = (row["link_id"], row["kind"], row["level"], row["number"])
        if key in wanted:
            del wanted[key]
            ledger.track(key[0], _KINDS[key[1]]).put((key[2], key[3]), Block.unpack(bytes(row["cells"])))
    for link_id, kind_number, level, number in wanted:
        ledger.track(link_id, _KINDS[kind_number]).put((level, number), None)


async def commitments(
    connection: Connection, link_ids: Collection[str], now_us: int, kind: Kind | None = Kind.FIRM
) -> dict[str, list[Commitment]]:
    """What is committed on links from now on, to whole seconds outwards as profiles count."""
    found: dict[str, list[Commitment]] = {link_id: [] for link_id in link_ids}
    if not found:
        return found
    # What began before now counts from now on, so that all open-ended commitments of a link become one row.
    rows_found = await connection.execute(
        "SELECT link_id, sum(rate_bps)::bigint AS rate_bps, greatest(start_us, %s) AS start_us, end_us FROM commitment"
        " WHERE link_id = ANY(%s::text[]) AND end_us > %s AND (%s::int IS NULL OR kind = %s) GROUP BY 1, 3, 4",
        (now_us, array(link_ids), now_us, None if kind is None else int(kind), None if kind is None else int(kind)),
    )
    for row in await rows_found.fetchall():
        start_us = row["start_us"] // 1_000_000 * 1_000_000
        end_us = min((1 << 63) - 1, -(-row["end_us"] // 1_000_000) * 1_000_000)
        found[row["link_id"]].append(Commitment(row["rate_bps"], start_us, end_us))
    return found


@asynccontextmanager
async def snapshot(pool: Pool) -> AsyncIterator[Connection]:
    """A connection whose statements all see one moment, and that changes nothing."""
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield connection


def spans_of(one: Reservation) -> list[Span]:
    """What giving back a request's commitments changes."""
    return [(held.link_id, *seconds(held.start_us, held.end_us)) for held in one.commitments]


def take_changes(ledger: Ledger) -> dict[tuple[str, Kind], dict[Key, Block | None]]:
    """Blocks that decisions changed, by link and kind."""
    found = {track: ledger.tracks[track].take_changes() for track in sorted(ledger.touched) if track in ledger.tracks}
    ledger.touched.clear()
    return {track: changed for track, changed in found.items() if changed}


def take_drains(ledger: Ledger, now_us: int) -> dict[str, dict[str, Drain]]:
    """What drains on the links where decisions changed that, without what is over."""
    found = {
        link_id: {name: part for name, part in ledger.draining[link_id].items() if part.until_us > now_us}
        for link_id in sorted(ledger.drain_touched)
    }
    ledger.drain_touched.clear()
    return found


async def ledger_of(connection: Connection, link_ids: Collection[str], spans: Collection[Span]) -> Ledger:
    """What is committed on links as far as some spans need it, without locking anything. Call in a transaction with one
    snapshot.
    """
    ledger = Ledger(complete=False)
    found = await connection.execute(
        "SELECT id, stale, draining FROM link WHERE id = ANY(%s::text[])", (array(link_ids),)
    )
    sound = set()
    for row in await found.fetchall():
        ledger.draining[row["id"]] = rows.drains_of(row["id"], row["draining"])
        if not row["stale"]:
            sound.add(row["id"])
    await load_profiles(connection, [span for span in spans if span[0] in sound], ledger)
    others = set(link_ids) - sound
    if others:
        # New here, or changed by a version before: their rows are the truth.
        made = await _from_rows(connection, others)
        for link_id in others:
            for kind in room.kinds_of(link_id):
                ledger.tracks[link_id, kind] = made.track(link_id, kind)
    return ledger
