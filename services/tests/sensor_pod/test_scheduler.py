"""The scheduler: merging, one-shots, budget, exclusion, priorities; an hour with 1,000 configurations."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any

import pytest

from chart.sensor_pod.budget import WINDOW_US, ByteBudget
from chart.sensor_pod.group import Cost, phase
from chart.sensor_pod.model import GroupKey
from chart.sensor_pod.plan import Declare, Limits
from chart.sensor_pod.scheduler import Scheduler
from chart_lab.models.sensing_day import World, a_day, configuration

S = 1_000_000


def world(capacity_bps: int = 10_000_000_000, limits: Limits | None = None, **changes: Any) -> World:
    return World.with_one_link(capacity_bps, limits, **changes)


def test_six_and_ten_seconds_are_served_by_one_run_every_six() -> None:
    w = world()
    w.scheduler.put(configuration("fast", 6), 0)
    w.scheduler.put(configuration("slow", 10), 0)
    w.advance(600)
    assert 99 <= len(w.started) <= 102
    assert all(set(ids) == {"fast", "slow"} for ids in w.answers)
    gaps = [b.started_us - a.started_us for a, b in zip(w.started[1:], w.started[2:], strict=False)]
    assert set(gaps) == {6 * S}


def test_the_slower_period_holds_when_the_faster_configuration_goes() -> None:
    w = world()
    w.scheduler.put(configuration("fast", 6), 0)
    w.scheduler.put(configuration("slow", 10), 0)
    w.advance(60)
    w.scheduler.remove("fast", w.now_us)
    before = len(w.started)
    w.advance(100)
    assert 9 <= len(w.started) - before <= 11
    w.scheduler.remove("slow", w.now_us)
    w.advance(2)
    assert w.scheduler.group_count == 0


def test_other_parameters_are_other_runs() -> None:
    w = world()
    w.scheduler.put(configuration("a", 6), 0)
    w.scheduler.put(configuration("b", 6, parameters=(("count", "3"),)), 0)
    w.advance(60)
    assert len({run.key for run in w.started}) == 2


def test_overlapping_one_shots_share_a_run() -> None:
    w = world()
    first = w.scheduler.once(configuration("", 0), w.now_us, w.now_us + 30 * S)
    second = w.scheduler.once(configuration("", 0), w.now_us, w.now_us + 30 * S)
    w.advance(0.5)  # the run is under way
    third = w.scheduler.once(configuration("", 0), w.now_us, w.now_us + 30 * S)
    w.advance(5)
    assert len(w.started) == 1
    assert set(w.answered) == {first, second, third}
    assert w.scheduler.group_count == 0


def test_a_one_shot_result_answers_the_periodic_configuration_within_its_tolerance() -> None:
    w = world()
    w.scheduler.put(configuration("a", 60), 0)
    w.advance(120)
    due_us = w.started[-1].due_us + 60 * S
    w.advance((due_us - w.now_us) / S - 10)
    w.scheduler.once(configuration("", 0), w.now_us, w.now_us + 30 * S)
    before = len(w.started)
    w.advance(20)
    assert len(w.started) - before == 1
    assert w.scheduler.statistics.answered_from_store == 1


def test_chirps_on_one_link_never_overlap_but_pings_do() -> None:
    w = world(limits=Limits(runs_of_exclusive_sensor=8))
    w.durations_us = {"pathchirp": 4 * S, "spruce": 4 * S}
    for number, sensor in enumerate(("pathchirp", "spruce", "ping")):
        w.scheduler.put(configuration(f"c{number}", 10, sensor=sensor), 0)
        w.scheduler.put(configuration(f"d{number}", 10, sensor=sensor, parameters=(("x", "1"),)), 0)
    w.advance(300)
    chirps = sorted((run.started_us, run.started_us + 4 * S) for run in w.started if run.key.sensor != "ping")
    assert len(chirps) > 40
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(chirps))


def test_chirps_on_different_links_do_overlap() -> None:
    w = world(limits=Limits(runs_of_exclusive_sensor=8))
    w.durations_us = {"pathchirp": 9 * S}
    for node in ("bravo", "charlie"):
        w.scheduler.put(configuration(node, 10, sensor="pathchirp", destination_node=node), 0)
    w.advance(100)
    assert Counter(run.key.destination_node for run in w.started)["bravo"] >= 9
    assert Counter(run.key.destination_node for run in w.started)["charlie"] >= 9


def test_a_run_beyond_the_budget_is_skipped_with_the_reason_and_a_one_shot_is_told() -> None:
    w = world(capacity_bps=100_000, cost=Cost(100_000, S))
    w.scheduler.put(configuration("a", 6), 0)
    ticket = w.scheduler.once(configuration("", 0), 0, 30 * S)
    w.advance(60)
    assert w.started == []
    assert {skip.reason for skip in w.skips} == {"budget"}
    assert "7500 bytes a minute" in w.skips[0].detail
    assert [skip.tickets for skip in w.skips if skip.tickets] == [(ticket,)]


def test_a_one_shot_that_must_wait_too_long_is_told_why() -> None:
    w = world(capacity_bps=1_000_000, cost=Cost(60_000, S))
    w.scheduler.put(configuration("a", 6), 0)
    w.advance(8)
    ticket = w.scheduler.once(configuration("", 0, parameters=(("x", "1"),)), w.now_us, w.now_us + 5 * S)
    w.advance(10)
    assert [(entry.ticket, entry.reason) for entry in w.expired] == [(ticket, "budget")]


def test_a_more_important_chirp_ends_a_long_one_which_runs_again_and_nobody_gets_the_broken_result() -> None:
    w = world(limits=Limits(runs_of_exclusive_sensor=8))
    w.durations_us = {"pathrate": 600 * S, "pathchirp": 5 * S}
    w.scheduler.put(configuration("long", 3600, sensor="pathrate", priority=1), 0)
    w.advance(60)
    ticket = w.scheduler.once(configuration("", 0, sensor="pathrate", parameters=()), w.now_us, w.now_us + 3000 * S)
    long_run = w.started[0]
    w.scheduler.put(configuration("urgent", 3600, sensor="pathchirp", priority=200), w.now_us)
    w.advance(20)
    assert [entry.run_id for entry in w.preempted] == [long_run.id]
    assert w.started[1].key.sensor == "pathchirp"
    assert w.started[1].started_us < 66 * S
    assert [(skip.reason, skip.configuration_ids) for skip in w.skips] == [("preempted", ("long",))]
    assert "priority 200" in w.skips[0].detail
    w.advance(700)
    # The long one ran again from the start, and whoever asked for it once got that result.
    assert [run.key.sensor for run in w.started] == ["pathrate", "pathchirp", "pathrate"]
    assert w.answered == {ticket: w.started[2].id}
    assert w.answers.count(("long",)) == 1


def test_the_only_worker_is_freed_for_what_is_more_important_and_for_nothing_else() -> None:
    w = world()
    w.durations_us = {"pathrate": 600 * S}
    w.scheduler.put(configuration("a", 3600, sensor="pathrate", destination_node="bravo", priority=5), 0)
    w.advance(30)
    w.scheduler.put(configuration("b", 3600, sensor="pathrate", destination_node="charlie", priority=5), w.now_us)
    w.advance(30)
    assert w.preempted == []
    w.scheduler.put(configuration("c", 3600, sensor="pathrate", destination_node="delta", priority=6), w.now_us)
    w.advance(10)
    assert len(w.preempted) == 1
    assert [run.key.destination_node for run in w.started] == ["bravo", "delta"]
    w.advance(2000)
    assert Counter(run.key.destination_node for run in w.started)["charlie"] == 1
    assert Counter(run.key.destination_node for run in w.started)["bravo"] == 2


def test_a_spoilt_run_is_made_again_soon_and_not_for_ever() -> None:
    w = world()
    w.spoilt = lambda run: "9 of 12 chirps were spoilt" if w.now_us < 200 * S else ""
    w.scheduler.put(configuration("a", 600, sensor="pathchirp"), 0)
    w.advance(100)
    # Four runs within half a minute, pauses of 2, 4 and 8 s between them; the last result stands, whatever it is.
    gaps = [after.started_us - before.started_us for before, after in itertools.pairwise(w.started)]
    assert gaps == [3 * S, 5 * S, 9 * S]
    assert w.answers == [("a",)]
    assert [(skip.reason, skip.detail) for skip in w.skips] == [("spoilt", "9 of 12 chirps were spoilt")] * 3
    assert w.scheduler.statistics.skipped == {"spoilt": 3}
    w.advance(1800)
    assert len(w.answers) >= 3
    assert len(w.started) == len(w.answers) + 3


def test_who_asks_once_gets_the_first_result_that_was_not_spoilt() -> None:
    w = world()
    complaints = iter(["two of three trains did not leave as planned"])
    w.spoilt = lambda run: next(complaints, "")
    ticket = w.scheduler.once(configuration("", 0, sensor="pathrate"), w.now_us, w.now_us + 30 * S)
    w.advance(2)
    second = w.scheduler.once(configuration("", 0, sensor="pathrate"), w.now_us, w.now_us + 30 * S)
    w.advance(20)
    assert len(w.started) == 2
    assert w.answered == {ticket: w.started[1].id, second: w.started[1].id}
    assert w.started[1].held_back
    assert w.scheduler.group_count == 0


def test_spoilt_runs_keep_to_the_budget() -> None:
    w = world(capacity_bps=4_000_000, cost=Cost(200_000, S))  # 300 kB a minute: one run
    w.spoilt = lambda run: "spoilt"
    w.scheduler.put(configuration("a", 3600, sensor="pathchirp"), 0)
    w.advance(600)
    starts = [run.started_us for run in w.started]
    assert len(starts) == 4
    assert all(after - before >= WINDOW_US for before, after in itertools.pairwise(starts))
    assert w.scheduler.statistics.delayed == {"budget": 3}


def test_a_configuration_that_goes_takes_its_spoilt_run_with_it() -> None:
    w = world()
    w.spoilt = lambda run: "spoilt"
    w.scheduler.put(configuration("a", 600), 0)
    w.advance(7)
    assert w.started
    w.scheduler.remove("a", w.now_us)
    started = len(w.started)
    w.advance(60)
    assert len(w.started) == started
    assert w.scheduler.group_count == 0


def test_room_goes_to_the_higher_priority_first() -> None:
    w = world(capacity_bps=4_000_000, cost=Cost(100_000, S))  # three runs a minute
    w.scheduler.put(configuration("low", 10, parameters=(("x", "1"),), priority=1), 0)
    w.scheduler.put(configuration("high", 40, priority=9), 0)
    w.advance(1200)
    high = [run for run in w.started if run.key.parameters == ()]
    low = [run.started_us for run in w.started if run.key.parameters != ()]
    assert sum(run.started_us > run.due_us for run in high) > 5
    # While the high one waits for room, the low one never takes it.
    for run in high:
        assert not [at_us for at_us in low if run.due_us < at_us < run.started_us]


def test_a_restart_goes_on_where_it_was() -> None:
    w = world()
    w.now_us = 1000 * S
    w.scheduler.put(configuration("a", 600), w.now_us, last_started_us=w.now_us - 60 * S)
    w.advance(200)
    assert w.started == []
    w.advance(700)
    assert 1 <= len(w.started) <= 2


def test_a_stopped_pod_reports_late_runs_once_and_does_not_catch_up() -> None:
    w = world(cost=Cost(1000, 1000))
    w.scheduler.put(configuration("a", 6), 0)
    w.advance(60)
    before = len(w.started)
    w.now_us += 600 * S
    w.advance(1)
    assert len(w.started) - before == 1
    assert [skip.reason for skip in w.skips] == ["late"]
    assert 98 <= w.skips[0].count <= 101


def test_validity_ends_a_configuration() -> None:
    w = world()
    w.scheduler.put(configuration("a", 6), 0, until_us=30 * S)
    w.advance(60)
    assert max(run.started_us for run in w.started) <= 30 * S
    assert w.scheduler.configurations() == []


def test_phases_are_spread_and_stay_the_same() -> None:
    keys = [GroupKey("ping", f"n{number}", f"10.0.0.{number}", ()) for number in range(200)]
    tenths = Counter(int(phase(key) * 10) for key in keys)
    assert len(tenths) == 10
    assert max(tenths.values()) < 45
    assert phase(keys[0]) == phase(GroupKey("ping", "n0", "10.0.0.0", ()))


@pytest.mark.parametrize("reason", ["refused"])
def test_a_sensor_that_refuses_is_asked_again_each_period(reason: str) -> None:
    scheduler = Scheduler(ByteBudget(), lambda key: ("l",))
    scheduler.put(configuration("a", 6), 0)
    asked = 0
    for now_us in range(0, 60 * S, S // 10):
        for decision in scheduler.poll(now_us):
            assert isinstance(decision, Declare)
            asked += 1
            assert scheduler.refused(decision.key, now_us).configuration_ids == ("a",)
    assert 9 <= asked <= 11


def test_an_hour_with_a_thousand_configurations_stays_within_budget_and_merges() -> None:
    nodes, limit = 50, 750_000  # bytes a minute on 10 Mb/s
    w = world(capacity_bps=10_000_000, cost=Cost(2_000, S))
    for number in range(1000):
        node = f"n{number % nodes}"
        # Five different measurements of each node, each asked by four applications at different periods.
        parameters = (("count", str(number // nodes % 5)),)
        period_s = 5 + number // (nodes * 5) * 5
        changes = {"destination_node": node, "parameters": parameters}
        w.scheduler.put(configuration(f"c{number}", period_s, **changes), 0)
    assert w.scheduler.group_count == 250
    begun = time.process_time()
    w.advance(3600)
    took_s = time.process_time() - begun
    assert took_s < 45
    by_link: dict[str, list[int]] = {}
    for run in w.started:
        by_link.setdefault(run.links[0], []).append(run.started_us)
    assert len(by_link) == nodes
    for starts in by_link.values():
        begin = 0
        for end, at_us in enumerate(starts):
            while starts[begin] <= at_us - WINDOW_US:
                begin += 1
            assert (end - begin + 1) * w.cost.probe_bytes <= limit
    # Every group at the fastest of its periods, nothing more.
    assert 250 * 3600 / 5 * 0.99 <= len(w.started) <= 250 * (3600 / 5 + 2)
    assert w.scheduler.statistics.merged > 2 * len(w.started)


def test_a_hundred_links_beyond_their_budget_skip_with_reasons_and_hold_the_limit() -> None:
    w = world(capacity_bps=1_000_000, cost=Cost(20_000, S))  # 75,000 bytes a minute: three runs
    for number in range(100):
        changes = {"destination_node": f"n{number % 10}", "parameters": (("x", str(number)),)}
        w.scheduler.put(configuration(f"c{number}", 30, **changes), 0)
    w.advance(600)
    per_link = Counter(run.links[0] for run in w.started)
    assert all(count <= 33 for count in per_link.values())
    assert all(count >= 20 for count in per_link.values())
    assert w.scheduler.statistics.skipped["budget"] > 1000


@pytest.mark.timeout(300)
def test_a_day_of_ten_thousand_configurations_keeps_every_budget_in_every_minute_and_merges() -> None:
    day = a_day(10_000, seed=3)
    assert (day.configurations, day.groups) == (10_000, 2_500)
    assert day.started > 200_000
    # No link in any minute more than 1 %, whenever within its time a run sends its bytes; and the room is used.
    assert 0.009 < day.worst_share <= 0.01
    # At least what equal requests overlap in is saved: four applications, one of each two single runs asked for twice.
    assert day.overlap > 0.5
    assert day.merged_share >= day.overlap
    # The links too narrow for a chirp skip every one of them, and everything that was not done has a reason.
    assert day.skipped["budget"] >= 5 * 5 * 6
    assert day.skips_without_reason == 0
    assert day.took_s < 90


def test_ten_thousand_configurations_cost_little_per_decision() -> None:
    w = world()
    for number in range(10_000):
        w.scheduler.put(configuration(f"c{number}", 60, destination_node=f"n{number}"), 0)
    w.scheduler._limits = Limits(runs=100_000, runs_of_sensor=100_000)
    begun = time.process_time()
    w.advance(180)
    took_s = time.process_time() - begun
    assert 29_000 <= len(w.started) <= 41_000
    assert took_s / len(w.started) < 0.0005


def test_what_is_put_while_plans_are_held_is_due_after_the_release() -> None:
    w = world()
    w.scheduler.hold()
    for number in range(500):
        w.scheduler.put(configuration(f"c{number}", 60, parameters=(("x", str(number)),)), 0)
    w.scheduler.remove("c0", 0)
    # Reading the rest took three seconds.
    w.now_us = 3 * S
    assert w.scheduler.poll(w.now_us) == []
    assert w.scheduler.wakeup_us() is None
    w.scheduler.release(w.now_us)
    w.advance(70)
    assert len({run.key for run in w.started}) == 499
    assert min(run.due_us for run in w.started) >= 3 * S
    assert max(run.started_us - run.due_us for run in w.started) < S // 10
