"""When a rate fits: what a path has free as steps over time, made from listed commitments. Pure.

Profiles answer whether a rate fits; when it would, and what a link carries over a day, is asked seldom, and is
answered from the commitments themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# End of an interval that is open, microseconds.
FOREVER_US = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Commitment:
    """A rate committed on one link over [start_us, end_us)."""

    committed_bps: int
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Window:
    """From start_us to end_us at least free_bps are free."""

    start_us: int
    end_us: int
    free_bps: int


def steps(commitments: Iterable[Commitment], start_us: int, end_us: int) -> list[tuple[int, int]]:
    """The sum of committed rates over [start_us, end_us) as (from when, rate), the first at start_us."""
    changes = {start_us: 0}
    for one in commitments:
        if one.start_us < end_us and one.end_us > start_us:
            begin = max(one.start_us, start_us)
            changes[begin] = changes.get(begin, 0) + one.committed_bps
            if one.end_us < end_us:
                changes[one.end_us] = changes.get(one.end_us, 0) - one.committed_bps
    found: list[tuple[int, int]] = []
    total = 0
    for moment in sorted(changes):
        total += changes[moment]
        if not found or found[-1][1] != total:
            found.append((moment, total))
    return found


def peak_bps(commitments: Iterable[Commitment], start_us: int, end_us: int) -> int:
    """The greatest sum of committed rates at any instant of [start_us, end_us)."""
    return max(rate for _, rate in steps(commitments, start_us, end_us))


def free_windows(
    links: Sequence[tuple[Sequence[Commitment], int]], start_us: int, length_us: int, rate_bps: int, most: int
) -> list[Window]:
    """The first windows from start_us on that are at least as long as asked and have the rate free on every link.

    `links` are the commitments of each and what may be committed on it. A length of FOREVER_US asks for one that never
    ends.
    """
    moments: dict[int, list[tuple[int, int]]] = {}
    for number, (commitments, admissible) in enumerate(links):
        for moment, committed in steps(commitments, start_us, FOREVER_US):
            moments.setdefault(moment, []).append((number, admissible - committed))
    free = [0] * len(links)
    found: list[Window] = []
    begin: int | None = None
    least = 0
    for moment in [*sorted(moments), FOREVER_US]:
        now = begin
        if moment < FOREVER_US:
            for number, left in moments[moment]:
                free[number] = left
            narrowest = min(free, default=0)
            if narrowest >= rate_bps:
                least = narrowest if now is None else min(least, narrowest)
                begin = moment if now is None else now
                continue
        if now is not None and (moment == FOREVER_US or moment - now >= length_us):
            found.append(Window(now, moment, least))
            if len(found) == most:
                break
        begin = None
    return found
