"""What is committed on one link over time: a tree of blocks whose cells are powers of two seconds long.

A block has 32 cells, each as long as a whole block one level below: 1 s, 32 s, 17 min, 9 h, 12 d, 1 year, 34 years. A
cell holds what is committed over all of it (`base`) and the greatest sum at any instant of it (`peak`, what ancestors
hold not counted). A commitment and a question about an interval both touch only the blocks at the interval's two ends,
at most seven each, however long it is and however many commitments there are. An interval that begins in the
past or never ends touches one end, or the topmost block alone.

Seconds are the resolution: starts are rounded down and ends up, so a sum is never taken for less than it is. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

BITS = 5
CELLS = 1 << BITS
TOP = 6
# End of an interval that is open, in seconds: the end of the topmost block, more than 1000 years.
FOREVER_S = 1 << (BITS * (TOP + 1))
US = 1_000_000

_PACKED = struct.Struct(f"<{2 * CELLS}q")
_EMPTY = [0] * CELLS

# Level 0..TOP and number of the block on its level.
Key = tuple[int, int]


def seconds(start_us: int, end_us: int) -> tuple[int, int]:
    """The whole seconds that contain an interval of microseconds."""
    start = min(max(0, start_us // US), FOREVER_S - 1)
    return start, min(max(start + 1, -(-end_us // US)), FOREVER_S)


def keys(start: int, end: int) -> Iterator[Key]:
    """Every block that a change or a question about [start, end) looks at, from the top down; some come twice."""
    yield TOP, 0
    for moment in (start, end):
        for level in range(TOP - 1, -1, -1):
            # Only an end inside of a cell of the level above leads into the block below.
            if moment & ((1 << (BITS * (level + 1))) - 1):
                yield level, moment >> (BITS * (level + 1))


def past(key: Key, now: int) -> bool:
    """Whether all of a block lies before a second: nobody asks for it any more."""
    level, index = key
    return ((index + 1) << (BITS * (level + 1))) <= now


class Block:
    """32 cells."""

    __slots__ = ("base", "peak")

    def __init__(self, base: list[int] | None = None, peak: list[int] | None = None) -> None:
        self.base = base if base is not None else [0] * CELLS
        self.peak = peak if peak is not None else [0] * CELLS

    @property
    def empty(self) -> bool:
        """Whether nothing is committed in it."""
        return self.base == _EMPTY and self.peak == _EMPTY

    def pack(self) -> bytes:
        """As stored: 32 bases, then 32 peaks, 64 bits each, little-endian."""
        return _PACKED.pack(*self.base, *self.peak)

    @classmethod
    def unpack(cls, stored: bytes) -> Block:
        """The block that `pack` wrote."""
        cells = list(_PACKED.unpack(stored))
        return cls(cells[:CELLS], cells[CELLS:])


class UnknownBlockError(LookupError):
    """A block was needed that has not been read; the caller forgot to fetch `missing`."""


class LinkProfile:
    """Commitments of one link.

    With `complete` a block that is not there is empty. Otherwise it is unknown: `put` says what was read (None:
    empty), and an access to an unknown one raises, since taking it for empty would over-commit.
    """

    def __init__(self, *, complete: bool = True) -> None:
        self._complete = complete
        self._blocks: dict[Key, Block | None] = {}
        # Blocks that `add` changed since `take_changes`.
        self._changed: set[Key] = set()

    def __len__(self) -> int:
        return len(self._blocks)

    def put(self, key: Key, block: Block | None) -> None:
        """Say what a block holds."""
        self._blocks[key] = block

    def missing(self, start: int, end: int) -> set[Key]:
        """Blocks that have to be read before [start, end) can be looked at or changed.

        A cell whose peak is its base has nothing below it, so what lies there is known to be empty.
        """
        found: set[Key] = set()
        if self._complete:
            return found
        if (TOP, 0) not in self._blocks:
            return set(keys(start, end))
        for moment in (start, end):
            empty = False
            above: Block | None = self._blocks[TOP, 0]
            for level in range(TOP - 1, -1, -1):
                width = BITS * (level + 1)
                if not moment & ((1 << width) - 1):
                    break
                key = (level, moment >> width)
                cell = key[1] & (CELLS - 1)
                empty = empty or above is None or above.base[cell] == above.peak[cell]
                if key not in self._blocks:
                    if not empty:
                        # What is below is not known either, as a rule: read it all at once.
                        found |= {one for one in keys(start, end) if one not in self._blocks and one[0] <= level}
                        break
                    self._blocks[key] = None
                above = self._blocks[key]
        return found

    def peak_bps(self, start: int, end: int) -> int:
        """The greatest sum at any instant of [start, end), in seconds."""
        return self._peak(TOP, 0, start, end)

    def add(self, start: int, end: int, rate_bps: int) -> None:
        """Commit a rate over [start, end); a negative one gives it back."""
        self._add(TOP, 0, start, end, rate_bps)

    def take_changes(self) -> dict[Key, Block | None]:
        """The blocks that changed since the last call; None: empty now."""
        changed = {key: self._blocks[key] for key in self._changed}
        self._changed.clear()
        return changed

    def _get(self, key: Key) -> Block | None:
        if key in self._blocks:
            return self._blocks[key]
        if self._complete:
            return None
        msg = f"block {key} has not been read"
        raise UnknownBlockError(msg)

    def _peak(self, level: int, index: int, start: int, end: int) -> int:
        block = self._get((level, index))
        if block is None:
            return 0
        width = BITS * level
        origin = index << BITS
        first, last = (start >> width) - origin, ((end - 1) >> width) - origin
        mask = (1 << width) - 1
        if first == last and (start & mask or end & mask):
            return block.base[first] + self._peak(level - 1, origin + first, start, end)
        greatest = -(1 << 62)
        if start & mask:
            greatest = block.base[first] + self._peak(level - 1, origin + first, start, (origin + first + 1) << width)
            first += 1
        if end & mask:
            inside = block.base[last] + self._peak(level - 1, origin + last, (origin + last) << width, end)
            greatest = max(greatest, inside)
            last -= 1
        return max(greatest, max(block.peak[first : last + 1])) if first <= last else greatest

    def _add(self, level: int, index: int, start: int, end: int, rate_bps: int) -> int:
        """Change a block and what is below it; returns its new peak."""
        key = (level, index)
        block = self._get(key) or Block()
        width = BITS * level
        origin = index << BITS
        first, last = (start >> width) - origin, ((end - 1) >> width) - origin
        mask = (1 << width) - 1
        base, peak = block.base, block.peak
        opens, closes = start & mask, end & mask
        if first == last and (opens or closes):
            peak[first] = base[first] + self._add(level - 1, origin + first, start, end, rate_bps)
        else:
            if opens:
                boundary = (origin + first + 1) << width
                peak[first] = base[first] + self._add(level - 1, origin + first, start, boundary, rate_bps)
                first += 1
            if closes:
                boundary = (origin + last) << width
                peak[last] = base[last] + self._add(level - 1, origin + last, boundary, end, rate_bps)
                last -= 1
            if first <= last:
                last += 1
                base[first:last] = [one + rate_bps for one in base[first:last]]
                peak[first:last] = [one + rate_bps for one in peak[first:last]]
        # Only what is given back can leave nothing.
        self._blocks[key] = None if rate_bps < 0 and block.empty else block
        self._changed.add(key)
        return max(peak)
