"""The byte budget of probing: on no link more than a share of its capacity, in every minute.

The CHART System, section 6: "limit the measurement overhead under a specific fraction of the network capacity (e.g.,
1% of the link capacity)". A sliding window instead of a plain token bucket: a bucket with room for a burst lets nearly
two budgets through in one minute, the window none more than one. Pure; times are microseconds of one clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

WINDOW_US = 60_000_000
# Part of a link's budget that pods have without a lease, all of them together (registry/probe_leases.py).
UNLEASED_SHARE = 0.1
# A run that needs more than the lease asks again after this: a greater one may come.
LEASE_WAIT_US = 1_000_000
# Runs that end within one slot are remembered as one, so that a window holds a bounded number of entries.
SLOT_US = 100_000
# When only unfinished runs stand in the way, nobody knows when they end: ask again after this.
ASK_AGAIN_US = 250_000


@dataclass
class _Window:
    capacity_bps: int
    # (end of the run, bytes), oldest first; bytes of runs that are still going on are only in `held_bytes`.
    done: deque[tuple[int, int]] = field(default_factory=deque)
    used_bytes: int = 0
    held_bytes: int = 0
    # What waiting runs need: priority -> bytes.
    claimed_bytes: dict[int, int] = field(default_factory=dict)


class ByteBudget:
    """What may still be sent. A run reserves its declared bytes on every link of its path and settles when it ends."""

    def __init__(self, share: float = 0.01, default_capacity_bps: int = 10_000_000) -> None:
        self.share = share
        self._default_capacity_bps = default_capacity_bps
        self._windows: dict[str, _Window] = {}
        # A part of a link's budget, under a name of its own: (link, share).
        self._parts: dict[str, tuple[str, float]] = {}
        # Links that other pods may probe too, how many pods there are, and this pod's part of each.
        self._shared: frozenset[str] = frozenset()
        self._pods = 1
        self._leases: dict[str, int] = {}

    def share_links(self, links: frozenset[str], pods: int) -> None:
        """These links' budgets are of all pods together: without a lease each has a small share."""
        self._shared, self._pods = (links, pods) if pods > 1 else (frozenset(), 1)

    def set_leases(self, leases: dict[str, int]) -> None:
        """What this pod may send over each link beyond its small share, bytes a minute; replaces what was before."""
        self._leases = leases

    def set_part(self, name: str, link: str, share: float) -> None:
        """Keep a budget under ``name`` that is this share of the link's, 0..1."""
        self._parts[name] = (link, share)

    def set_capacity(self, link: str, capacity_bps: int) -> None:
        """The capacity of a link, bits per second; the default holds until it is known."""
        self._window(link).capacity_bps = capacity_bps or self._default_capacity_bps

    def limit_bytes(self, link: str) -> int:
        """Bytes per minute that this pod may send now."""
        part = self._parts.get(link)
        if part is not None:
            return int(self.limit_bytes(part[0]) * part[1])
        whole_bytes = self.whole_bytes(link)
        if link not in self._shared:
            return whole_bytes
        return min(whole_bytes, int(whole_bytes * UNLEASED_SHARE / self._pods) + self._leases.get(link, 0))

    def whole_bytes(self, link: str) -> int:
        """Bytes per minute that all pods together may send."""
        part = self._parts.get(link)
        if part is not None:
            return int(self.whole_bytes(part[0]) * part[1])
        return int(self._window(link).capacity_bps / 8 * self.share * WINDOW_US / 1e6)

    def used_bytes(self, link: str, now_us: int) -> int:
        """Bytes of the last minute, those reserved by runs that go on included."""
        window = self._window(link)
        self._forget(window, now_us)
        return window.used_bytes + window.held_bytes

    def used_share(self, link: str, now_us: int) -> float:
        """Part of the budget that is used, 0..1."""
        return self.used_bytes(link, now_us) / max(1, self.limit_bytes(link))

    def capacity_bps(self, link: str) -> int:
        """The capacity of a link, bits per second."""
        return self._window(link).capacity_bps

    def links(self) -> list[str]:
        """Links that were probed or whose capacity is known, and names of parts of them."""
        return list(self._windows)

    def earliest_us(self, links: Sequence[str], size_bytes: int, priority: int, now_us: int) -> int | None:
        """When the bytes would fit on all links: now, a later time, or None for never (more than the whole budget).

        Room that waiting runs of a higher priority have claimed does not count as free.
        """
        latest = now_us
        for link in links:
            window = self._window(link)
            limit = self.limit_bytes(link)
            if size_bytes > self.whole_bytes(link):
                return None
            if size_bytes > limit:
                latest = max(latest, now_us + LEASE_WAIT_US)
                continue
            self._forget(window, now_us)
            claimed = sum(size for rank, size in window.claimed_bytes.items() if rank > priority)
            excess = window.used_bytes + window.held_bytes + size_bytes + claimed - limit
            if excess <= 0:
                continue
            at_us = None
            for end_us, spent in window.done:
                excess -= spent
                if excess <= 0:
                    at_us = end_us + WINDOW_US
                    break
            latest = max(latest, now_us + ASK_AGAIN_US if at_us is None else at_us)
        return latest

    def claim(self, links: Sequence[str], size_bytes: int, priority: int) -> None:
        """Keep room free from runs of lower priority while a run waits; negative bytes give the room back."""
        for link in links:
            claimed = self._window(link).claimed_bytes
            claimed[priority] = claimed.get(priority, 0) + size_bytes
            if not claimed[priority]:
                del claimed[priority]

    def claimed_bytes(self, link: str) -> int:
        """Bytes of runs that wait."""
        return sum(self._window(link).claimed_bytes.values())

    def reserve(self, links: Sequence[str], size_bytes: int) -> None:
        """A run starts that may send so many bytes."""
        for link in links:
            self._window(link).held_bytes += size_bytes

    def settle(self, links: Sequence[str], reserved_bytes: int, sent_bytes: int, now_us: int) -> None:
        """The run ended and sent so many; they count for a minute from now, because the last one may be that young."""
        for link in links:
            window = self._window(link)
            window.held_bytes -= reserved_bytes
            if not sent_bytes:
                continue
            window.used_bytes += sent_bytes
            slot_us = -(-now_us // SLOT_US) * SLOT_US
            if window.done and window.done[-1][0] == slot_us:
                sent_bytes_of_slot = window.done.pop()[1] + sent_bytes
                window.done.append((slot_us, sent_bytes_of_slot))
            else:
                window.done.append((slot_us, sent_bytes))

    def _window(self, link: str) -> _Window:
        window = self._windows.get(link)
        if window is None:
            window = self._windows[link] = _Window(self._default_capacity_bps)
        return window

    @staticmethod
    def _forget(window: _Window, now_us: int) -> None:
        while window.done and window.done[0][0] + WINDOW_US <= now_us:
            window.used_bytes -= window.done.popleft()[1]
