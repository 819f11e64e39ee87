"""Token buckets that the replicas of the gateway share: each draws some ahead, so that few calls come here."""

from __future__ import annotations

from dataclasses import dataclass

from chart.common.database import Connection, Pool

# A bucket that nobody drew from for so long is full by any limit that makes sense.
FORGET_S = 3600


@dataclass(frozen=True)
class Drawn:
    """What was given, and what is left; ``wait_s``: until what was needed is there, when nothing was given."""

    given: float
    left: float
    wait_s: float = 0.0


def draw(tokens: float, idle_s: float, *, need: float, want: float, per_s: float, burst: float) -> tuple[float, Drawn]:
    """The bucket after a draw, and what was drawn: up to ``want``, at least ``need``, or nothing. Pure.

    ``tokens`` are those of ``idle_s`` seconds ago.
    """
    now = min(burst, tokens + max(0.0, idle_s) * per_s)
    if now < need:
        return now, Drawn(0.0, now, (need - now) / per_s)
    given = max(need, min(want, now))
    return now - given, Drawn(given, now - given)


class Allowances:
    """The buckets."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def draw(self, name: str, *, need: float, want: float, per_s: float, burst: float) -> Drawn:
        """Draw from a bucket; one that is not there is full."""
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(
                "INSERT INTO allowance (name, tokens, at) VALUES (%s, %s, clock_timestamp())"
                " ON CONFLICT (name) DO NOTHING",
                (name, burst),
            )
            found = await connection.execute(
                "SELECT tokens, extract(epoch FROM clock_timestamp() - at)::float8 AS idle_s FROM allowance"
                " WHERE name = %s FOR UPDATE",
                (name,),
            )
            row = await found.fetchone()
            # Forgotten between the two statements: it was full.
            tokens, idle_s = (row["tokens"], row["idle_s"]) if row is not None else (burst, 0.0)
            left, drawn = draw(tokens, idle_s, need=need, want=want, per_s=per_s, burst=burst)
            await connection.execute(
                "UPDATE allowance SET tokens = %s, at = clock_timestamp() WHERE name = %s", (left, name)
            )
        return drawn


async def forget(connection: Connection) -> None:
    """Remove buckets that nobody drew from for long."""
    await connection.execute(
        "DELETE FROM allowance WHERE at < clock_timestamp() - make_interval(secs => %s)", (FORGET_S,)
    )
