"""Routers that traces found, as milestones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chart.inference.landmarks import LandmarkBounds
from chart.inference.milestones import NO_BOUND, milestone_features
from chart.inference.observations import Floats, Observations, Routers, observe
from chart.inference.routers import MOST_HELD, MOST_WAYS, RouterBook, usable
from chart.inference.service import Book
from chart.v1 import measurement_pb2, topology_pb2

NODES = ["a", "b", "c", "d"]


def trace(
    source: str, destination: str, *hops: tuple[str, float], at_us: int = 10, metric: str = "rtt_us"
) -> measurement_pb2.Measurement:
    found = [
        measurement_pb2.Hop(distance=number, address=address, rtt_us=rtt_us)
        for number, (address, rtt_us) in enumerate(hops, 1)
    ]
    return measurement_pb2.Measurement(
        source_node=source,
        destination_node=destination,
        sensor="traceroute",
        metric=metric,
        value=50_000.0,
        measured_at_us=at_us,
        hops=found,
    )


def test_routers_that_two_nodes_saw_are_a_table() -> None:
    book = RouterBook()
    assert book.note(trace("a", "c", ("10.0.0.1", 400.0), ("10.0.0.9", 5000.0), ("10.0.3.1", 9000.0)), 99, {"10.0.3.1"})
    assert book.note(trace("b", "c", ("10.0.0.1", 600.0)), 99, ())
    assert book.note(trace("b", "d", ("10.0.0.1", 550.0)), 99, ())
    table = book.table(NODES)
    assert table is not None
    np.testing.assert_array_equal(table.values, [[400.0], [550.0], [np.nan], [np.nan]])
    assert table.only.tolist() == [[2], [-1], [-1], [-1]]
    assert not book.note(replace_error(trace("a", "c", ("10.0.0.1", 1.0))), 99, ())
    assert not book.note(trace("a", "a", ("10.0.0.1", 1.0)), 99, ())
    assert not book.note(trace("a", "c", ("10.0.0.1", float("nan")), ("", 3.0)), 99, ())
    assert not book.note(trace("a", "c", ("10.0.0.1", 1.0), at_us=5), 99, ()), "older"
    book.remove_node("b")
    assert book.table(NODES) is None


def replace_error(measurement: measurement_pb2.Measurement) -> measurement_pb2.Measurement:
    measurement.error = "unreachable: nobody answers"
    return measurement


def test_the_book_of_routers_is_bounded_and_forgets() -> None:
    book = RouterBook()
    for number in range(MOST_HELD + 50):
        book.note(trace("a", "b", (f"r{number}", 5.0)), 99, ())
    for node in ("a", "b"):
        book.note(trace(node, "c", (f"r{MOST_HELD}", 5.0), ("r1", 6.0)), 99, ())
    for number in range(3 * MOST_WAYS):
        book.note(trace("a", f"far{number}", ("r1", 6.0), at_us=20), 99, ())
    table = book.table(NODES)
    assert table is not None
    assert table.values.shape == (4, 2), "the first ones gave way, two are common"
    assert book.forget(15)
    assert book.table(NODES) is None
    assert not book.forget(15)


def world(count: int, seed: int) -> tuple[Floats, Routers]:
    """Round-trip times of nodes behind routers on a plain, and what they see of the nearest routers."""
    random = np.random.default_rng(seed)
    places = random.uniform(0, 100, (12, 2))
    of = random.integers(0, 12, count)
    access = random.exponential(2, count) + 0.3
    between = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    truth = between[np.ix_(of, of)] + access[:, None] + access[None]
    seen = access[:, None] + between[of]
    return truth, Routers(seen, np.full(seen.shape, -1, dtype=np.intp))


def few(count: int, seed: int, routers: Routers | None) -> tuple[Floats, Observations]:
    truth, found = world(count, seed)
    values = np.full(truth.shape, np.nan)
    for mark in range(3):
        values[mark] = truth[mark]
        values[:, mark] = truth[:, mark]
    known = observe([f"n{n:02}" for n in range(count)], values, symmetric=True, floor=0.1, routers=routers and found)
    return truth, known


def test_routers_make_estimates_better() -> None:
    def error(with_routers: bool) -> float:
        _, found = world(40, 3)
        truth, known = few(40, 3, found if with_routers else None)
        said = np.exp(LandmarkBounds().complete(known, 0).logs)
        unseen = ~known.measured & ~np.eye(40, dtype=bool)
        return float(np.median(np.abs(said[unseen] / truth[unseen] - 1)))

    assert error(with_routers=True) < 0.5 * error(with_routers=False)


def test_a_trace_between_two_nodes_says_nothing_of_their_own_pair() -> None:
    # Router 0 was seen by node 0 on the way to node 1 alone, and by nodes 1 and 2 on their ways to node 3.
    values = np.array([[9.0], [1.0], [2.0], [np.nan]])
    routers = Routers(values, np.array([[1], [3], [3], [-1]], dtype=np.intp))
    matrix = np.full((4, 4), np.nan)
    matrix[0, 3] = matrix[3, 0] = 30.0
    known = observe(NODES, matrix, symmetric=True, floor=0.1, routers=routers)
    rows, columns = known.pairs()
    least = milestone_features(known, np.array([3]), rows, columns, np.zeros(len(rows)))[0]
    told = dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), least, strict=True))
    assert told[0, 1] == NO_BOUND
    assert told[0, 2] == pytest.approx(np.log(11.0))
    assert told[1, 2] == pytest.approx(np.log(3.0))


def test_an_address_of_several_machines_is_not_believed() -> None:
    values = np.array([[1.0], [1.0], [1.0], [np.nan]])
    routers = Routers(values, np.full((4, 1), -1, dtype=np.intp))
    matrix = np.full((4, 4), np.nan)
    known = observe(NODES, matrix, symmetric=True, floor=0.1, routers=routers)
    assert len(list(usable(known))) == 1
    matrix[0, 1] = matrix[1, 0] = 80.0
    assert not list(usable(replace(known, values=matrix)))


def test_traces_reach_the_observations_of_round_trip_times() -> None:
    book = Book(most_nodes=10, most_metrics=4)
    book.note(
        "c", topology_pb2.TopologyEntity(node=topology_pb2.Node(id="c", addresses=["10.0.3.1/32"], tags={"group": "x"}))
    )
    for node, rtt_us in (("a", 400.0), ("b", 700.0)):
        one = trace(node, "c", ("10.0.0.1", rtt_us), ("10.0.3.1", 9000.0))
        assert book.take(one, 99) == "rtt_us"
        assert book.take(trace(node, "c", ("10.0.0.1", rtt_us), metric="loss_ratio"), 99) == "loss_ratio"
    seen = book.observations("rtt_us")
    assert seen is not None
    assert seen.routers is not None
    assert seen.routers.values[:2, 0].tolist() == [400.0, 700.0]
    assert seen.routers.values.shape == (3, 1), "the destination is no router"
    loss = book.observations("loss_ratio")
    assert loss is not None
    assert loss.routers is None
    assert book.forget(50) == {"rtt_us", "loss_ratio"}
    book.take(measurement_pb2.Measurement(source_node="a", destination_node="b", metric="rtt_us", value=5.0), 99)
    again = book.observations("rtt_us")
    assert again is not None
    assert again.routers is None
