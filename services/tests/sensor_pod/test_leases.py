"""Links that other pods probe too: a small share without a lease, the lease beyond, and six pods over one link."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from chart.common.clock import SystemClock
from chart.common.streams_local import LocalBroker
from chart.registry.probe_leases import VALID_US, LeaseBook
from chart.sensor_pod.budget import LEASE_WAIT_US, UNLEASED_SHARE, WINDOW_US, ByteBudget
from chart.sensor_pod.drivers import Drivers
from chart.sensor_pod.group import Cost, Run
from chart.sensor_pod.model import Configuration
from chart.sensor_pod.plan import Declare
from chart.sensor_pod.pod import Pod
from chart.sensor_pod.publisher import Publisher
from chart.sensor_pod.repository import Repository, Retention
from chart.sensor_pod.scheduler import Scheduler
from chart.sensor_pod.streams import LEASES, STATE, TOPOLOGY, ControlStreams
from chart.v1.probe_lease_pb2 import ProbeLease, ProbeLeases
from chart.v1.sensor_pod_state_pb2 import SensorPodState
from chart.v1.topology_pb2 import Link, Node, TopologyEntity
from support.waiting import eventually

LINK = "a:to-b"
CAPACITY_BPS = 10_000_000
BUDGET = CAPACITY_BPS // 800 * 60
S = 1_000_000


def shared(pods: int) -> ByteBudget:
    made = ByteBudget(0.01)
    made.set_capacity(LINK, CAPACITY_BPS)
    made.share_links(frozenset({LINK}), pods)
    return made


def test_without_a_lease_a_pod_has_its_part_of_a_small_share() -> None:
    budget = shared(5)
    assert budget.limit_bytes(LINK) == int(BUDGET * UNLEASED_SHARE / 5)
    assert budget.whole_bytes(LINK) == BUDGET
    assert shared(1).limit_bytes(LINK) == BUDGET


def test_a_run_that_needs_more_than_the_lease_waits_for_one_and_only_the_whole_budget_is_never() -> None:
    budget = shared(5)
    assert budget.earliest_us((LINK,), 50_000, 0, 7) == 7 + LEASE_WAIT_US
    budget.set_leases({LINK: 60_000})
    assert budget.earliest_us((LINK,), 50_000, 0, 7) == 7
    assert budget.earliest_us((LINK,), BUDGET + 1, 0, 7) is None
    budget.set_leases({})
    assert budget.earliest_us((LINK,), 50_000, 0, 7) == 7 + LEASE_WAIT_US


def test_six_pods_that_want_everything_share_one_links_budget_in_every_minute() -> None:
    pods = []
    for number in range(6):
        budget = shared(6)
        one = Scheduler(budget, lambda _: (LINK,))
        for place in range(20):
            parameters = (("count", str(place)),)
            identity = f"{number}-{place}"
            one.put(Configuration(identity, "b", "10.0.0.2", "ping", parameters, 2 * S, S), 0)
        pods.append(one)
    book = LeaseBook()
    until_us = [0] * 6
    sent: list[tuple[int, int]] = []
    for now_us in range(0, 360 * S, S // 2):
        # The third pod cannot reach the registry from the second minute on; three begin late.
        there = [n for n in range(6) if (n < 3 or now_us > 100 * S) and not (n == 2 and now_us > 120 * S)]
        if now_us % S == 0:
            wanted = {str(n): {LINK: round(1.25 * pods[n].minute_bytes().get(LINK, 0)) + 2000} for n in there}
            for name, leases in book.lease(wanted, {LINK: CAPACITY_BPS}, now_us).items():
                pods[int(name)].budget.set_leases({link: one.minute_bytes for link, one in leases.items()})
                until_us[int(name)] = now_us + VALID_US
        for number, one in enumerate(pods):
            if until_us[number] <= now_us:
                one.budget.set_leases({})
            while decisions := one.poll(now_us):
                for decision in decisions:
                    if isinstance(decision, Declare):
                        one.declared(decision.key, Cost(2000, 0), now_us)
                    elif isinstance(decision, Run):
                        sent.append((now_us, 2000))
                        one.finished(decision.id, now_us, 2000)
    worst = max(
        sum(size for at_us, size in sent if start_us <= at_us < start_us + WINDOW_US)
        for start_us in range(0, 300 * S, 5 * S)
    )
    assert worst <= BUDGET
    # And it is used: all of them together want four times as much.
    last = sum(size for at_us, size in sent if at_us >= 300 * S)
    assert last > 0.7 * BUDGET


async def test_a_pod_reports_what_it_wants_of_shared_links_and_takes_its_leases_from_the_stream(tmp_path: Path) -> None:
    broker, clock = LocalBroker(), SystemClock()
    repository = Repository(tmp_path / "pod.sqlite")
    await repository.open()
    states = await broker.compacted(STATE)
    pod = Pod("a", repository, Drivers(tmp_path, None, None), Publisher(repository, broker, clock, Retention()), clock)
    streams = ControlStreams(broker, pod, clock)
    budget = pod.scheduler.budget
    tasks = [asyncio.create_task(run()) for run in (streams.run_topology, streams.run_leases, streams.run_state)]
    try:
        for node in ("a", "b"):
            await broker.publish(TOPOLOGY, node, TopologyEntity(node=Node(id=node)))
        link = Link(id=LINK, from_node="a", to_node="b", capacity_bps=CAPACITY_BPS)
        await broker.publish(TOPOLOGY, LINK, TopologyEntity(link=link))
        small = int(BUDGET * UNLEASED_SHARE / 2)
        await eventually(lambda: budget.limit_bytes(LINK) == small)
        # A run of three quarters of the budget waits.
        budget.claim((LINK,), BUDGET * 3 // 4, 0)

        def wanted() -> dict[str, int]:
            state = states.get("a")
            return {one.link_id: one.wanted_bytes for one in state.probes} if isinstance(state, SensorPodState) else {}

        await eventually(lambda: wanted() == {LINK: BUDGET * 3 // 4}, 10)
        for valid_s, limit in ((20, small + 5000), (-1, small)):
            leases = ProbeLeases(
                node="a",
                leases=[ProbeLease(link_id=LINK, minute_bytes=5000, fair_bytes=7000)],
                valid_until_us=clock.now_us() + valid_s * S,
            )
            await broker.publish(LEASES, "a", leases)
            await eventually(lambda limit=limit: budget.limit_bytes(LINK) == limit)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        await states.close()
        await repository.close()
