"""Questions about many pairs: which pairs, which roll-ups, how many points."""

from __future__ import annotations

import pytest

from chart.archiver import pairs
from chart.archiver.service import QuestionError
from chart.v1.archive_pb2 import NodePair, PairGroup

MINUTE, HOUR = 60_000_000, 3_600_000_000
BEGIN = 480_000 * HOUR


def test_a_group_is_stored_with_each_name_once_and_in_order() -> None:
    group = PairGroup(
        id="g",
        source_nodes=["b", "a", "b"],
        pairs=[NodePair(source_node="z", destination_node="y"), NodePair(source_node="x", destination_node="y")] * 2,
    )
    stored = pairs.check(group)
    assert list(stored.source_nodes) == ["a", "b"]
    assert [(one.source_node, one.destination_node) for one in stored.pairs] == [("x", "y"), ("z", "y")]


def test_single_pairs_alone_do_not_mean_all_pairs() -> None:
    assert not pairs.selection_of(PairGroup(pairs=[NodePair(source_node="a", destination_node="b")])).crossed
    assert pairs.selection_of(PairGroup()).crossed


@pytest.mark.parametrize(
    "group",
    [
        PairGroup(pairs=[NodePair(source_node="a")]),
        PairGroup(source_nodes=[f"a{n}" for n in range(200)], destination_nodes=[f"b{n}" for n in range(100)]),
    ],
)
def test_a_group_that_cannot_be_is_refused(group: PairGroup) -> None:
    with pytest.raises(QuestionError):
        pairs.check(group)


@pytest.mark.parametrize(
    ("length_us", "step_ms", "resolution", "step_us"),
    [
        (HOUR, 0, "minute", MINUTE),
        (24 * HOUR, 0, "minute", 2 * MINUTE),
        (30 * 24 * HOUR, 0, "hour", HOUR),
        (30 * 24 * HOUR, 3_600_000, "hour", HOUR),
        (HOUR, 300_000, "minute", 5 * MINUTE),
    ],
)
def test_steps_come_from_minutes_or_hours(length_us: int, step_ms: int, resolution: str, step_us: int) -> None:
    steps = pairs.steps_of(BEGIN + 90 * 1_000_000, BEGIN + 90 * 1_000_000 + length_us, step_ms)
    assert (steps.resolution, steps.step_us) == (resolution, step_us)
    assert steps.from_us == (BEGIN if resolution == "hour" else BEGIN + MINUTE)


def test_steps_that_are_no_minutes_or_too_many_are_refused() -> None:
    with pytest.raises(QuestionError, match="whole minutes"):
        pairs.steps_of(BEGIN, BEGIN + HOUR, 90_000)
    with pytest.raises(QuestionError, match="more than 10000"):
        pairs.steps_of(BEGIN, BEGIN + 365 * 24 * HOUR, 60_000)
    with pytest.raises(QuestionError, match="too many for one answer"):
        pairs.check_points(10_000, pairs.steps_of(BEGIN, BEGIN + 30 * 24 * HOUR, 3_600_000))
    pairs.check_points(100, pairs.steps_of(BEGIN, BEGIN + 30 * 24 * HOUR, 3_600_000))


def test_a_range_ends_after_it_begins() -> None:
    assert pairs.span_of(0, 0, BEGIN) == (BEGIN - 24 * HOUR, BEGIN)
    with pytest.raises(QuestionError, match="not after"):
        pairs.span_of(BEGIN, BEGIN, BEGIN)
