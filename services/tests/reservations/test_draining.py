"""What is released drains: it is in use until its nodes report that it is not, or its validity and the difference of
clocks are over; who needs it waits for that.
"""

from __future__ import annotations

import dataclasses
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from chart.reservations.decisions import engine, in_band, lifecycle, messages, validation
from chart.reservations.decisions.admission import Granted
from chart.reservations.decisions.engine import Book, Decision
from chart.reservations.decisions.jobs import Drained
from chart.reservations.decisions.ledger import Ledger
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.rates import Change
from chart.reservations.decisions.reservation import Reservation, Timing
from chart.reservations.store import rows
from chart.v1 import rate_request_pb2 as rr
from chart.v1.grant_status_pb2 import GrantState, GrantStatus

MEGA = 1_000_000
S = 1_000_000
NOW = 1_770_000_000 * S
TIMING = Timing(clock_error_us=S)
APPLIED, OBSERVED, FAILED, REMOVED = (
    GrantState.GRANT_STATE_APPLIED,
    GrantState.GRANT_STATE_OBSERVED,
    GrantState.GRANT_STATE_FAILED,
    GrantState.GRANT_STATE_REMOVED,
)


def network(capacity: int = 100, *more: tuple[str, str, int]) -> Network:
    links = (("a", "b", capacity), ("b", "c", capacity), *more)
    made = {f"{a}:to-{b}": NetworkLink(f"{a}:to-{b}", a, b, bps * MEGA) for a, b, bps in links}
    return Network(dict.fromkeys(("a", "b", "c", "d"), ()), made)


class World:
    """A book in which time passes; 80 of 100 Mbit/s may be committed on each of two links."""

    def __init__(self, graph: Network | None = None) -> None:
        self.book = Book(graph or network(), Ledger())
        self.now = NOW
        self.number = 0

    def checked(self, mbit: float, **fields: object) -> validation.CheckedRequest:
        asked = rr.RateRequestSpecification(
            source="a",
            destination="c",
            guaranteed_bps=int(mbit * MEGA),
            **fields,  # type: ignore[arg-type]
        )
        return validation.check(asked, self.book.network, self.now)

    def ask(self, mbit: float, **fields: object) -> Decision:
        self.number += 1
        checked = self.checked(mbit, **fields)
        return engine.create(self.book, f"r{self.number}", "alice", checked, self.now, "", TIMING)

    def one(self, identity: str) -> Reservation:
        return self.book.reservations[identity]

    def told_bps(self, identity: str) -> int:
        return messages.grant_record(self.one(identity)).guaranteed_bps

    def release(self, identity: str) -> Reservation:
        outcome = lifecycle.release(self.one(identity), self.now, TIMING)
        done = engine.apply(self.book, outcome, self.now, TIMING)
        assert done is not None
        return done.reservation

    def change(self, identity: str, mbit: float) -> Decision:
        return engine.change(self.book, identity, Change(guaranteed_bps=int(mbit * MEGA)), self.now, TIMING)

    def says(self, identity: str, node: str, state: GrantState.ValueType, generation: int) -> bool:
        """A node reports; whether something drained by it."""
        status = GrantStatus(request_id=identity, node=node, state=state, generation=generation)
        outcome = lifecycle.on_statuses(self.one(identity), [status], self.now, TIMING)
        if outcome is None:
            return False
        self.book.reservations[identity] = outcome.reservation
        parts = tuple((identity, part) for part in outcome.drained)
        Drained(parts).decide(self.book, self.now)
        return bool(parts)

    def enter(self, identity: str) -> bool:
        return engine.enter_force(self.book, identity, self.now, TIMING) is not None


