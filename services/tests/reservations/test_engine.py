"""Admission of many: preview equals commit, nothing over-commits, the lowest and latest lose and get it back."""

from __future__ import annotations

import dataclasses

from hypothesis import given, settings
from hypothesis import strategies as st

from chart.reservations.decisions import engine, in_band, lifecycle, messages, rates, validation
from chart.reservations.decisions.admission import Granted, Refused
from chart.reservations.decisions.engine import Book, Decision
from chart.reservations.decisions.ledger import Kind, Ledger
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.rates import Change
from chart.reservations.decisions.reservation import Reservation, Timing
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1 import rate_request_pb2 as rr
from chart.v1.flow_grant_pb2 import SERVICE_TYPE_MAXIMUM

MEGA = 1_000_000
S = 1_000_000
NOW = 1_770_000_000 * S
TIMING = Timing()


def network(*links: tuple[str, str, int]) -> Network:
    made = {f"{a}:to-{b}": NetworkLink(f"{a}:to-{b}", a, b, capacity * MEGA) for a, b, capacity in links}
    return Network(dict.fromkeys({name for a, b, _ in links for name in (a, b)}, ()), made)


LINE = network(("a", "b", 100), ("b", "c", 100))
DIAMOND = network(("a", "b", 100), ("b", "d", 100), ("a", "c", 50), ("c", "d", 50))


class World:
    """A book with a name for everything that is asked."""

    def __init__(self, graph: Network = LINE, destination: str = "c") -> None:
        self.book = Book(graph, Ledger())
        self.destination = destination
        self.number = 0
        self.now = NOW

    def ask(self, mbit: float, **fields: object) -> Decision:
        self.number += 1
        specification = rr.RateRequestSpecification(
            source="a",
            destination=self.destination,
            guaranteed_bps=int(mbit * MEGA),
            **fields,  # type: ignore[arg-type]
        )
        checked = validation.check(specification, self.book.network, self.now)
        return engine.create(self.book, f"r{self.number}", "alice", checked, self.now + self.number, "", TIMING)

    def one(self, identity: str) -> Reservation:
        return self.book.reservations[identity]

    def release(self, identity: str) -> None:
        assert (
            engine.apply(self.book, lifecycle.release(self.one(identity), self.now, TIMING), self.now, TIMING)
            is not None
        )

    def check(self) -> None:
        """What the ledger says is what the live requests hold, and no link has more than it may."""
        for link in self.book.network.links.values():
            held = [c for r in self.book.reservations.values() if r.live for c in r.commitments if c.link_id == link.id]
            for kind in Kind:
                mine = Ledger()
                mine.add(c for c in held if c.kind == kind and c.end_us > self.now)
                for start, end in ((self.now, FOREVER_US), (self.now + 100 * S, self.now + 400 * S)):
                    peak = self.book.ledger.peak_bps(link.id, start, end, kind)
                    assert peak == mine.peak_bps(link.id, start, end, kind)
            assert self.book.ledger.peak_bps(link.id, self.now, FOREVER_US) <= link.admissible_bps


def test_higher_rank_takes_from_the_lowest_latest_and_it_returns() -> None:
    world = World()
    for priority in (1, 0, 0):
        assert world.ask(25, preemption_priority=priority).granted
    decision = world.ask(30, preemption_priority=5)
    assert decision.losers == ("r3",)
    lost = world.one("r3")
    assert (lost.service_state, lost.granted_bps, lost.commitments) == (rr.SERVICE_STATE_PREEMPTED, 0, ())
    assert "higher rank" in lost.reason
    assert lost.lacking
    assert lost.content_generation == lost.generation == 2
    record = messages.grant_record(lost)
    assert record.guaranteed_bps == 0
    assert record.with_available_rate
    world.check()
    assert not engine.readmit(world.book, "r3", world.now, TIMING).outcomes
    world.release("r4")
    back = engine.readmit(world.book, "r3", world.now + S, TIMING)
    assert [one.reservation.id for one in back.outcomes] == ["r3"]
    again = world.one("r3")
    assert (again.service_state, again.granted_bps) == (rr.SERVICE_STATE_GRANTED, 25 * MEGA)
    assert not again.lacking
    assert [one.granted_bps for one in again.history] == [25 * MEGA, 0]
    world.check()


def test_nobody_loses_who_need_not_and_equal_rank_never() -> None:
    world = World()
    assert world.ask(10).granted
    assert world.ask(60, preemption_priority=1).granted
    decision = world.ask(50, preemption_priority=2)
    # Taking the first alone would not do, taking the second alone does.
    assert decision.losers == ("r2",)
    refused = world.ask(50, preemption_priority=2)
    assert refused.refused is not None
    assert refused.refused.ceiling_bps == 20 * MEGA
    world.check()


