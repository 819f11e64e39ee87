"""Leases of a link's probing budget: together never more than the budget within any window."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart.registry import lease_giver, probe_leases
from chart.registry.probe_leases import VALID_US, WINDOW_US, LeaseBook, budget_of

LINK = "a:to-b"
CAPACITY_BPS = 10_000_000
BUDGET = budget_of(CAPACITY_BPS)
S = 1_000_000


def leases(book: LeaseBook, now_us: int, **wanted: int) -> dict[str, int]:
    made = book.lease({node: {LINK: size} for node, size in wanted.items()}, {LINK: CAPACITY_BPS}, now_us)
    return {node: links[LINK].minute_bytes for node, links in made.items() if LINK in links}


def test_a_lease_is_what_is_wanted_while_there_is_room_and_fair_beyond() -> None:
    assert leases(LeaseBook(), 0, one=1000) == {"one": 1000}
    assert leases(LeaseBook(), 0, one=10**9) == {"one": BUDGET}
    shared = leases(LeaseBook(), 0, small=1000, one=10**9, two=10**9)
    assert shared["small"] == 1000
    assert shared["one"] == pytest.approx((BUDGET - 1000) / 2, abs=1)
    assert sum(shared.values()) <= BUDGET


def test_who_comes_later_gets_its_part_when_the_others_cannot_count_any_more() -> None:
    book = LeaseBook()
    assert leases(book, 0, first=10**9) == {"first": BUDGET}
    soon = leases(book, 1 * S, first=10**9, second=10**9)
    assert soon == {"first": BUDGET // 2, "second": 0}
    still = leases(book, VALID_US + WINDOW_US - 1, first=10**9, second=10**9)
    assert still["second"] == 0
    later = leases(book, VALID_US + WINDOW_US + 1, first=10**9, second=10**9)
    assert later["second"] == pytest.approx(BUDGET // 2, abs=1)


def test_unknown_links_are_not_leased_and_nobody_gets_what_it_does_not_want() -> None:
    made = LeaseBook().lease({"a": {"gone:x": 5}, "b": {LINK: 0}}, {LINK: CAPACITY_BPS}, 0)
    assert made == {"a": {}, "b": {}}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 40), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 2 * BUDGET), max_size=6)
        ),
        max_size=25,
    )
)
def test_leases_that_count_within_a_window_never_exceed_the_budget(rounds: list[tuple[int, dict[str, int]]]) -> None:
    """A pod may use any lease until it runs out, and what it sent counts for a window more."""
    book, now_us = LeaseBook(), 0
    counting: list[tuple[str, int, int]] = []
    for wait_s, wanted in rounds:
        now_us += wait_s * S
        for node, size in leases(book, now_us, **wanted).items():
            counting.append((node, size, now_us + VALID_US + WINDOW_US))
        most: dict[str, int] = {}
        for node, size, until_us in counting:
            if until_us > now_us:
                most[node] = max(most.get(node, 0), size)
        assert sum(most.values()) <= BUDGET


def test_a_successor_keeps_the_leases_of_its_predecessor_and_gives_no_more_until_they_cannot_count() -> None:
    predecessor = LeaseBook()
    made = predecessor.lease({"old": {LINK: 1000}}, {LINK: CAPACITY_BPS}, 0)
    newest = {"old": lease_giver.record("old", made["old"], VALID_US)}
    book = LeaseBook()
    lease_giver.take_over(book, newest, {LINK: CAPACITY_BPS}, 5 * S)
    assert leases(book, 6 * S, old=1000, new=1000) == {"old": 1000, "new": 0}
    assert leases(book, VALID_US + WINDOW_US + 1, old=1000, new=1000) == {"old": 1000, "new": 1000}
    fresh = LeaseBook()
    lease_giver.take_over(fresh, newest, {LINK: CAPACITY_BPS}, VALID_US + WINDOW_US)
    assert leases(fresh, VALID_US + WINDOW_US, new=1000) == {"new": 1000}


def test_equal_parts_are_what_everybody_could_have() -> None:
    made = LeaseBook().lease({node: {LINK: 5} for node in "abc"}, {LINK: CAPACITY_BPS}, 0)
    assert {links[LINK].fair_bytes for links in made.values()} == {BUDGET // 3}
    assert probe_leases.fair({"a": 1, "b": 2}, 100) == {"a": 1, "b": 2}
