"""The allocator over local streams: from load reports to link rates, leases, generations, hand-over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from chart.allocator.guarantees import GrantBook, LeaseBook
from chart.allocator.rpc import AllocatorServicer
from chart.allocator.service import MOST_USERS, law_of, next_generation, users_by_link
from chart.allocator.settings import AllocatorSettings
from chart.allocator.streams import FLOW_GRANT, GR_LEASE, LINK_LOAD, LINK_RATE, MEASUREMENT, POLICY, TOPOLOGY, Allocator
from chart.common.clock import FakeClock
from chart.common.streams import CompactedState, LocalBroker
from chart.v1 import (
    allocator_pb2,
    flow_grant_pb2,
    gr_lease_pb2,
    link_load_pb2,
    link_rate_pb2,
    measurement_pb2,
    policy_pb2,
    topology_pb2,
)

LINK = "bravo:to-charlie"
MEGA = 1_000_000


def link_entity(capacity_bps: int = 100 * MEGA) -> topology_pb2.TopologyEntity:
    return topology_pb2.TopologyEntity(
        link=topology_pb2.Link(id=LINK, from_node="bravo", to_node="charlie", capacity_bps=capacity_bps)
    )


def load(explicit_bps: int = 0, flows: int = 0, **more: int) -> link_load_pb2.LinkLoadReport:
    one = link_load_pb2.LinkLoad(
        link_id=LINK, explicit_rate_bytes=explicit_bps // 80, users=flows, rtt_us=100_000, **more
    )
    return link_load_pb2.LinkLoadReport(node="bravo", interval_us=100_000, links=[one])


def grant(bps: int, until_us: int) -> flow_grant_pb2.FlowGrant:
    return flow_grant_pb2.FlowGrant(link_ids=[LINK], guaranteed_bps=bps, valid_until_us=until_us)


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.broker = LocalBroker(self.clock)
        self.rates: CompactedState

    @asynccontextmanager
    async def allocator(self) -> AsyncIterator[Allocator]:
        self.rates = await self.broker.compacted(LINK_RATE)
        settings = AllocatorSettings(kafka_bootstrap="local:", _env_file=None)  # type: ignore[call-arg]
        allocator = Allocator(self.broker, settings, self.clock)
        before = self.members()
        task = asyncio.create_task(allocator.run())
        await self.until(lambda: self.members() == before + 1)
        try:
            yield allocator
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    def members(self) -> int:
        group = self.broker._groups.get("allocator")
        return len(group.members) if group else 0

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(1000):
            if holds():
                return
            await asyncio.sleep(0)
        raise AssertionError("did not come true")

    async def reports(self, count: int, report: link_load_pb2.LinkLoadReport) -> None:
        for _ in range(count):
            await self.broker.publish(LINK_LOAD, report.node, report)
            await self.clock.advance(0.1)

    def newest(self) -> link_rate_pb2.LinkRates:
        value = self.rates.get("bravo")
        assert isinstance(value, link_rate_pb2.LinkRates)
        return value


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    one = Bench()
    await one.broker.publish(TOPOLOGY, LINK, link_entity())
    yield one
    await one.broker.close()


async def test_load_report_brings_a_rate_with_a_lease(bench: Bench) -> None:
    async with bench.allocator():
        await bench.reports(1, load())
        record = bench.newest()
        assert record.links[0].available_bps == 97 * MEGA
        assert record.valid_until_us - record.issued_at_us == 10 * MEGA
        assert record.controller == "nec"
        assert record.generation >= record.issued_at_us


async def test_unchanged_rate_is_renewed_at_half_lease_only(bench: Bench) -> None:
    async with bench.allocator():
        await bench.reports(1, load())
        first = bench.newest()
        await bench.reports(48, load())
        assert bench.newest() == first
        await bench.reports(4, load())
        assert bench.newest().generation > first.generation
        assert bench.newest().valid_until_us > first.valid_until_us


async def test_silent_node_is_not_renewed_and_says_why(bench: Bench) -> None:
    async with bench.allocator() as allocator:
        await bench.reports(1, load())
        first = bench.newest()
        await bench.clock.advance(20)
        assert allocator.nodes == {}
        assert bench.newest() == first


async def test_grant_lowers_what_is_shared_and_expires_by_itself(bench: Bench) -> None:
    async with bench.allocator():
        until_us = bench.clock.now_us() + 5 * MEGA
        await bench.broker.publish(FLOW_GRANT, "r1", grant(40 * MEGA, until_us))
        await bench.reports(2, load(97 * MEGA, 1))
        assert bench.newest().links[0].explicit_rate_capacity_bps == 57 * MEGA
        await bench.reports(60, load(97 * MEGA, 1))
        assert bench.newest().links[0].explicit_rate_capacity_bps == 97 * MEGA
        await bench.broker.publish(FLOW_GRANT, "r2", grant(10 * MEGA, bench.clock.now_us() + 60 * MEGA))
        await bench.reports(2, load(97 * MEGA, 1))
        assert bench.newest().links[0].explicit_rate_capacity_bps == 87 * MEGA
        await bench.broker.publish(FLOW_GRANT, "r2", None)
        await bench.reports(2, load(97 * MEGA, 1))
        assert bench.newest().links[0].explicit_rate_capacity_bps == 97 * MEGA


async def test_second_flow_halves_the_rate_in_the_next_record(bench: Bench) -> None:
    async with bench.allocator():
        await bench.reports(10, load(97 * MEGA, 1))
        assert bench.newest().links[0].available_bps == 97 * MEGA
        await bench.reports(1, load(99 * MEGA, 2))
        assert bench.newest().links[0].available_bps == pytest.approx(48.5 * MEGA, rel=0.02)


async def test_restart_goes_on_with_rate_and_a_higher_generation(bench: Bench) -> None:
    async with bench.allocator():
        await bench.reports(20, load(97 * MEGA, 4))
        before = bench.newest()
    async with bench.allocator():
        await bench.reports(1, load(97 * MEGA, 4))
        assert bench.newest() == before, "what holds needs no new record"
        await bench.reports(55, load(97 * MEGA, 4))
        after = bench.newest()
        assert after.generation > before.generation
        assert after.links[0].available_bps == pytest.approx(before.links[0].available_bps, rel=0.3)


async def test_absent_broker_is_survived(bench: Bench) -> None:
    async with bench.allocator() as allocator:
        bench.broker.available = False
        allocator.take(load())
        await bench.clock.advance(0.1)
        bench.broker.available = True
        await bench.reports(1, load())
        assert bench.newest().links[0].available_bps == 97 * MEGA


async def test_policy_chooses_the_law(bench: Bench) -> None:
    async with bench.allocator():
        await bench.reports(1, load())
        await bench.broker.publish(POLICY, "default", policy_pb2.Policy(id="default", link_controller="rcp"))
        await bench.reports(52, load())
        assert bench.newest().controller == "rcp"


async def test_link_outside_the_topology_gets_no_rate_until_it_is_there(bench: Bench) -> None:
    await bench.broker.publish(TOPOLOGY, LINK, None)
    async with bench.allocator():
        await bench.reports(3, load())
        assert bench.rates.get("bravo") is None
        await bench.broker.publish(TOPOLOGY, LINK, link_entity(200 * MEGA))
        await bench.reports(1, load())
        assert bench.newest().links[0].available_bps == 194 * MEGA


async def test_rpc_lists_what_was_published(bench: Bench) -> None:
    async with bench.allocator() as allocator:
        await bench.reports(1, load())
        servicer = AllocatorServicer(allocator)
        every = await servicer.ListLinkRates(allocator_pb2.ListLinkRatesRequest(), None)
        assert [one.node for one in every.nodes] == ["bravo"]
        assert every.nodes[0] == bench.newest()
        other = await servicer.ListLinkRates(allocator_pb2.ListLinkRatesRequest(node="charlie"), None)
        assert list(other.nodes) == []


async def test_two_replicas_share_the_nodes(bench: Bench) -> None:
    async with bench.allocator() as one, bench.allocator() as two:
        for number in range(16):
            await bench.reports(1, link_load_pb2.LinkLoadReport(node=f"n{number}", interval_us=100_000))
        assert one.nodes.keys().isdisjoint(two.nodes.keys())
        assert len(one.nodes) + len(two.nodes) == 16
        assert one.nodes
        assert two.nodes


def test_generation_grows_with_a_clock_that_steps_back() -> None:
    assert next_generation(100, 500) == 501
    assert next_generation(1000, 500, 700) == 1000


def test_grant_book_replaces_and_releases() -> None:
    book = GrantBook()
    book.put("a", grant(5, 100))
    book.put("a", grant(7, 100))
    book.put("b", grant(1, 50))
    assert book.reserved_bps(LINK, 10) == 8
    assert book.reserved_bps(LINK, 50) == 7
    book.put("a", None)
    assert book.reserved_bps(LINK, 10) == 1


def test_law_by_policy() -> None:
    assert law_of([], "a") == "nec"
    assert law_of([("default", "rcp")], "a") == "rcp"
    assert law_of([("default", "rcp"), ("a", "nec")], "a") == "nec"
    assert law_of([("default", "")], "a") == "nec"


def gr_lease(bps: int, until_us: int, generation: int = 1) -> gr_lease_pb2.GrLease:
    return gr_lease_pb2.GrLease(link_id=LINK, generation=generation, lease_bps=bps, valid_until_us=until_us)


async def test_what_may_be_drawn_in_band_goes_out_at_once_and_ends_with_its_lease(bench: Bench) -> None:
    async with bench.allocator():
        await bench.reports(1, load())
        assert (bench.newest().links[0].gr_lease_bps, bench.newest().links[0].gr_lease_until_us) == (0, 0)
        until_us = bench.clock.now_us() + 3 * MEGA
        await bench.broker.publish(GR_LEASE, LINK, gr_lease(8 * MEGA, until_us))
        await bench.reports(2, load())
        assert (bench.newest().links[0].gr_lease_bps, bench.newest().links[0].gr_lease_until_us) == (8 * MEGA, until_us)
        told = bench.newest().generation
        await bench.reports(30, load())
        assert bench.newest().generation == told, "that a lease ends when it said it would is no news"
        await bench.reports(30, load())
        assert (bench.newest().links[0].gr_lease_bps, bench.newest().links[0].gr_lease_until_us) == (0, 0)


async def test_a_lease_taken_back_early_is_told_at_once(bench: Bench) -> None:
    async with bench.allocator():
        await bench.broker.publish(GR_LEASE, LINK, gr_lease(8 * MEGA, bench.clock.now_us() + 20 * MEGA))
        await bench.reports(2, load())
        assert bench.newest().links[0].gr_lease_bps == 8 * MEGA
        await bench.broker.publish(GR_LEASE, LINK, None)
        await bench.reports(2, load())
        assert bench.newest().links[0].gr_lease_bps == 0


def test_an_older_lease_does_not_replace_a_newer_one() -> None:
    book = LeaseBook()
    book.put(LINK, gr_lease(8 * MEGA, 100, generation=2))
    book.put(LINK, gr_lease(9 * MEGA, 200, generation=1))
    assert book.valid(LINK, 50) == (8 * MEGA, 100)
    assert book.valid(LINK, 100) == (0, 0)


async def test_rates_drawn_in_band_are_set_aside_beside_the_granted_ones(bench: Bench) -> None:
    async with bench.allocator():
        await bench.broker.publish(FLOW_GRANT, "r1", grant(40 * MEGA, bench.clock.now_us() + 60 * MEGA))
        await bench.reports(2, load(in_band_committed_bps=10 * MEGA))
        assert bench.newest().links[0].explicit_rate_capacity_bps == 47 * MEGA


def of_users(**flows: int) -> link_load_pb2.LinkLoadReport:
    """A full link on which each of these users has so many flows."""
    report = load(97 * MEGA, len(flows))
    for user, number in flows.items():
        if number > 1:
            report.user_flows.add(user=user, flows=number)
    return report


async def test_users_with_several_flows_are_told_with_the_rate_of_their_link(bench: Bench) -> None:
    async with bench.allocator():
        await bench.reports(30, of_users(ann=4, bob=1))
        (link,) = bench.newest().links
        assert link.active_users == 2
        assert link.available_bps == pytest.approx(48.5 * MEGA, rel=0.02)
        assert [(one.user, one.flows) for one in link.user_flows] == [("ann", 4)]
        before = bench.newest().generation
        await bench.reports(2, of_users(ann=4, bob=1))
        assert bench.newest().generation == before
        # The number of users is the same; who has how many flows is not.
        await bench.reports(2, of_users(ann=3, bob=2))
        assert [(one.user, one.flows) for one in bench.newest().links[0].user_flows] == [("ann", 3), ("bob", 2)]
        await bench.reports(2, of_users(ann=1, bob=1))
        assert not bench.newest().links[0].user_flows


def test_users_that_make_no_sense_are_left_out() -> None:
    named = [
        link_load_pb2.UserFlows(user="ann", flows=2),
        link_load_pb2.UserFlows(user="ann", flows=3, link=1),
        link_load_pb2.UserFlows(user="bob", flows=1),
        link_load_pb2.UserFlows(user="", flows=5),
        link_load_pb2.UserFlows(user="cid", flows=5, link=2),
    ]
    assert users_by_link(named, ["a:x", "a:y"]) == {"a:x": {"ann": 2}, "a:y": {"ann": 3}}
    many = [link_load_pb2.UserFlows(user=f"user{number}", flows=2) for number in range(MOST_USERS + 1)]
    assert len(users_by_link(many, ["a:x"])["a:x"]) == MOST_USERS


def virtual_entity(capacity_bps: int = 100 * MEGA, to_node: str = "charlie") -> topology_pb2.TopologyEntity:
    link = topology_pb2.Link(
        id=LINK, from_node="bravo", to_node=to_node, capacity_bps=capacity_bps, tags={"virtual": "true"}
    )
    return topology_pb2.TopologyEntity(link=link)


async def measured(
    bench: Bench, metric: str, value: float, to_node: str = "charlie", error: str = "", ahead_us: int = 0
) -> None:
    one = measurement_pb2.Measurement(
        source_node="bravo",
        destination_node=to_node,
        metric=metric,
        value=value,
        measured_at_us=bench.clock.now_us() + ahead_us,
        error=error,
    )
    await bench.broker.publish(MEASUREMENT, f"bravo,{to_node},{metric}", one)


async def test_a_virtual_link_has_what_is_sensed_and_its_own_load(bench: Bench) -> None:
    await bench.broker.publish(TOPOLOGY, LINK, virtual_entity())
    async with bench.allocator():
        await bench.reports(20, load(0, 0))
        # Nothing is known yet: the least.
        assert bench.newest().links[0].explicit_rate_capacity_bps == pytest.approx(0.97 * 5 * MEGA, rel=0.01)
        await measured(bench, "available_bandwidth_bps", 40 * MEGA)
        await bench.reports(2, load(0, 0))
        assert bench.newest().links[0].explicit_rate_capacity_bps == pytest.approx(0.97 * 40 * MEGA, rel=0.01)
        await bench.reports(30, load(30 * MEGA, 1))
        # 10 Mb/s are left beside 30 of its own: the same link.
        await measured(bench, "available_bandwidth_bps", 10 * MEGA)
        await bench.reports(2, load(30 * MEGA, 1))
        assert bench.newest().links[0].explicit_rate_capacity_bps == pytest.approx(0.97 * 40 * MEGA, rel=0.01)
        # Another path, another metric and what failed say nothing of it.
        await measured(bench, "available_bandwidth_bps", 90 * MEGA, to_node="delta")
        await measured(bench, "capacity_bps", 90 * MEGA)
        await measured(bench, "available_bandwidth_bps", 0.0, error="no answer")
        await bench.reports(2, load(30 * MEGA, 1))
        assert bench.newest().links[0].explicit_rate_capacity_bps == pytest.approx(0.97 * 40 * MEGA, rel=0.01)
        # A clock that is an hour ahead does not stop the others from being heard.
        await measured(bench, "available_bandwidth_bps", 10 * MEGA, ahead_us=3600 * MEGA)
        await bench.reports(2, load(30 * MEGA, 1))
        for _ in range(20):
            await measured(bench, "available_bandwidth_bps", 0)
            await bench.reports(10, load(30 * MEGA, 1))
        assert bench.newest().links[0].explicit_rate_capacity_bps == pytest.approx(0.97 * 30 * MEGA, rel=0.05)
        for rtt_us in (20_000, 30_000, 30_000):
            await measured(bench, "rtt_us", rtt_us)
            await bench.reports(2, load(30 * MEGA, 1))
        assert bench.newest().links[0].explicit_rate_capacity_bps < 0.9 * 0.97 * 30 * MEGA


async def test_a_link_that_is_no_longer_virtual_has_its_capacity(bench: Bench) -> None:
    await bench.broker.publish(TOPOLOGY, LINK, virtual_entity())
    async with bench.allocator() as allocator:
        await bench.reports(2, load(0, 0))
        await bench.broker.publish(TOPOLOGY, LINK, virtual_entity(60 * MEGA, to_node="delta"))
        await measured(bench, "available_bandwidth_bps", 50 * MEGA)
        await bench.reports(2, load(0, 0))
        assert bench.newest().links[0].explicit_rate_capacity_bps == pytest.approx(0.97 * 3 * MEGA, rel=0.01)
        await measured(bench, "available_bandwidth_bps", 50 * MEGA, to_node="delta")
        await bench.reports(2, load(0, 0))
        assert bench.newest().links[0].explicit_rate_capacity_bps == pytest.approx(0.97 * 50 * MEGA, rel=0.01)
        await bench.broker.publish(TOPOLOGY, LINK, link_entity())
        await bench.reports(2, load(0, 0))
        assert bench.newest().links[0].explicit_rate_capacity_bps == 97 * MEGA
        assert not allocator._sensed