def test_a_released_rate_is_waited_for_until_every_node_removed_it() -> None:
    world = World()
    world.ask(50)
    released = world.release("r1")
    assert released.draining.nodes == ("a", "b")
    assert released.draining.until_us == NOW + 61 * S
    # The rate on links, and a selector's place on nodes.
    parts = {part.link_id: part.rate_bps for part in released.draining.parts}
    assert parts == {"a:to-b": 50 * MEGA, "b:to-c": 50 * MEGA, "node/a": 1, "node/b": 1}
    # Beside what drains 30 more fit; they do not wait.
    assert not world.ask(30).outcomes[0].reservation.waits_until_us
    waits = world.ask(20).outcomes[0].reservation
    assert waits.waits_until_us == NOW + 61 * S
    assert (waits.granted_bps, waits.enforcement, waits.lifecycle) == (
        20 * MEGA,
        rr.ENFORCEMENT_PENDING,
        rr.LIFECYCLE_ACTIVE,
    )
    assert "waits until 2026-" in waits.reason
    assert world.told_bps("r3") == 0
    # Confirmed is only that it has no rate yet.
    assert not world.says("r3", "a", APPLIED, 1)
    assert not world.says("r3", "b", APPLIED, 1)
    assert world.one("r3").enforcement == rr.ENFORCEMENT_PENDING
    assert not world.enter("r3")
    assert not world.says("r1", "a", REMOVED, 1)
    assert world.one("r1").draining.nodes == ("b",)
    assert not world.enter("r3")
    assert world.says("r1", "b", REMOVED, 1)
    assert world.enter("r3")
    assert world.told_bps("r3") == 20 * MEGA
    for node in ("a", "b"):
        world.says("r3", node, APPLIED, 2)
    assert world.one("r3").enforcement == rr.ENFORCEMENT_ENFORCED


def test_validity_and_the_difference_of_clocks_end_it_too() -> None:
    world = World()
    world.ask(80)
    world.now += 10 * S
    world.release("r1")
    world.now += S
    waits = world.ask(80).outcomes[0].reservation
    # The grant was issued ten seconds before its release.
    assert waits.waits_until_us == NOW + 61 * S
    early = lifecycle.at_due(waits, NOW + 61 * S - 1, TIMING)
    assert early is not None
    assert messages.grant_record(early.reservation).guaranteed_bps == 0
    outcome = lifecycle.at_due(waits, NOW + 61 * S, TIMING)
    assert outcome is not None
    assert outcome.grant == "put"
    assert outcome.action == "rate-request.enter-force"
    assert messages.grant_record(outcome.reservation).guaranteed_bps == 80 * MEGA
    world.now = NOW + 62 * S
    assert not world.ask(0.5, minimum_bps=1000).granted
    world.release("r2")


def test_an_older_word_of_a_node_ends_nothing() -> None:
    world = World()
    world.ask(40)
    world.change("r1", 60)
    world.release("r1")
    assert world.one("r1").draining.generation == 2
    for state in (REMOVED, APPLIED, OBSERVED):
        assert not world.says("r1", "a", state, 1)
    assert not world.says("r1", "a", APPLIED, 2)
    assert not world.says("r1", "a", FAILED, 3)
    assert world.one("r1").draining.nodes == ("a", "b")
    world.says("r1", "a", REMOVED, 2)
    assert world.says("r1", "b", REMOVED, 2)


def test_a_lowered_rate_drains_until_the_lower_one_is_applied() -> None:
    world = World()
    world.ask(80)
    world.change("r1", 30)
    assert {part.rate_bps for part in world.one("r1").draining.parts} == {50 * MEGA}
    world.ask(50)
    assert world.one("r2").waits_until_us
    world.says("r1", "a", APPLIED, 2)
    assert world.says("r1", "b", OBSERVED, 2)
    assert world.enter("r2")


def test_a_raised_rate_waits_and_is_what_it_was_meanwhile() -> None:
    world = World()
    world.ask(30)
    world.ask(50)
    for node in ("a", "b"):
        world.says("r1", node, APPLIED, 1)
    world.release("r2")
    world.change("r1", 70)
    one = world.one("r1")
    assert (one.granted_bps, one.in_force_bps, world.told_bps("r1")) == (70 * MEGA, 30 * MEGA, 30 * MEGA)
    assert one.enforcement == rr.ENFORCEMENT_PENDING
    # Lowered to what is in force it waits for nothing.
    world.change("r1", 25)
    assert not world.one("r1").waits_until_us
    assert world.told_bps("r1") == 25 * MEGA


