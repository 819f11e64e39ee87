"""The room of nodes: who is refused for it, what counts, and that the profiles say what requests hold."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chart.common.ownership import Prefix
from chart.reservations.decisions import engine, jobs, lifecycle, messages, rates, room, validation
from chart.reservations.decisions.admission import Refused
from chart.reservations.decisions.engine import Book, Decision
from chart.reservations.decisions.ledger import Kind, Ledger
from chart.reservations.decisions.network import Network, NetworkLink, own_prefix
from chart.reservations.decisions.profile import LinkProfile
from chart.reservations.decisions.rates import Change
from chart.reservations.decisions.reservation import Timing
from chart.reservations.decisions.room import Room, room_of, selectors_of, track_of
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import grant_status_pb2, node_state_pb2
from chart.v1 import rate_request_pb2 as rr
from chart.v1.flow_grant_pb2 import FlowSelector

MEGA = S = 1_000_000
NOW = 1_770_000_000 * S
TIMING = Timing()


def prefixes(*words: str) -> tuple[Prefix, ...]:
    """Addresses of a node."""
    return tuple(found for word in words if (found := own_prefix(word)) is not None)


def network(**rooms: Room) -> Network:
    """Three nodes in a line, a, b, c; and d beside b."""
    ends = (("a", "b"), ("b", "c"), ("a", "d"), ("d", "c"))
    links = {f"{a}:to-{b}": NetworkLink(f"{a}:to-{b}", a, b, 1000 * MEGA) for a, b in ends}
    nodes = {
        "a": prefixes("10.0.0.1/32", "10.9.0.1/32", "fd00::1/128"),
        "b": prefixes("10.0.1.1/32"),
        "c": prefixes("10.0.2.1/32", "fd00:2::1/128"),
        "d": prefixes("10.0.3.1/32"),
    }
    return Network(nodes, links, rooms=rooms)


class World:
    """A book, and what is asked of it."""

    def __init__(self, **rooms: Room) -> None:
        self.book = Book(network(**rooms), Ledger())
        self.number = 0
        self.now = NOW

    def ask(self, bps: int = MEGA, source: str = "10.0.0.1", destination: str = "10.0.1.1", **more: object) -> Decision:
        self.number += 1
        specification = rr.RateRequestSpecification(
            source=source,
            destination=destination,
            guaranteed_bps=bps,
            **more,  # type: ignore[arg-type]
        )
        checked = validation.check(specification, self.book.network, self.now)
        return engine.create(self.book, f"r{self.number}", "alice", checked, self.now, "", TIMING)

    def refusal(self, **fields: object) -> Refused:
        decision = self.ask(**fields)  # type: ignore[arg-type]
        assert decision.refused is not None
        return decision.refused

    def granted(self, **fields: object) -> str:
        assert self.ask(**fields).granted is not None  # type: ignore[arg-type]
        return f"r{self.number}"

    def release(self, identity: str) -> None:
        outcome = lifecycle.release(self.book.reservations[identity], self.now, TIMING)
        assert engine.apply(self.book, outcome, self.now, TIMING) is not None

    def say(self, identity: str, node: str, state: grant_status_pb2.GrantState.ValueType) -> None:
        """A node's word about a grant, and what follows of it."""
        one = self.book.reservations[identity]
        status = grant_status_pb2.GrantStatus(
            request_id=identity, node=node, generation=one.generation, state=state, applied_at_us=self.now
        )
        outcome = lifecycle.on_status(one, status, self.now, TIMING)
        assert outcome is not None
        self.book.reservations[identity] = outcome.reservation
        jobs.Drained(tuple((identity, part) for part in outcome.drained)).decide(self.book, self.now)


def test_the_grant_that_a_node_cannot_hold_is_refused_with_node_and_numbers() -> None:
    world = World(a=Room(2, 4096))
    world.granted()
    world.granted()
    refused = world.refusal()
    assert refused.code == "no-room"
    assert refused.detail == "node a has no room for another grant: it holds 2 of at most 2 grants"
    assert refused.bottleneck_link_id == "a:to-b"
    assert "node a" in refused.suggestions[0]
    # A preview looks the same way at the same book, and changes nothing.
    checked = validation.check(
        rr.RateRequestSpecification(source="10.0.0.1", destination="10.0.1.1", guaranteed_bps=MEGA),
        world.book.network,
        NOW,
    )
    decided = engine.decide(world.book, checked.ask, NOW)
    assert decided is not None
    assert decided[0] == refused
    assert messages.preview(refused).refusal.code == "no-room"
    # Other nodes have room.
    world.granted(source="10.0.1.1", destination="10.0.2.1")


def test_a_full_node_later_on_the_path_counts() -> None:
    world = World(a=Room(), b=Room(1, 4096))
    world.granted(source="10.0.1.1", destination="10.0.2.1")
    checked = validation.check(
        rr.RateRequestSpecification(source="10.0.0.1", destination="10.0.2.1", guaranteed_bps=MEGA),
        world.book.network,
        NOW,
    )
    ask = dataclasses.replace(checked.ask, path=("a:to-b", "b:to-c"))
    decided = engine.decide(world.book, ask, NOW)
    assert decided is not None
    assert isinstance(decided[0], Refused)
    assert decided[0].detail.startswith("node b has no room")
    assert decided[0].bottleneck_link_id == "b:to-c"


