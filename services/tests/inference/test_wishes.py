"""Which pairs inference wants measured now."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from chart.inference.service import Wanted
from chart.inference.wishes import REST, Pair, Wishes
from chart.v1.wanted_pairs_pb2 import WantedPairs

VALID_US = 100
PAIRS = [("a", "b"), ("a", "c"), ("b", "c"), ("c", "d")]


def choose(count: int, avoid: Collection[Pair], known: Iterable[Pair] = ()) -> list[Wanted]:
    open_pairs = [pair for pair in PAIRS if pair not in avoid and pair not in set(known)]
    return [Wanted(*pair, "rtt_us", "landmark", 0.5) for pair in open_pairs[:count]]


def told(found: WantedPairs) -> list[Pair]:
    return [(one.source_node, one.destination_node) for one in found.pairs]


def test_a_pair_is_wanted_until_it_is_measured() -> None:
    wishes = Wishes("rtt_us")
    first = wishes.renew((), choose, 2, VALID_US, 0)
    assert told(first) == PAIRS[:2]
    assert (first.metric, first.pairs[0].reason, first.pairs[0].relative_width) == ("rtt_us", "landmark", 0.5)
    # Its place is another's, who stays what is still open.
    assert told(wishes.renew(PAIRS[:1], lambda n, avoid: choose(n, avoid, PAIRS[:1]), 2, VALID_US, 50)) == [
        ("a", "c"),
        ("b", "c"),
    ]


def test_a_pair_that_nobody_measures_rests() -> None:
    wishes = Wishes("rtt_us")
    wishes.renew((), choose, 2, VALID_US, 0)
    assert told(wishes.renew((), choose, 2, VALID_US, VALID_US)) == PAIRS[2:]
    assert told(wishes.renew((), choose, 4, VALID_US, VALID_US + 1)) == PAIRS[2:]
    later = wishes.renew((), choose, 2, VALID_US, VALID_US * (1 + REST) + 1)
    assert told(later) == PAIRS[:2]


def test_none_are_wanted_when_none_may_be() -> None:
    wishes = Wishes("rtt_us")
    wishes.renew((), choose, 2, VALID_US, 0)
    assert told(wishes.renew((), choose, 0, VALID_US, 1)) == []