def test_who_takes_the_rate_of_another_waits_for_it() -> None:
    world = World()
    world.ask(70)
    taken = world.ask(70, preemption_priority=3)
    assert taken.losers == ("r1",)
    assert world.told_bps("r1") == 0
    assert world.one("r2").waits_until_us == NOW + 61 * S
    for node in ("a", "b"):
        world.says("r1", node, APPLIED, 2)
    assert world.enter("r2")
    # It comes back to what drains of itself without waiting for itself.
    world.release("r2")
    for node in ("a", "b"):
        world.says("r2", node, REMOVED, 2)
    assert engine.readmit(world.book, "r1", world.now, TIMING).outcomes
    assert not world.one("r1").waits_until_us


def test_who_waited_and_was_preempted_waits_again_when_it_comes_back() -> None:
    """What drains of a request that never came into force was applied nowhere."""
    world = World()
    world.ask(70)
    for node in ("a", "b"):
        world.says("r1", node, APPLIED, 1)
    world.ask(60, preemption_priority=2)
    world.ask(60, preemption_priority=3)
    assert world.told_bps("r1") == world.told_bps("r2") == world.told_bps("r3") == 0
    world.release("r3")
    assert engine.readmit(world.book, "r2", world.now, TIMING).outcomes
    one = world.one("r2")
    assert (one.granted_bps, world.told_bps("r2")) == (60 * MEGA, 0)
    assert one.waits_until_us == NOW + 61 * S
    for node in ("a", "b"):
        world.says("r1", node, APPLIED, 2)
        world.says("r3", node, REMOVED, 1)
    assert world.enter("r2")
    assert world.told_bps("r2") == 60 * MEGA


def test_what_comes_back_does_not_wait_for_itself() -> None:
    world = World()
    world.ask(70)
    world.change("r1", 10)
    world.change("r1", 75)
    one = world.one("r1")
    assert one.waits_until_us == 0
    assert one.draining.parts == ()
    assert not world.book.ledger.drains("a:to-b", world.now)


def test_a_path_that_is_left_drains_where_it_was() -> None:
    graph = network(100, ("a", "d", 100), ("d", "c", 100))
    world = World(graph)
    world.ask(60)
    path = world.one("r1").link_ids
    gone = {name: link for name, link in graph.links.items() if name != path[1]}
    world.book.network = Network(graph.nodes, gone)
    engine.relieve(world.book, [path[1]], world.now, TIMING)
    moved = world.one("r1")
    assert moved.link_ids != path
    assert {part.link_id for part in moved.draining.parts} == {*path, f"node/{path[1].split(':')[0]}"}
    assert moved.draining.nodes[0] == "a"
    # The new path is empty: nothing is waited for; the node that is left says that it removed the grant.
    assert not moved.waits_until_us
    world.says("r1", "a", APPLIED, 2)
    left = next(node for node in moved.draining.nodes if node != "a")
    assert world.says("r1", left, REMOVED, 1)


def test_who_starts_waits_for_what_ended_when_clocks_may_differ() -> None:
    world = World()
    world.ask(80, end_us=NOW + 100 * S)
    assert world.ask(80, start_us=NOW + 100 * S).granted
    world.now = NOW + 100 * S
    started = lifecycle.at_due(world.one("r2"), world.now, TIMING)
    done = engine.apply(world.book, started, world.now, TIMING)
    assert done is not None
    assert done.reservation.waits_until_us == world.now + S
    assert world.told_bps("r2") == 0


def test_maximum_rates_and_requests_without_a_grant_drain_nothing() -> None:
    world = World()
    world.ask(80, start_us=NOW + 100 * S)
    assert world.release("r1").draining.parts == ()
    world.ask(80, hold=True)
    assert world.release("r2").draining.parts == ()
    assert not world.ask(80).outcomes[0].reservation.waits_until_us


def test_a_lease_is_given_of_what_nobody_uses() -> None:
    world = World()
    world.ask(79)
    world.release("r1")
    link = world.book.network.links["a:to-b"]
    lease = in_band.renew(link, world.book.ledger, None, 0, world.now, in_band.LeaseRule())
    assert lease is not None
    assert lease.rate_bps == MEGA