def test_a_grant_without_a_guaranteed_rate_takes_room_too() -> None:
    world = World(a=Room(1, 4096))
    world.granted(bps=0)
    assert world.refusal().code == "no-room"
    assert world.refusal(bps=0).code == "no-room"


def test_nodes_without_an_agent_have_no_bound_and_agents_of_before_have_the_default() -> None:
    assert room_of(node_state_pb2.NodeState(node="a")) == Room(256, 4096)
    told = [node_state_pb2.NodeRoom(kind="grants", total=7), node_state_pb2.NodeRoom(kind="other", total=1)]
    assert room_of(node_state_pb2.NodeState(node="a", room=told)) == Room(7, 4096)
    world = World(b=Room(0, 0))
    for _ in range(300):
        world.granted()
    world = World(a=room_of(node_state_pb2.NodeState(node="a")))
    for _ in range(256):
        world.granted()
    assert "256 of at most 256 grants" in world.refusal().detail


def test_a_released_grant_counts_until_every_node_has_given_it_back() -> None:
    world = World(a=Room(1, 4096))
    first = world.granted()
    world.say(first, "a", grant_status_pb2.GRANT_STATE_APPLIED)
    world.release(first)
    assert world.refusal().detail.endswith("1 of at most 1 grants (1 of them released and not yet given back)")
    # What begins when its validity is over for certain does not meet it any more.
    end_us = world.book.reservations[first].grant_valid_until_us + TIMING.clock_error_us
    assert world.refusal(start_us=end_us - 1).code == "no-room"
    later = world.granted(start_us=end_us)
    world.release(later)
    world.say(first, "a", grant_status_pb2.GRANT_STATE_REMOVED)
    world.granted()


@pytest.mark.parametrize("bps", [0, MEGA])
def test_an_agent_that_is_cut_off_gives_its_place_back_when_the_grant_ends(bps: int) -> None:
    world = World(a=Room(1, 4096))
    world.release(world.granted(bps=bps))
    world.now += TIMING.grant_validity_us + TIMING.clock_error_us - 1
    assert world.refusal().code == "no-room"
    world.now += 1
    world.granted()


def test_room_is_counted_over_time() -> None:
    world = World(a=Room(1, 4096))
    world.granted(start_us=NOW + 100 * S, end_us=NOW + 200 * S)
    world.granted(start_us=NOW + 200 * S, end_us=NOW + 300 * S)
    world.granted(end_us=NOW + 100 * S)
    assert world.refusal(start_us=NOW + 150 * S, end_us=NOW + 250 * S).code == "no-room"
    assert world.refusal().code == "no-room"


def test_each_pair_of_addresses_takes_a_selector() -> None:
    two = {"source_prefixes": ["10.0.0.1/32", "fd00::1/128"], "destination_prefixes": ["10.0.2.1/32", "fd00:2::1/128"]}
    assert selectors_of(FlowSelector(**two)) == 2  # type: ignore[arg-type]
    assert selectors_of(FlowSelector(source_prefix="10.0.0.1/32", destination_prefix="10.0.1.1/32")) == 1
    assert selectors_of(FlowSelector()) == 1
    assert selectors_of(FlowSelector(source_prefixes=["10.0.0.1/32", "fd00::1/128"])) == 2
    assert selectors_of(FlowSelector(source_prefix="10.0.0.1/32", destination_prefixes=["fd00::1", "fd00::2"])) == 1
    # From a to c: two IPv4 pairs and one of IPv6.
    world = World(a=Room(256, 7))
    world.granted(source="a", destination="c")
    world.granted(source="a", destination="c")
    refused = world.refusal(source="a", destination="c")
    assert refused.detail == "node a has no room for 3 selectors of a grant: it holds 6 of at most 7 selectors"
    world.granted()
    assert world.refusal().detail.endswith("it holds 7 of at most 7 selectors")


def test_a_change_in_service_needs_no_second_place() -> None:
    world = World(a=Room(1, 4096))
    first = world.granted(end_us=NOW + 100 * S)
    changed = engine.change(world.book, first, Change(guaranteed_bps=2 * MEGA), NOW, TIMING)
    assert changed.refused is None
    assert changed.granted is not None
    longer = engine.change(world.book, first, Change(end_us=NOW + 300 * S), NOW, TIMING)
    assert longer.refused is None
    # Where somebody else has the place from then on, it cannot be longer.
    world.granted(start_us=NOW + 300 * S, end_us=NOW + 400 * S)
    refused = engine.change(world.book, first, Change(end_us=NOW + 350 * S), NOW, TIMING).refused
    assert refused is not None
    assert refused.code == "no-room"
    assert world.book.reservations[first].end_us == NOW + 300 * S
    check(world)