def test_background_gives_way_by_as_much_as_is_wanted_and_grows_again() -> None:
    world = World()
    bulk = world.ask(80, traffic_class=rr.TRAFFIC_CLASS_BACKGROUND, minimum_bps=5 * MEGA)
    assert bulk.granted is not None
    assert world.ask(30).losers == ("r1",)
    one = world.one("r1")
    assert (one.granted_bps, one.service_state) == (50 * MEGA, rr.SERVICE_STATE_GRANTED)
    assert world.ask(47).losers == ("r1",)
    one = world.one("r1")
    assert (one.granted_bps, one.service_state) == (0, rr.SERVICE_STATE_PREEMPTED), "less than its minimum is none"
    world.check()
    world.release("r3")
    assert engine.readmit(world.book, "r1", world.now, TIMING).outcomes
    assert world.one("r1").granted_bps == 50 * MEGA
    world.release("r2")
    assert engine.readmit(world.book, "r1", world.now, TIMING).outcomes
    assert world.one("r1").granted_bps == 80 * MEGA
    world.check()


def test_maximum_rates_may_be_oversubscribed_by_the_factor_and_no_more() -> None:
    world = World(
        dataclasses.replace(
            LINE, links={k: dataclasses.replace(v, oversubscription=2.0) for k, v in LINE.links.items()}
        )
    )
    for _ in range(2):
        made = world.ask(0, service=SERVICE_TYPE_MAXIMUM, maximum_bps=60 * MEGA)
        assert made.outcomes[0].reservation.granted_bps == 0
    refused = world.ask(0, service=SERVICE_TYPE_MAXIMUM, maximum_bps=60 * MEGA).refused
    assert refused is not None
    assert (refused.field, refused.ceiling_bps) == ("maximum_bps", 40 * MEGA)
    assert world.ask(40).granted
    world.check()


def test_a_failed_link_moves_who_fits_elsewhere_and_degrades_the_lowest() -> None:
    world = World(DIAMOND, "d")
    assert world.ask(30, preemption_priority=3).granted
    assert world.ask(20).granted
    assert world.ask(25, preemption_priority=1).granted
    first = world.one("r1").link_ids
    assert first == ("a:to-b", "b:to-d")
    links = {k: dataclasses.replace(v, capacity_bps=0) if k == "b:to-d" else v for k, v in DIAMOND.links.items()}
    world.book.network = Network(DIAMOND.nodes, links)
    assert engine.overcommitted(world.book, ["a:to-b", "b:to-d"], world.now) == ["b:to-d"]
    decision = engine.relieve(world.book, ["b:to-d"], world.now, TIMING)
    moved = world.one("r1")
    assert moved.link_ids == ("a:to-c", "c:to-d")
    assert moved.confirming_nodes == ("a", "c")
    assert moved.service_state == rr.SERVICE_STATE_GRANTED
    states = {one.reservation.id: one.reservation.service_state for one in decision.outcomes}
    assert rr.SERVICE_STATE_DEGRADED in states.values()
    assert all(engine.overcommitted(world.book, world.book.network.links, world.now) == [] for _ in (1,))
    world.book.network = DIAMOND
    for identity in sorted(world.book.reservations):
        if world.one(identity).lacking:
            engine.readmit(world.book, identity, world.now, TIMING)
    assert all(one.service_state == rr.SERVICE_STATE_GRANTED for one in world.book.reservations.values())
    world.check()


def test_change_in_service_raises_lowers_extends_and_refuses_without_touching() -> None:
    world = World()
    assert world.ask(30, duration_us=1000 * S).granted
    assert world.ask(40, start_us=NOW + 500 * S, end_us=NOW + 2000 * S).granted
    before = world.one("r1")
    refused = engine.change(world.book, "r1", Change(guaranteed_bps=50 * MEGA), world.now, TIMING)
    assert refused.refused is not None
    assert refused.refused.ceiling_bps == 40 * MEGA
    assert world.one("r1") is before
    raised = engine.change(world.book, "r1", Change(guaranteed_bps=40 * MEGA, end_us=FOREVER_US), world.now, TIMING)
    assert raised.outcomes[-1].grant == "put"
    one = world.one("r1")
    assert (one.granted_bps, one.end_us, one.link_ids) == (40 * MEGA, FOREVER_US, before.link_ids)
    assert one.content_generation == one.generation > before.generation
    assert one.specification.end_us == 0
    lowered = engine.change(world.book, "r1", Change(guaranteed_bps=MEGA, tags={"x": "y"}), world.now, TIMING)
    assert lowered.granted is not None
    words = engine.change(world.book, "r1", Change(description="new"), world.now, TIMING)
    assert words.outcomes[0].grant == ""
    assert world.one("r1").specification.description == "new"
    world.check()


