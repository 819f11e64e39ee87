"""Questions that change nothing: previews, paths, capacities, quotas. SQL and what is made of its answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from chart.common.database import Connection, Pool
from chart.reservations.decisions import engine, preemption
from chart.reservations.decisions.admission import (
    Ask,
    Commitments,
    Granted,
    Refused,
    candidate_link_ids,
    windows,
    with_windows,
)
from chart.reservations.decisions.engine import Book
from chart.reservations.decisions.ledger import Kind, Ledger, LinkCommitment
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.profile import seconds
from chart.reservations.decisions.quotas import DEFAULT_OWNER, Quota, Use
from chart.reservations.decisions.windows import FOREVER_US, Window
from chart.reservations.store import profiles
from chart.reservations.store.changes import array

# Free windows that a preview offers.
MOST_WINDOWS = 3


@dataclass(frozen=True)
class Previewed:
    """What a request would get."""

    decision: Granted | Refused
    losers: tuple[preemption.Loser, ...]
    windows: list[Window]


def path_links(network: Network, link_ids: Collection[str]) -> Sequence[NetworkLink]:
    """The links of a path that are still there."""
    return [network.links[one] for one in link_ids if one in network.links]


def with_start(refused: Refused, network: Network, listed: Commitments, ask: Ask) -> Refused:
    """A refusal with the next start that fits."""
    if refused.code != "insufficient-capacity" or ask.kind != Kind.FIRM:
        return refused
    return with_windows(refused, path_links(network, refused.link_ids), listed, ask)


async def ledger_of(connection: Connection, link_ids: Collection[str], spans: Collection[profiles.Span]) -> Ledger:
    """What is committed on links as far as some spans need it, without locking anything. Call in a transaction with one
    snapshot.
    """
    ledger = Ledger(complete=False)
    rows = await connection.execute("SELECT id FROM link WHERE id = ANY(%s::text[]) AND NOT stale", (array(link_ids),))
    sound = {row["id"] for row in await rows.fetchall()}
    await profiles.load_profiles(connection, [span for span in spans if span[0] in sound], ledger)
    others = set(link_ids) - sound
    if others:
        # New here, or changed by a version before: their commitments are the truth.
        rows = await connection.execute(
            "SELECT link_id, rate_bps, start_us, end_us, kind FROM commitment WHERE link_id = ANY(%s::text[])",
            (array(others),),
        )
        made = Ledger()
        made.add(
            LinkCommitment(row["link_id"], row["rate_bps"], row["start_us"], row["end_us"], Kind(row["kind"]))
            for row in await rows.fetchall()
        )
        for link_id in others:
            for kind in Kind:
                ledger.tracks[link_id, kind] = made.track(link_id, kind)
    return ledger


async def preview(
    pool: Pool, network: Network, ask: Ask, now_us: int, without: str = "", spare: Sequence[LinkCommitment] = ()
) -> Previewed:
    """What a request would get now. `without` is the request that it would replace, `spare` what that one has."""
    candidates = candidate_link_ids(network, ask)
    interval = seconds(ask.start_us, ask.end_us)
    spans = [(link_id, *interval) for link_id in candidates]
    spans += [(one.link_id, *seconds(one.start_us, one.end_us)) for one in spare]
    async with pool.connection() as connection, connection.transaction():
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        links = {*candidates, *(one.link_id for one in spare)}
        ledger = await ledger_of(connection, links, spans)
        ledger.remove(spare, now_us)
        book = Book(network, ledger, holders_known=False)
        decided = engine.decide(book, ask, now_us)
        if decided is None:
            identities = await profiles.holder_ids(connection, candidates, ask.rank, ask.start_us, ask.end_us)
            holders = await profiles.load_requests(connection, identities, lock=False)
            holders.pop(without, None)
            more = {span for one in holders.values() for span in profiles.spans_of(one)}
            ledger = await ledger_of(connection, links | {span[0] for span in more}, [*spans, *more])
            ledger.remove(spare, now_us)
            decided = engine.decide(Book(network, ledger, holders), ask, now_us)
        assert decided is not None
        decision, losers = decided
        listed = await profiles.commitments(connection, decision.link_ids, now_us)
    if isinstance(decision, Refused):
        decision = with_start(decision, network, listed, ask)
    wanted = ask.minimum_bps or ask.guaranteed_bps
    found: list[Window] = []
    if decision.link_ids and ask.kind == Kind.FIRM and wanted:
        found = windows(path_links(network, decision.link_ids), listed, ask, wanted, MOST_WINDOWS)
    return Previewed(decision, losers, found)


async def crowded(connection: Connection, network: Network, link_ids: Collection[str], now_us: int) -> list[str]:
    """Those of some links that are gone, or have more committed at some instant from now on than they may. Call in a
    transaction with one snapshot.
    """
    found = [link_id for link_id in link_ids if link_id not in network.links]
    rows = await connection.execute(
        "SELECT link_id, kind, sum(rate_bps)::bigint AS rate_bps FROM commitment WHERE link_id = ANY(%s::text[])"
        " AND end_us > %s GROUP BY 1, 2",
        (array(one for one in link_ids if one in network.links), now_us),
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
    ledger = await ledger_of(connection, doubtful, spans)
    return sorted([*found, *engine.overcommitted(Book(network, ledger), doubtful, now_us)])


async def quotas_of(connection: Connection, owners: Collection[str] | None) -> dict[str, Quota]:
    """Quotas of owners and the default one; of everybody with None."""
    rows = await connection.execute(
        "SELECT * FROM quota WHERE %s::text IS NULL OR owner = ANY(%s::text[])",
        (None if owners is None else "", array([*(owners or ()), DEFAULT_OWNER])),
    )
    return {row["owner"]: Quota(**row) for row in await rows.fetchall()}


async def uses_of(connection: Connection, owners: Collection[str]) -> dict[str, Use]:
    """What owners have now."""
    rows = await connection.execute(
        "SELECT owner, count(*) AS requests, coalesce(sum(granted_bps), 0)::bigint AS total FROM rate_request"
        " WHERE owner = ANY(%s::text[]) AND lifecycle IN (1, 2, 3) GROUP BY owner",
        (array(owners),),
    )
    return {row["owner"]: Use(row["requests"], row["total"]) for row in await rows.fetchall()}
