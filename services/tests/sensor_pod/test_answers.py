"""Answers to probes count on the path back, and trains are fitted to the path."""

from __future__ import annotations

from chart.common.shortest_paths import Paths
from chart.sensor_pod.budget import WINDOW_US, ByteBudget
from chart.sensor_pod.group import Cost, Run
from chart.sensor_pod.model import Configuration, GroupKey
from chart.sensor_pod.plan import Declare
from chart.sensor_pod.scheduler import Scheduler
from chart.v1.topology_pb2 import Link

S = 1_000_000
THERE, BACK = "alpha:to-bravo", "bravo:to-alpha"


def ping(identity: str, period_s: int) -> Configuration:
    return Configuration(identity, "bravo", "10.0.0.2", "ping", (("count", identity),), period_s * S, 0)


def scheduler(back_bps: int) -> Scheduler:
    budget = ByteBudget(0.01, 10**9)
    budget.set_capacity(BACK, back_bps)
    return Scheduler(budget, lambda _: (THERE,), answer_links_of=lambda _: (BACK,))


def starts(one: Scheduler, until_s: int, cost: Cost) -> list[int]:
    """Times of runs, each of which takes no time."""
    found = []
    for now_us in range(0, until_s * S, S // 2):
        while decisions := one.poll(now_us):
            for decision in decisions:
                if isinstance(decision, Declare):
                    one.declared(decision.key, cost, now_us)
                elif isinstance(decision, Run):
                    found.append(now_us)
                    one.finished(decision.id, now_us, decision.cost.probe_bytes)
    return found


def test_a_narrow_path_back_holds_runs_as_a_narrow_path_forward_does() -> None:
    one = scheduler(back_bps=80_000)  # 6000 bytes a minute
    for number in range(10):
        one.put(ping(str(number), 10), 0)
    found = starts(one, 300, Cost(1000, 0, 1000))
    assert len(found) > 20
    for at_us in found:
        assert sum(1 for other in found if at_us <= other < at_us + WINDOW_US) <= 6
    # Forward there was room for all.
    wide = scheduler(back_bps=10**9)
    for number in range(10):
        wide.put(ping(str(number), 10), 0)
    assert len(starts(wide, 300, Cost(1000, 0, 1000))) > 250


def test_answers_are_settled_by_what_was_sent() -> None:
    one = scheduler(back_bps=10**9)
    one.put(ping("1", 10), 0)
    at_us = 0
    while not (runs := [decision for decision in one.poll(at_us) if isinstance(decision, Run)]):
        one.declared(ping("1", 10).key, Cost(1000, 0, 500), at_us)
        at_us += S // 2
    assert one.budget.used_bytes(BACK, at_us) == 500
    one.finished(runs[0].id, at_us, 100)
    assert (one.budget.used_bytes(THERE, at_us), one.budget.used_bytes(BACK, at_us)) == (100, 50)


def test_paths_to_a_node_are_those_of_links_in_their_direction() -> None:
    links = [
        Link(id="a:x", from_node="a", to_node="b", delay_us=1),
        Link(id="b:y", from_node="b", to_node="c", delay_us=1),
        Link(id="c:z", from_node="c", to_node="a", delay_us=1),
    ]
    forward, back = Paths("a"), Paths("a", back=True)
    forward.set_links(links)
    back.set_links(links)
    assert forward.links("c") == ("a:x", "b:y")
    assert back.links("c") == ("c:z",)
    assert back.links("b") == ("b:y", "c:z")
    assert (forward.links("gone"), back.links("gone")) == (("to:gone",), ("from:gone",))


def test_a_group_keeps_its_name_whatever_its_trains_are_fitted_to() -> None:
    fitted = (("limit_bytes", "37500"),)
    one = Scheduler(ByteBudget(0.01, 10**9), lambda _: (THERE,), fitted=lambda _: fitted)
    key = GroupKey("pathchirp", "bravo", "10.0.0.2", ())
    one.put(Configuration("c", "bravo", "10.0.0.2", "pathchirp", (), 10 * S, 0), 0)
    decisions = [decision for now_us in range(0, 11 * S, S) for decision in one.poll(now_us)]
    assert decisions[0] == Declare(key)
    one.declared(key, Cost(37_500, S), 11 * S)
    (run,) = (decision for decision in one.poll(11 * S) if isinstance(decision, Run))
    assert (run.key, run.cost.probe_bytes) == (key, 37_500)