def test_hold_commits_in_time_or_expires() -> None:
    world = World()
    held = world.ask(60, hold=True).outcomes[0]
    assert (held.reservation.lifecycle, held.grant) == (rr.LIFECYCLE_HELD, "")
    assert world.ask(60).refused is not None, "what is held is committed"
    soon = NOW + 899 * S
    assert lifecycle.at_due(held.reservation, soon, TIMING) is None
    committed = lifecycle.commit(held.reservation, soon, TIMING)
    assert committed is not None
    assert (committed.reservation.lifecycle, committed.grant) == (rr.LIFECYCLE_ACTIVE, "put")
    late = NOW + 901 * S
    assert lifecycle.commit(held.reservation, late, TIMING) is None
    expired = engine.apply(world.book, lifecycle.at_due(held.reservation, late, TIMING), late, TIMING)
    assert expired is not None
    assert expired.reservation.lifecycle == rr.LIFECYCLE_EXPIRED
    assert world.ask(60).granted
    later = world.ask(1, hold=True, start_us=NOW + 2000 * S).outcomes[0]
    waiting = lifecycle.commit(later.reservation, NOW + S, TIMING)
    assert waiting is not None
    assert (waiting.reservation.lifecycle, waiting.reservation.due_at_us) == (rr.LIFECYCLE_RESERVED, NOW + 2000 * S)


def test_avoid_takes_the_other_path_and_says_so_when_there_is_none() -> None:
    world = World(DIAMOND, "d")
    assert world.ask(1, avoid=["b"]).outcomes[0].reservation.link_ids == ("a:to-c", "c:to-d")
    refused = world.ask(1, avoid=["b", "c:to-d"]).refused
    assert refused is not None
    assert (refused.code, refused.field) == ("no-path", "avoid")


def test_leases_take_what_is_free_and_make_room_for_a_start() -> None:
    world = World()
    link = world.book.network.links["a:to-b"]
    rule = in_band.LeaseRule()
    lease = in_band.renew(link, world.book.ledger, None, 0, NOW, rule)
    assert lease is not None
    assert (lease.rate_bps, lease.valid_until_us) == (8 * MEGA, NOW + 20 * S)
    assert world.ask(80).refused is not None
    assert world.ask(80, start_us=NOW + 30 * S).granted
    assert not in_band.due(lease, 0, NOW + 9 * S)
    assert in_band.due(lease, 0, NOW + 10 * S)
    assert in_band.due(lease, 7 * MEGA, NOW + 3 * S)
    cut = in_band.renew(link, world.book.ledger, lease, 0, NOW + 10 * S, rule)
    assert cut is not None
    assert cut.valid_until_us + 4 * S <= NOW + 30 * S
    assert world.book.ledger.peak_bps("a:to-b", NOW, FOREVER_US) == link.admissible_bps
    gone = in_band.renew(link, world.book.ledger, cut, 0, NOW + 27 * S, rule)
    assert gone is None or gone.rate_bps == 0


