"""Which pairs inference wants measured now: told, kept until they are measured or have had their time. Pure.

A pair that nobody managed to measure rests for a while, so that it does not stand in the way of others.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from chart.inference.service import Wanted
from chart.v1.wanted_pairs_pb2 import WantedPair, WantedPairs

Pair = tuple[str, str]
# A pair that was wanted in vain is left out for so many times as long as it was wanted.
REST = 10


@dataclass
class Wishes:
    """The wanted pairs of one metric."""

    metric: str
    # Until when each is wanted, and until when one rests, in microseconds.
    _wanted: dict[Pair, tuple[Wanted, int]] = field(default_factory=dict)
    _resting: dict[Pair, int] = field(default_factory=dict)

    def renew(
        self,
        known: Collection[Pair],
        choose: Callable[[int, Collection[Pair]], Sequence[Wanted]],
        count: int,
        valid_us: int,
        now_us: int,
    ) -> WantedPairs:
        """Up to ``count`` pairs from now on; ``choose`` gives so many more that are none of those it is given, and
        ``known`` are the pairs with a result.
        """
        self._resting = {pair: until_us for pair, until_us in self._resting.items() if until_us > now_us}
        for pair, (_, until_us) in list(self._wanted.items()):
            if pair in known:
                del self._wanted[pair]
            elif until_us <= now_us:
                del self._wanted[pair]
                self._resting[pair] = now_us + REST * valid_us
        for pair in list(self._wanted)[count:]:
            del self._wanted[pair]
        more = count - len(self._wanted)
        if more > 0:
            for one in choose(more, [*self._wanted, *self._resting]):
                self._wanted[one.source, one.destination] = (one, now_us + valid_us)
        return WantedPairs(
            metric=self.metric,
            pairs=[
                WantedPair(
                    source_node=one.source,
                    destination_node=one.destination,
                    reason=one.reason,
                    relative_width=one.relative_width,
                )
                for one, _ in self._wanted.values()
            ],
        )
