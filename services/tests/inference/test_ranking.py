"""Closest nodes, best servers and relays from estimates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chart.inference import ranking
from chart.inference.service import key_of
from chart.v1 import estimate_pb2


def told(*entries: tuple[str, str, str, float, float, float]) -> dict[str, estimate_pb2.Estimate]:
    return {
        key_of(source, destination, metric): estimate_pb2.Estimate(
            source_node=source,
            destination_node=destination,
            metric=metric,
            value=value,
            interval_low=low,
            interval_high=high,
            method="landmark",
            estimated_at_us=1000,
        )
        for source, destination, metric, value, low, high in entries
    }


def test_the_closest_comes_first_and_overlapping_intervals_are_marked() -> None:
    known = told(
        ("a", "far", "rtt_us", 90, 80, 95), ("a", "near", "rtt_us", 10, 8, 14), ("a", "nearly", "rtt_us", 15, 13, 19)
    )
    found = ranking.nodes(known, "a", "rtt_us", ["far", "near", "nearly", "a", "dark"], towards=False)
    assert [(one.node, one.may_be_best) for one in found.items] == [("near", True), ("nearly", True), ("far", False)]
    assert found.unknown == ["dark"]


def test_more_bandwidth_is_better_and_servers_send_towards_the_node() -> None:
    metric = "available_bandwidth_bps"
    known = told(
        ("s1", "a", metric, 5e6, 4e6, 6e6), ("s2", "a", metric, 9e6, 8e6, 10e6), ("a", "s1", metric, 99, 9, 999)
    )
    found = ranking.nodes(known, "a", metric, ["s1", "s2"], towards=True)
    assert [(one.node, one.value, one.may_be_best) for one in found.items] == [("s2", 9e6, True), ("s1", 5e6, False)]


def test_relays_by_round_trip_bandwidth_and_loss() -> None:
    known = told(
        ("a", "r", "rtt_us", 10, 9, 12), ("r", "b", "rtt_us", 20, 18, 25), ("a", "b", "rtt_us", 40, 35, 45),
        ("a", "q", "rtt_us", 10, 9, 12),
        ("a", "r", "capacity_bps", 10, 9, 12), ("r", "b", "capacity_bps", 20, 11, 25),
        ("a", "r", "loss_ratio", 0.1, 0, 0.5), ("r", "b", "loss_ratio", 0.5, 0, 1.5),
    )  # fmt: skip
    found, direct = ranking.relays(known, "a", "b", "rtt_us", ["r", "q", "a", "b"])
    (one,) = found.items
    assert (one.node, one.value, one.low, one.high, found.unknown) == ("r", 30, 27, 37, ["q"])
    assert direct is not None
    assert direct.value == 40
    found, direct = ranking.relays(known, "a", "b", "capacity_bps", ["r"])
    assert (found.items[0].value, found.items[0].low, found.items[0].high, direct) == (10, 9, 12, None)
    found, _ = ranking.relays(known, "a", "b", "loss_ratio", ["r"])
    assert found.items[0].value == 1 - 0.9 * 0.5
    assert found.items[0].high == 1
    assert not ranking.relayed("jitter_us")


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0, 1), st.floats(0, 1)), max_size=8), st.booleans())
def test_whoever_can_be_best_is_marked(entries: list[tuple[float, float, float]], more: bool) -> None:
    metric = "capacity_bps" if more else "rtt_us"
    known = told(
        *((f"n{index}", "a", metric, value, value * (1 - low), value * (1 + high))
          for index, (value, low, high) in enumerate(entries))
    )  # fmt: skip
    found = ranking.nodes(known, "a", metric, [f"n{index}" for index in range(len(entries))], towards=True).items
    values = [one.value for one in found]
    assert values == sorted(values, reverse=more)
    for one in found:
        best = found[0]
        assert one.may_be_best == (one.high >= best.low if more else one.low <= best.high)