def test_what_is_left_of_a_lease_is_told_while_it_stays_committed() -> None:
    world = World()
    link, ledger, rule = world.book.network.links["a:to-b"], world.book.ledger, in_band.LeaseRule()
    lease = in_band.renew(link, ledger, None, 0, NOW, rule)
    assert lease is not None
    assert (lease.usable_bps(NOW), lease.draining(NOW)) == (8 * MEGA, (0, 0))
    # Its link is cut: nothing may be drawn, and an agent that does not hear of that may draw until the lease is over.
    down = in_band.renew(dataclasses.replace(link, capacity_bps=0), ledger, lease, 0, NOW + 5 * S, rule)
    assert down is not None
    assert (down.usable_bps(NOW + 5 * S), down.draining(NOW + 5 * S)) == (0, (8 * MEGA, NOW + 24 * S))
    assert ledger.peak_bps("a:to-b", NOW + 5 * S, FOREVER_US) == 8 * MEGA
    assert down.draining(NOW + 24 * S) == (0, 0)
    # Back with less: the rest of the old one drains, and no second counts both.
    small = dataclasses.replace(rule, idle_share=0.01)
    back = in_band.renew(link, ledger, down, 0, NOW + 6 * S + 300_000, small)
    assert back is not None
    assert (back.usable_bps(NOW + 7 * S), back.draining(NOW + 7 * S)) == (
        MEGA * 8 // 10,
        (MEGA * 72 // 10, NOW + 24 * S),
    )
    assert ledger.peak_bps("a:to-b", NOW + 7 * S, FOREVER_US) == 8 * MEGA
    # Over, it drains until nobody can have a commitment by it.
    assert back.draining(back.valid_until_us) == (MEGA * 8 // 10, back.pieces[-1][1])


def test_pieces_of_a_lease_that_do_not_end_on_whole_seconds_are_never_counted_twice() -> None:
    world = World()
    link, ledger, rule = world.book.network.links["a:to-b"], world.book.ledger, in_band.LeaseRule()
    large = in_band.renew(link, ledger, None, 20 * MEGA, NOW + 400_000, rule)
    small = in_band.renew(link, ledger, large, 0, NOW + 700_000 + 5 * S, rule)
    assert large is not None
    assert small is not None
    assert len(small.pieces) == 2
    for second in range(40):
        peak = ledger.peak_bps("a:to-b", NOW + second * S, NOW + (second + 1) * S)
        assert peak <= large.rate_bps


steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "release", "change", "readmit", "shrink", "lease", "hold"]),
        st.integers(1, 60),
        st.integers(0, 3),
        st.integers(0, 300),
        st.integers(0, 400),
        st.booleans(),
    ),
    max_size=40,
)


def preview_of_change(world: World, chosen: str, change: Change) -> tuple[Granted | Refused, tuple[str, ...]]:
    """As the service looks: without what the request has."""
    book, before = world.book, world.book.reservations.pop(chosen)
    book.ledger.remove(before.commitments, world.now)
    ask = engine.ask_for_change(before, rates.asked_anew(before, change), world.now)
    found = engine.decide(book, ask, world.now)
    book.ledger.add(one for one in before.commitments if one.end_us > world.now)
    book.reservations[chosen] = before
    assert found is not None
    return found[0], tuple(one.reservation.id for one in found[1])


@given(steps)
@settings(max_examples=250, deadline=None)
def test_whatever_is_asked_nothing_is_over_committed_and_previews_are_true(
    script: list[tuple[str, int, int, int, int, bool]],
) -> None:
    world = World(DIAMOND, "d")
    for what, mbit, priority, start, length, background in script:
        world.now += S
        book = world.book
        alive = sorted(identity for identity, one in book.reservations.items() if one.live)
        chosen = alive[mbit % len(alive)] if alive else None
        if what in ("ask", "hold"):
            fields: dict[str, object] = {"preemption_priority": 0 if background else priority, "hold": what == "hold"}
            if background:
                fields |= {"traffic_class": rr.TRAFFIC_CLASS_BACKGROUND}
            if start:
                fields["start_us"] = world.now + start * S
            if length:
                fields["duration_us"] = length * S
            specification = rr.RateRequestSpecification(
                source="a",
                destination="d",
                guaranteed_bps=mbit * MEGA,
                **fields,  # type: ignore[arg-type]
            )
            ask = validation.check(specification, book.network, world.now).ask
            peaks = {one: book.ledger.peak_bps(one, world.now, FOREVER_US) for one in book.network.links}
            previewed = engine.decide(book, ask, world.now)
            assert previewed is not None
            assert peaks == {one: book.ledger.peak_bps(one, world.now, FOREVER_US) for one in book.network.links}
            made = world.ask(mbit, **fields)
            if isinstance(previewed[0], Granted):
                assert made.granted == previewed[0]
                assert made.losers == tuple(one.reservation.id for one in previewed[1])
                assert all(world.one(one).service_reason for one in made.losers)
            else:
                assert made.refused == previewed[0]
                assert isinstance(previewed[0], Refused)
        elif what == "release" and chosen:
            world.release(chosen)
        elif what == "change" and chosen:
            change = Change(guaranteed_bps=mbit * MEGA)
            looked = preview_of_change(world, chosen, change)
            made = engine.change(book, chosen, change, world.now, TIMING)
            assert looked == (made.granted or made.refused, made.losers)
        elif what == "readmit" and chosen:
            engine.readmit(book, chosen, world.now, TIMING)
        elif what == "shrink":
            links = {k: dataclasses.replace(v, capacity_bps=(mbit + 40) * MEGA) for k, v in book.network.links.items()}
            book.network = Network(book.network.nodes, links)
            engine.relieve(book, engine.overcommitted(book, links, world.now), world.now, TIMING)
        world.check()
