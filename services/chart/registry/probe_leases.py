"""Leases of links' probing budgets: all pods whose probes or answers cross a link share its budget. Pure.

The CHART System, section 6: probes take at most 1 % of a link's capacity, those of all pods together. Nine tenths of a
budget are leased, max-min fair by what pods report they could use; a tenth is what pods have without a lease, each an
equal part. A pod that loses a part may use it until its lease runs out, and what it sent then counts for a window more:
until that is over nobody else gets the part. So the leases that count within any window never exceed the budget.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

WINDOW_US = 60_000_000
VALID_US = 30_000_000
PROBE_SHARE = 0.01
# The pods' side is sensor_pod/budget.py.
LEASED_SHARE = 0.9


@dataclass(frozen=True)
class Lease:
    """Of one pod on one link, bytes a minute."""

    minute_bytes: int
    fair_bytes: int


class LeaseBook:
    """What was leased to whom, and until when it counts."""

    def __init__(self) -> None:
        # Link -> node -> (bytes, until when they count), the greatest first.
        self._held: dict[str, dict[str, list[tuple[int, int]]]] = {}

    def lease(
        self,
        wanted: Mapping[str, Mapping[str, int]],
        capacities_bps: Mapping[str, int],
        now_us: int,
        share: float = PROBE_SHARE,
    ) -> dict[str, dict[str, Lease]]:
        """Leases by node and link for what nodes want (bytes a minute by node and link); valid for `VALID_US`.

        ``share``: what probes may take of a link's capacity, 0..1.
        """
        by_link: dict[str, dict[str, int]] = {}
        for node, links in wanted.items():
            for link, size_bytes in links.items():
                if link in capacities_bps and size_bytes > 0:
                    by_link.setdefault(link, {})[node] = size_bytes
        made: dict[str, dict[str, Lease]] = {node: {} for node in wanted}
        for link, wishes in by_link.items():
            budget_bytes = budget_of(capacities_bps[link], share)
            fair_bytes = budget_bytes // len(wishes)
            for node, size_bytes in self._lease_link(link, wishes, budget_bytes, now_us).items():
                made[node][link] = Lease(size_bytes, fair_bytes)
        self._forget(now_us)
        return made

    def taken_over(self, node: str, link: str, size_bytes: int, valid_until_us: int) -> None:
        """A lease that another process gave before this one began."""
        self._note(link, node, size_bytes, valid_until_us + WINDOW_US)

    def _lease_link(self, link: str, wishes: Mapping[str, int], budget_bytes: int, now_us: int) -> dict[str, int]:
        targets = fair(wishes, budget_bytes)
        counts_until_us = now_us + VALID_US + WINDOW_US
        given: dict[str, int] = {}
        # Who gets less first: what others may have follows from it only later, but never the other way round.
        for node in sorted(targets, key=lambda name: targets[name] - self._counting(link, name, now_us)):
            others = sum(self._counting(link, other, now_us) for other in self._held.get(link, {}) if other != node)
            given[node] = max(0, min(targets[node], budget_bytes - others))
            self._note(link, node, given[node], counts_until_us)
        return given

    def _counting(self, link: str, node: str, now_us: int) -> int:
        held = self._held.get(link, {}).get(node, [])
        return max((size_bytes for size_bytes, until_us in held if until_us > now_us), default=0)

    def _note(self, link: str, node: str, size_bytes: int, until_us: int) -> None:
        """Keep what is neither less nor over sooner than another one."""
        held = self._held.setdefault(link, {}).get(node, [])
        kept = [one for one in held if one[0] > size_bytes or one[1] > until_us]
        self._held[link][node] = [*kept, (size_bytes, until_us)]

    def _forget(self, now_us: int) -> None:
        for link in list(self._held):
            nodes = {
                node: [one for one in held if one[1] > now_us and one[0]] for node, held in self._held[link].items()
            }
            self._held[link] = {node: held for node, held in nodes.items() if held}
            if not self._held[link]:
                del self._held[link]


def budget_of(capacity_bps: int, share: float = PROBE_SHARE) -> int:
    """Bytes a minute of a link that are leased."""
    return int(capacity_bps / 8 * 60 * share * LEASED_SHARE)


def fair(wishes: Mapping[str, int], budget_bytes: int) -> dict[str, int]:
    """Max-min fair: who wants less than an equal part has it, the others share the rest equally."""
    found: dict[str, int] = {}
    left_bytes, waiting = budget_bytes, sorted(wishes.items(), key=lambda one: (one[1], one[0]))
    for place, (node, size_bytes) in enumerate(waiting):
        found[node] = min(size_bytes, left_bytes // (len(waiting) - place))
        left_bytes -= found[node]
    return found
