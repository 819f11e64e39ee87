"""Decisions that change nothing: what a request would get, and which links have more committed than they may."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from chart.common.database import Pool
from chart.reservations.decisions import engine, jobs, preemption, room
from chart.reservations.decisions.admission import (
    Ask,
    Commitments,
    Granted,
    Refused,
    candidate_link_ids,
    tracks_of,
    windows,
    with_windows,
)
from chart.reservations.decisions.engine import Book
from chart.reservations.decisions.ledger import Kind
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.profile import seconds
from chart.reservations.decisions.reservation import Reservation, Timing
from chart.reservations.decisions.windows import FOREVER_US, Window
from chart.reservations.store import committed, holders
from chart.reservations.store.arrays import array

# Free windows that a preview offers.
MOST_WINDOWS = 3


@dataclass(frozen=True)
class Previewed:
    """What a request would get."""

    decision: Granted | Refused
    losers: tuple[preemption.Loser, ...]
    windows: list[Window]
    # Until when it would wait for what drains; 0: not at all.
    waits_until_us: int = 0


def path_links(network: Network, link_ids: Collection[str]) -> Sequence[NetworkLink]:
    """The links of a path that are still there."""
    return [network.links[one] for one in link_ids if one in network.links]


def with_start(refused: Refused, network: Network, listed: Commitments, ask: Ask) -> Refused:
    """A refusal with the next start that fits."""
    if refused.code != "insufficient-capacity" or ask.kind != Kind.FIRM:
        return refused
    return with_windows(refused, path_links(network, refused.link_ids), listed, ask)


async def preview(
    pool: Pool, network: Network, ask: Ask, now_us: int, timing: Timing, replaced: Reservation | None = None
) -> Previewed:
    """What a request would get now. `replaced` is the request in whose place it would be."""
    candidates = candidate_link_ids(network, ask)
    spare = replaced.commitments if replaced is not None else ()
    places = room.holds(replaced) if replaced is not None else ()
    interval = seconds(ask.start_us, ask.end_us)
    spans = [(link_id, *interval) for link_id in candidates]
    spans += [(one.link_id, *seconds(one.start_us, one.end_us)) for one in spare]
    spans += jobs.entry_spans({span[0] for span in spans}, now_us, timing)
    tracks = tracks_of(network, candidates)
    spans += [(track, *interval) for track in tracks]
    spans += [(one.link_id, *seconds(one.start_us, one.end_us)) for one in places if one.link_id in tracks]
    async with committed.snapshot(pool) as connection:
        links = {*candidates, *tracks, *(one.link_id for one in spare)}
        ledger = await committed.ledger_of(connection, links, spans)
        ledger.remove(spare, now_us)
        book = Book(network, ledger, holders_known=False)
        decided = engine.decide(book, ask, now_us)
        if decided is None:
            identities = await holders.holder_ids(connection, candidates, ask.rank, ask.start_us, ask.end_us)
            giving = await holders.requests(connection, identities, lock=False)
            if replaced is not None:
                giving.pop(replaced.id, None)
            more = {span for one in giving.values() for span in committed.spans_of(one)}
            more |= set(jobs.entry_spans({span[0] for span in more}, now_us, timing))
            ledger = await committed.ledger_of(connection, links | {span[0] for span in more}, [*spans, *more])
            ledger.remove(spare, now_us)
            book = Book(network, ledger, giving)
            decided = engine.decide(book, ask, now_us)
        assert decided is not None
        decision, losers = decided
        listed = await committed.commitments(connection, decision.link_ids, now_us)
    if isinstance(decision, Refused):
        decision = with_start(decision, network, listed, ask)
    found: list[Window] = []
    if decision.link_ids and ask.kind == Kind.FIRM and ask.least_bps:
        found = windows(path_links(network, decision.link_ids), listed, ask, ask.least_bps, MOST_WINDOWS)
    waits_until_us = 0
    if isinstance(decision, Granted):
        waits_until_us = engine.preview_wait_us(book, ask, decision, losers, replaced, now_us, timing)
    return Previewed(decision, losers, found, waits_until_us)


async def crowded(pool: Pool, network: Network, link_ids: Collection[str], now_us: int) -> list[str]:
    """Those of some links that are gone, or have more committed at some instant from now on than they may."""
    known = [link_id for link_id in link_ids if link_id in network.links]
    async with committed.snapshot(pool) as connection:
        rows = await connection.execute(
            "SELECT link_id, kind, sum(rate_bps)::bigint AS rate_bps FROM commitment WHERE link_id = ANY(%s::text[])"
            " AND end_us > %s GROUP BY 1, 2",
            (array(known), now_us),
        )
        sums: dict[str, dict[int, int]] = {}
        for row in await rows.fetchall():
            sums.setdefault(row["link_id"], {})[row["kind"]] = row["rate_bps"]
        # All of a link's commitments together are more than what is committed at any instant.
        doubtful = [
            link_id
            for link_id, of_kind in sums.items()
            if of_kind.get(Kind.FIRM, 0) > network.links[link_id].admissible_bps
            or sum(of_kind.values()) > network.links[link_id].oversubscribable_bps
        ]
        spans = [(link_id, *seconds(now_us, FOREVER_US)) for link_id in doubtful]
        ledger = await committed.ledger_of(connection, doubtful, spans)
    gone = [link_id for link_id in link_ids if link_id not in network.links]
    return sorted([*gone, *engine.overcommitted(Book(network, ledger), doubtful, now_us)])
