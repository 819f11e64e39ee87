"""The byte budget: never more than its share in any minute."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chart.sensor_pod.budget import WINDOW_US, ByteBudget

LINK = ("a:to-b",)


def budget(limit_bytes: int) -> ByteBudget:
    made = ByteBudget(share=0.01)
    made.set_capacity(LINK[0], limit_bytes * 8 * 100 // 60)
    return made


def test_the_limit_is_a_share_of_the_capacity_for_a_minute() -> None:
    made = ByteBudget(share=0.01)
    made.set_capacity("a:to-b", 100_000_000)
    assert made.limit_bytes("a:to-b") == 7_500_000


def test_more_than_a_minutes_budget_never_fits() -> None:
    made = budget(6000)
    assert made.earliest_us(LINK, made.limit_bytes(LINK[0]) + 1, 0, 0) is None


def test_bytes_come_free_a_minute_after_the_run_ended_and_unsent_ones_at_once() -> None:
    made = budget(6000)
    limit = made.limit_bytes(LINK[0])
    made.reserve(LINK, limit)
    made.settle(LINK, limit, limit // 2, 1_000_000)
    assert made.earliest_us(LINK, limit // 2 - 1, 0, 1_000_000) == 1_000_000
    assert made.earliest_us(LINK, limit, 0, 1_000_000) == 1_000_000 + WINDOW_US


def test_a_claim_keeps_lower_priorities_out_and_higher_ones_in() -> None:
    made = budget(6000)
    made.claim(LINK, 5900, 10)
    assert made.earliest_us(LINK, 500, 5, 0) != 0
    assert made.earliest_us(LINK, 500, 10, 0) == 0
    made.claim(LINK, -5900, 10)
    assert made.earliest_us(LINK, 500, 5, 0) == 0


@given(st.lists(st.tuples(st.integers(1, 4000), st.integers(0, 5_000_000), st.integers(0, 3_000_000)), max_size=60))
def test_no_minute_holds_more_than_the_limit(runs: list[tuple[int, int, int]]) -> None:
    made = budget(6000)
    limit = made.limit_bytes(LINK[0])
    now_us, spent = 0, []
    for size, wait_us, duration_us in runs:
        now_us += wait_us
        at_us = made.earliest_us(LINK, size, 0, now_us)
        if at_us != now_us:
            continue
        made.reserve(LINK, size)
        spent.append((now_us, size))
        now_us += duration_us
        spent[-1] = (spent[-1][0], 0)
        # The whole run's bytes at its end is the worst case for the minute that follows.
        spent.append((now_us, size))
        made.settle(LINK, size, size, now_us)
    for start_us, _ in spent:
        assert sum(size for at_us, size in spent if start_us <= at_us < start_us + WINDOW_US) <= limit
