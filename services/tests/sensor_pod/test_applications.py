"""Limits per application: configurations, priorities, periods, single runs, and a part of each link's budget."""

from __future__ import annotations

from collections import Counter

import pytest

from chart.sensor_pod.applications import Applications, LimitExceededError, Limits, limits_from_json
from chart.sensor_pod.group import Cost
from chart_lab.models.sensing_day import World, configuration

S = 1_000_000


def applications(**limits: Limits) -> Applications:
    return Applications(dict(limits))


def test_an_application_has_so_many_configurations_and_others_are_not_touched() -> None:
    made = applications(small=Limits(configurations=2))
    for number in range(2):
        one = configuration(f"c{number}", owner="small")
        made.check(one, None)
        made.note("small", 1)
    with pytest.raises(LimitExceededError, match="has its 2 configurations") as error:
        made.check(configuration("c2", owner="small"), None)
    assert (error.value.field, error.value.ceiling) == ("owner", 2)
    made.check(configuration("c1", owner="small", period_s=9), configuration("c1", owner="small"))
    made.check(configuration("c2", owner="large"), None)
    made.note("small", -1)
    made.check(configuration("c2", owner="small"), None)


def test_priority_and_period_have_bounds_that_are_told() -> None:
    made = applications(small=Limits(priority=5, period_ms=2000))
    with pytest.raises(LimitExceededError) as error:
        made.check(configuration("c", owner="small", priority=6), None)
    assert (error.value.field, error.value.ceiling) == ("priority", 5)
    with pytest.raises(LimitExceededError) as error:
        made.check(configuration("c", owner="small", period_s=1), None)
    assert (error.value.field, error.value.floor) == ("period_ms", 2000)


def test_single_runs_are_counted_by_the_minute() -> None:
    made = applications(small=Limits(one_shots_per_minute=3))
    one = configuration("", 0, owner="small")
    for at_s in (0, 10, 20):
        made.check_one_shot(one, at_s * S)
    with pytest.raises(LimitExceededError, match="3 single runs a minute"):
        made.check_one_shot(one, 30 * S)
    made.check_one_shot(one, 60 * S)


def test_a_part_of_the_budget_holds_for_its_own_runs_and_a_shared_run_goes_on_the_other_account() -> None:
    # 75,000 bytes a minute: 7 runs; the limited application may have 30 % of it: 2 runs.
    made = applications(small=Limits(probe_share=0.3))
    world = World.with_one_link(capacity_bps=1_000_000, cost=Cost(10_000, S // 10), applications=made)
    world.scheduler.put(configuration("own", 10, owner="small", parameters=(("x", "1"),)), 0)
    world.advance(600)
    minutes = Counter(run.started_us // (60 * S) for run in world.started)
    assert max(minutes.values()) <= 3
    assert 18 <= len(world.started) <= 21
    assert {skip.reason for skip in world.skips} == {"limit"}
    assert "the application's part" in world.skips[0].detail
    before = len(world.started)
    # The same measurement is wanted by somebody without a limit: it is made at its full rate, within the link's budget.
    world.scheduler.put(configuration("other", 10, owner="large", parameters=(("x", "1"),)), world.now_us)
    world.advance(600)
    assert len(world.started) - before >= 55


def test_a_run_that_can_never_fit_the_part_says_so() -> None:
    made = applications(small=Limits(probe_share=0.1))
    world = World.with_one_link(capacity_bps=1_000_000, cost=Cost(10_000, S // 10), applications=made)
    world.scheduler.put(configuration("own", 10, owner="small"), 0)
    world.advance(60)
    assert world.started == []
    assert world.skips[0].reason == "limit"
    assert "is 7500 bytes a minute" in world.skips[0].detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "no JSON"),
        ("[1]", "object of objects"),
        ('{"a": {"speed": 1}}', "'speed' is not one of"),
        ('{"a": {"configurations": -1}}', "not negative"),
        ('{"a": {"probe_share": 2}}', "at most 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        limits_from_json(text)


def test_settings_are_read() -> None:
    made = Applications(limits_from_json('{"*": {"configurations": 7}, "a": {"priority": 3, "probe_share": 0.5}}'))
    assert made.of("a") == Limits(priority=3, probe_share=0.5)
    assert made.of("whoever").configurations == 7
    assert Applications(limits_from_json("")).of("a") == Limits()
