"""Profiles: the same sums as adding up every commitment, in few blocks; what is given back leaves nothing behind."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart.reservations.decisions.ledger import Kind, Ledger, LinkCommitment
from chart.reservations.decisions.profile import FOREVER_S, Block, LinkProfile, UnknownBlockError, keys, past, seconds
from chart.reservations.decisions.windows import FOREVER_US, Commitment, peak_bps

NOW = 1_770_000_000

moments = st.one_of(st.integers(0, 200), st.integers(NOW, NOW + 5000), st.integers(0, FOREVER_S - 1))
intervals = st.tuples(moments, moments, st.booleans()).map(
    lambda one: (min(one[0], one[1]), FOREVER_S if one[2] else max(one[0], one[1]) + 1)
)


@given(st.lists(st.tuples(intervals, st.integers(1, 1000)), max_size=25), intervals)
@settings(max_examples=300, deadline=None)
def test_peak_is_that_of_the_list_of_commitments(
    entries: list[tuple[tuple[int, int], int]], asked: tuple[int, int]
) -> None:
    profile = LinkProfile()
    for (start, end), rate in entries:
        profile.add(start, end, rate)
    listed = [Commitment(rate, start, end) for (start, end), rate in entries]
    assert profile.peak_bps(*asked) == peak_bps(listed, *asked)
    for (start, end), rate in entries:
        profile.add(start, end, -rate)
    assert profile.peak_bps(0, FOREVER_S) == 0
    assert all(block is None for block in profile.take_changes().values()), "nothing is left behind"


@given(intervals, st.integers(1, 1000))
def test_few_blocks_and_exactly_those_that_were_announced(interval: tuple[int, int], rate: int) -> None:
    announced = set(keys(*interval))
    assert len(announced) <= 13
    profile = LinkProfile(complete=False)
    for key in announced:
        profile.put(key, None)
    profile.add(*interval, rate)
    assert profile.peak_bps(*interval) == rate
    assert set(profile.take_changes()) == announced
    for missing in announced:
        partial = LinkProfile(complete=False)
        for key in announced - {missing}:
            partial.put(key, profile._blocks[key])
        assert missing in partial.missing(*interval)
        with pytest.raises(UnknownBlockError):
            partial.add(*interval, rate)
    # What a known block says is empty need not be read.
    empty = LinkProfile(complete=False)
    empty.put((6, 0), None)
    assert empty.missing(*interval) == set()
    assert empty.peak_bps(*interval) == 0


def test_open_ended_from_the_past_is_one_block() -> None:
    assert set(keys(0, FOREVER_S)) == {(6, 0)}
    assert len(set(keys(0, NOW + 3601))) == 7


@given(st.lists(st.tuples(intervals, st.integers(1, 2**40)), min_size=1, max_size=10))
@settings(deadline=None)
def test_stored_blocks_read_back_the_same(entries: list[tuple[tuple[int, int], int]]) -> None:
    profile = LinkProfile()
    for interval, rate in entries:
        profile.add(*interval, rate)
    again = LinkProfile()
    for key, block in profile.take_changes().items():
        assert block is not None
        again.put(key, Block.unpack(block.pack()))
    for interval, _ in entries:
        assert again.peak_bps(*interval) == profile.peak_bps(*interval)


def test_seconds_are_rounded_outwards() -> None:
    assert seconds(1_999_999, 2_000_001) == (1, 3)
    assert seconds(-5, 1) == (0, 1)
    assert seconds(7, FOREVER_US) == (0, FOREVER_S)
    assert past((0, NOW >> 5), ((NOW >> 5) + 1) << 5)
    assert not past((0, NOW >> 5), NOW)


def test_forgetting_the_past_changes_no_answer_about_the_future() -> None:
    """What ended is not taken out of the profile, and blocks of the past vanish; sums from now on stay exact."""
    chance = random.Random(3)
    ledger = Ledger()
    held: list[LinkCommitment] = []
    now = NOW
    for _ in range(2000):
        now += chance.randint(0, 40)
        start = 0 if chance.random() < 0.5 else (now + chance.randint(0, 500)) * 1_000_000
        end = FOREVER_US if chance.random() < 0.1 else max(start, now * 1_000_000) + chance.randint(1, 900_000_000)
        one = LinkCommitment("x", chance.randint(1, 50), start, end)
        ledger.add([one])
        held.append(one)
        if chance.random() < 0.5:
            gone = held.pop(chance.randrange(len(held)))
            ledger.remove([gone], now * 1_000_000)
        track = ledger.track("x", Kind.FIRM)
        for key in [key for key in track._blocks if past(key, now)]:
            del track._blocks[key]
        asked = (now + chance.randint(0, 300)) * 1_000_000
        until = asked + chance.randint(1, 600) * 1_000_000
        whole = [
            Commitment(
                one.committed_bps, one.start_us // 10**6 * 10**6, min(FOREVER_US, -(-one.end_us // 10**6) * 10**6)
            )
            for one in held
        ]
        assert ledger.peak_bps("x", asked, until) == peak_bps(whole, asked, until)
