"""The links of a replica as arrays: every quantity has one element per slot, every link has one slot. A thousand links
are stepped together in the time that forty would take one by one.

Rates are bits per second with IP headers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
# R, C_er, legacy share and N of some links as they are told: whole numbers.
Figures = tuple[Integers, Integers, Integers, Integers]

FIRST_SIZE = 64
# Relative change of a link's figures that is worth a record.
SIGNIFICANT_CHANGE = 0.01
# Columns of a table of loads, in the order of the fields of LinkLoad that are named here.
LOAD_FIELDS = (
    "explicit_rate_bytes",
    "legacy_bytes",
    "queue_bytes",
    "explicit_rate_queue_bytes",
    "users",
    "legacy_flows",
    "guaranteed_in_use_bps",
    "in_band_committed_bps",
    "rtt_us",
)


class LinkTable:
    """What is stated of links, what was decided for them last, and what their users were told last."""

    def __init__(self) -> None:
        self._size = 0
        self._free: list[int] = []
        # Stated: capacity, guaranteed rates that hold now, and whether it crosses routers of others (virtual.py).
        self.link_bps = np.zeros(0)
        self.reserved_bps = np.zeros(0)
        self.virtual = np.zeros(0, bool)
        # Decided: R, C_er, legacy share, and N.
        self.rate_bps = np.zeros(0)
        self.capacity_bps = np.zeros(0)
        self.legacy_share_bps = np.zeros(0)
        self.users = np.zeros(0)
        # Told, whole numbers; -1: nothing.
        self.told_rate_bps = np.zeros(0)
        self.told_capacity_bps = np.zeros(0)
        self.told_legacy_share_bps = np.zeros(0)
        self.told_users = np.zeros(0)

    def new_slot(self, link_bps: float, reserved_bps: float, rate_bps: float) -> int:
        """A slot for a link of this capacity, with everything else at its beginning. `rate_bps` is what a predecessor
        told last; 0: none.
        """
        if not self._free:
            self._grow()
        slot = self._free.pop()
        for array in vars(self).values():
            if isinstance(array, np.ndarray):
                array[..., slot] = 0
        self.link_bps[slot] = link_bps
        self.reserved_bps[slot] = reserved_bps
        self.rate_bps[slot] = rate_bps
        for told in (self.told_rate_bps, self.told_capacity_bps, self.told_legacy_share_bps, self.told_users):
            told[slot] = -1
        return slot

    def remove(self, slot: int) -> None:
        """A link is no more."""
        self._free.append(slot)

    def figures(self, slots: Integers) -> Figures:
        """What there is to tell of some links."""
        rate, capacity, share, users = (
            one[slots].astype(np.int64) for one in (self.rate_bps, self.capacity_bps, self.legacy_share_bps, self.users)
        )
        return rate, capacity, share, users

    def tell(self, slots: Integers, figures: Figures) -> None:
        """These figures were told."""
        told = (self.told_rate_bps, self.told_capacity_bps, self.told_legacy_share_bps, self.told_users)
        for column, now in zip(told, figures, strict=True):
            column[slots] = now

    def tell_anew(self, slot: int) -> None:
        """What was published for a link no longer counts."""
        self.told_users[slot] = -1

    def moved(self, slots: Integers) -> Mask:
        """Links whose figures moved by 1 % since they were told, or whose user count changed."""
        rate, capacity, share = (
            np.trunc(one[slots]) for one in (self.rate_bps, self.capacity_bps, self.legacy_share_bps)
        )
        told_rate, told_capacity = self.told_rate_bps[slots], self.told_capacity_bps[slots]
        changed: Mask = (
            (self.told_users[slots] != self.users[slots])
            | (np.abs(rate - told_rate) > SIGNIFICANT_CHANGE * told_rate)
            | (np.abs(capacity - told_capacity) > SIGNIFICANT_CHANGE * told_capacity)
            | (np.abs(share - self.told_legacy_share_bps[slots]) > SIGNIFICANT_CHANGE * told_capacity)
        )
        return changed

    def _grow(self) -> None:
        """Double the room of every array, of subclasses too."""
        added = max(FIRST_SIZE, self._size)
        for name, value in list(vars(self).items()):
            if isinstance(value, np.ndarray):
                room = np.zeros((*value.shape[:-1], added), value.dtype)
                setattr(self, name, np.concatenate([value, room], axis=-1))
        self._free += range(self._size + added - 1, self._size - 1, -1)
        self._size += added
