"""Six sensor pods that share one link in simulated time: leases, both directions, pods that come late or are cut off.

What is proved is counted here, apart from the pods' own books: in each direction the bytes of all runs, or of their
answers, that may have crossed the link within one and the same minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chart.registry.probe_leases import VALID_US, LeaseBook
from chart.sensor_pod.budget import ByteBudget
from chart.sensor_pod.group import Cost
from chart.sensor_pod.model import GroupKey
from chart.sensor_pod.pod import ROOM
from chart.sensor_pod.scheduler import Scheduler
from chart_lab.models.sensing_day import SECOND_US, LinkLedger, World, configuration

PODS = 6
CAPACITY_BPS = 10_000_000
ENDS = ("a:to-b", "b:to-a")
# Each pod alone would fill the link's budget twice: with pings that are answered, and with trains.
PINGS, PING_PERIOD_S = 40, 3
TRAIN_PERIOD_S = 30
COSTS = {"ping": Cost(1000, SECOND_US, 1000), "pathchirp": Cost(60_000, 3 * SECOND_US, 6000)}
REPORT_EVERY_S = 2
# When the second half of the pods comes, and from when the first one is cut off from the registry.
LATE_S, CUT_OFF_S = 180, 300


@dataclass(frozen=True)
class Shared:
    """What the pods came to on the link."""

    worst_share: float
    # Of the budget, in the last minute.
    used_share: float
    runs: int


def _directions(number: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Every other pod is at the other end."""
    forward, back = ENDS if number % 2 == 0 else ENDS[::-1]
    return (forward,), (back,)


def _world(number: int) -> World:
    forward, back = _directions(number)
    budget = ByteBudget(0.01)
    for link in ENDS:
        budget.set_capacity(link, CAPACITY_BPS)
    budget.share_links(frozenset(ENDS), PODS)

    def links(_: GroupKey) -> tuple[str, ...]:
        return forward

    def answers(_: GroupKey) -> tuple[str, ...]:
        return back

    world = World(Scheduler(budget, links, answer_links_of=answers), costs=COSTS)
    for place in range(PINGS):
        parameters = (("variant", f"{number}-{place}"),)
        world.scheduler.put(configuration(f"{number}-{place}", PING_PERIOD_S, parameters=parameters), 0)
    train = configuration(f"{number}-train", TRAIN_PERIOD_S, sensor="pathchirp")
    world.scheduler.put(train, 0)
    return world


def _wanted(world: World) -> dict[str, int]:
    budget, planned = world.scheduler.budget, world.scheduler.minute_bytes()
    return {
        link: max(
            round(planned.get(link, 0) * ROOM), budget.used_bytes(link, world.now_us) + budget.claimed_bytes(link)
        )
        for link in ENDS
    }


def six_pods(duration_s: int = 900) -> Shared:
    """Half of the pods come late; one is cut off after a while and goes on with its lease, then without."""
    worlds, book, valid_until_us = [_world(number) for number in range(PODS)], LeaseBook(), [0] * PODS
    for second in range(duration_s):
        now_us = second * SECOND_US
        there = [number for number in range(PODS) if number < PODS // 2 or second >= LATE_S]
        if second % REPORT_EVERY_S == 0:
            reach = [number for number in there if number or second < CUT_OFF_S]
            wanted = {str(number): _wanted(worlds[number]) for number in reach}
            given = book.lease(wanted, dict.fromkeys(ENDS, CAPACITY_BPS), now_us)
            for node, leases in given.items():
                budget = worlds[int(node)].scheduler.budget
                budget.set_leases({link: one.minute_bytes for link, one in leases.items()})
                valid_until_us[int(node)] = now_us + VALID_US
        for number in there:
            worlds[number].now_us = max(worlds[number].now_us, now_us)
            if valid_until_us[number] <= now_us:
                worlds[number].scheduler.budget.set_leases({})
            worlds[number].advance(1.0)
    return _counted(worlds, duration_s)


def _counted(worlds: Sequence[World], duration_s: int) -> Shared:
    worst, used_bytes = 0.0, 0
    for link in ENDS:
        crossed = sorted(
            (run.started_us, run.started_us + run.cost.duration_us, size_bytes)
            for number, world in enumerate(worlds)
            for run in world.started
            for size_bytes in [run.cost.probe_bytes if (link,) == _directions(number)[0] else run.cost.answer_bytes]
        )
        ledger = LinkLedger(CAPACITY_BPS)
        for started_us, ended_us, size_bytes in crossed:
            ledger.note(started_us, ended_us, size_bytes)
        worst = max(worst, ledger.worst_share)
        since_us = (duration_s - 60) * SECOND_US
        used_bytes = max(used_bytes, sum(size for started_us, _, size in crossed if started_us >= since_us))
    runs = sum(len(world.started) for world in worlds)
    return Shared(worst, used_bytes / (CAPACITY_BPS / 8 * 60 * 0.01), runs)