def test_what_drains_is_stored_and_read() -> None:
    world = World()
    world.ask(50)
    released = world.release("r1")
    assert rows.draining_of(rows.draining_text(released.draining)) == released.draining
    drains = world.book.ledger.draining["a:to-b"]
    assert rows.drains_of("a:to-b", json.loads(rows.drains_text(drains))) == drains
    assert rows.draining_text(dataclasses.replace(released.draining, parts=())) == ""


STEPS = st.lists(st.tuples(st.integers(0, 7), st.integers(1, 40), st.integers(0, 9)), min_size=5, max_size=60)


@given(STEPS)
@settings(max_examples=120, deadline=None)
def test_what_nodes_may_apply_always_fits(steps: list[tuple[int, int, int]]) -> None:
    """Agents that are cut off apply the grants of the last minute, whatever came after; preview says what comes."""
    world = World()
    # (link, request): what may be applied, until when.
    applied: dict[tuple[str, str], list[tuple[int, int, int]]] = {}

    def publish() -> None:
        for one in world.book.reservations.values():
            record = messages.grant_record(one)
            if (
                one.active
                and one.generation
                and not any(entry[0] == one.generation for entry in applied.get((one.link_ids[0], one.id), ()))
            ):
                for link_id in one.link_ids:
                    kept = (one.generation, record.guaranteed_bps, one.grant_valid_until_us + S)
                    applied.setdefault((link_id, one.id), []).append(kept)
        for link in world.book.network.links.values():
            worst = sum(
                max((bps for _, bps, until in entries if until > world.now), default=0)
                for (link_id, _), entries in applied.items()
                if link_id == link.id
            )
            assert worst <= link.admissible_bps

    for kind, amount, which in steps:
        identity = f"r{which + 1}"
        live = identity in world.book.reservations and world.one(identity).live
        if kind <= 2:
            ask = world.checked(amount, preemption_priority=kind).ask
            scratch = Book(world.book.network, _copy(world.book.ledger), dict(world.book.reservations))
            previewed = engine.decide(scratch, ask, world.now)
            assert previewed is not None
            said_us = 0
            granted, losers = previewed
            if isinstance(granted, Granted):
                said_us = engine.preview_wait_us(scratch, ask, granted, losers, None, world.now, TIMING)
            made = world.ask(amount, preemption_priority=kind)
            assert bool(made.granted) == isinstance(granted, Granted)
            if made.granted:
                assert made.outcomes[-1].reservation.waits_until_us == said_us
        elif kind == 3 and live:
            world.release(identity)
        elif kind == 4 and live:
            world.change(identity, amount)
        elif kind == 5 and live:
            engine.readmit(world.book, identity, world.now, TIMING)
        elif kind == 6 and identity in world.book.reservations:
            # A node may report what it applies, and then it applies nothing older.
            one = world.one(identity)
            for node in one.confirming_nodes:
                world.says(identity, node, APPLIED if one.live else REMOVED, one.generation)
            for link_id in one.link_ids:
                entries = applied.get((link_id, identity), [])
                entries[:] = [entry for entry in entries if one.live and entry[0] == one.generation]
        elif kind == 7:
            world.now += amount * S
            for one in list(world.book.reservations.values()):
                outcome = lifecycle.at_due(one, world.now, TIMING)
                if outcome is not None and not outcome.forget:
                    engine.apply(world.book, outcome, world.now, TIMING)
        for one in list(world.book.reservations.values()):
            if one.waits_until_us:
                world.enter(one.id)
        publish()


def _copy(ledger: Ledger) -> Ledger:
    made = Ledger()
    for (link_id, kind), track in ledger.tracks.items():
        for key, block in track._blocks.items():
            made.track(link_id, kind).put(
                key, None if block is None else type(block)(list(block.base), list(block.peak))
            )
    made.draining = {link_id: dict(found) for link_id, found in ledger.draining.items()}
    return made