def test_who_has_to_move_and_finds_no_room_loses_its_rate_and_gets_it_back() -> None:
    world = World(a=Room(), b=Room(), d=Room(1, 4096))
    world.granted(source="d", destination="10.0.2.1")
    second = world.granted(source="10.0.0.1", destination="10.0.2.1")
    assert world.book.reservations[second].link_ids == ("a:to-b", "b:to-c")
    broken = {**world.book.network.links}
    broken["b:to-c"] = dataclasses.replace(broken["b:to-c"], capacity_bps=0)
    whole = world.book.network
    world.book.network = Network(whole.nodes, broken, rooms=whole.rooms)
    engine.relieve(world.book, ["b:to-c"], NOW, TIMING)
    lost = world.book.reservations[second]
    assert lost.service_state == rr.SERVICE_STATE_DEGRADED
    assert "node d has no room for another grant" in lost.reason
    check(world)
    world.release("r1")
    world.now += TIMING.grant_validity_us + TIMING.clock_error_us
    engine.readmit(world.book, second, world.now, TIMING)
    back = world.book.reservations[second]
    assert back.link_ids == ("a:to-d", "d:to-c")
    assert back.granted_bps == MEGA
    check(world)


def test_other_addresses_of_a_node_are_counted() -> None:
    world = World(a=Room(256, 4096))
    first = world.granted(source="a", destination="c")
    selector = FlowSelector(source_prefix="10.0.0.1/32", destination_prefix="10.0.2.1/32")
    outcome = rates.readdressed(world.book.reservations[first], selector, NOW, TIMING)
    engine.apply(world.book, outcome, NOW, TIMING)
    check(world)
    assert world.book.ledger.peak_bps(track_of("a"), NOW, FOREVER_US, Kind.SELECTORS) == 0


def check(world: World) -> None:
    """The profiles of nodes are those of the requests."""
    for node in "abd":
        live = [one for one in world.book.reservations.values() if one.live and node in one.confirming_nodes]
        moments = {world.now, *(one.start_us for one in live), *(one.end_us - S for one in live)}
        for moment in (one for one in moments if one >= world.now):
            there = [one for one in live if one.start_us <= moment < one.end_us]
            found = world.book.ledger.peak_bps(track_of(node), moment, moment + 1, Kind.GRANTS)
            assert found == len(there), (node, moment)
            extra = world.book.ledger.peak_bps(track_of(node), moment, moment + 1, Kind.SELECTORS)
            assert extra == sum(selectors_of(one.selector) - 1 for one in there)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 40), st.booleans(), st.integers(0, 30)),
        max_size=30,
    ),
    most=st.integers(1, 4),
)
def test_no_node_is_promised_more_than_it_holds(steps: list[tuple[int, int, int, bool, int]], most: int) -> None:
    world = World(a=Room(most, 12), b=Room(most + 1, 4096))
    for what, start, length, wide, which in steps:
        world.now += S
        begin = world.now + start * S
        live = [one for one in world.book.reservations.values() if one.live and one.end_us > world.now]
        if what < 2:
            ends = ("a", "c") if wide else ("10.0.0.1", "10.0.1.1")
            bps = 0 if what else MEGA
            world.ask(bps, *ends, start_us=begin if start else 0, end_us=begin + length * S)
        elif live and what == 2:
            world.release(live[which % len(live)].id)
        elif live:
            one = live[which % len(live)]
            end_us = max(one.start_us, world.now) + length * S
            engine.change(world.book, one.id, Change(end_us=end_us), world.now, TIMING)
        for one in list(world.book.reservations.values()):
            due = one.live and (one.end_us <= world.now or (not one.active and one.start_us <= world.now))
            outcome = lifecycle.at_due(one, world.now, TIMING) if due else None
            engine.apply(world.book, outcome, world.now, TIMING)
        check(world)
        for node, limit in world.book.network.rooms.items():
            holders = [one for one in world.book.reservations.values() if one.live and node in one.confirming_nodes]
            for moment in {world.now, *(max(one.start_us, world.now) for one in holders)}:
                there = [selectors_of(one.selector) for one in holders if one.start_us <= moment < one.end_us]
                assert len(there) <= limit.grants
                assert sum(there) <= limit.selectors


def test_a_job_looks_at_nodes_also_when_it_commits_nothing() -> None:
    world = World(a=Room())
    specification = rr.RateRequestSpecification(source="10.0.0.1", destination="10.0.1.1")
    checked = validation.check(specification, world.book.network, NOW)
    job = jobs.Create("r1", "alice", checked, "", TIMING)
    assert jobs.links(job, world.book.network, {}, NOW) == {track_of("a")}
    assert {span[0] for span in jobs.spans(job, world.book.network, {}, NOW)} == {track_of("a")}
    assert not room.is_track("a:to-b")
    assert room.node_of(track_of("a")) == "a"


def test_who_commits_nothing_needs_no_load_of_links() -> None:
    # As a replica that has just started: of profiles it knows what the job said it looks at, nothing else.
    world = World()
    read = {(track_of("a"), kind): LinkProfile(complete=True) for kind in Kind}
    world.book.ledger = Ledger(complete=False, tracks=read)
    assert world.ask(0).granted is not None
