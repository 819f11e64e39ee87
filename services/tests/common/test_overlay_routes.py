"""Next hops of overlay nodes: the shortest way first, alternates that do not lead back."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chart.common.overlay_routes import (
    COLOURS,
    NEXT_HOPS_MAX,
    OverlayLink,
    coloured_paths,
    distances,
    diverse_paths,
    graph,
    hops_at,
    next_hops,
)


def both(*edges: tuple[str, str, float]) -> list[OverlayLink]:
    return [link for a, b, cost in edges for link in (OverlayLink(a, b, cost), OverlayLink(b, a, cost))]


TWO_PATHS = graph(both(("in", "north", 10), ("north", "out", 1), ("in", "south", 11), ("south", "out", 1)))
NODES = "abcdef"


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[str, str, float]]:
    pairs = list(itertools.combinations(NODES, 2))
    chosen = draw(st.lists(st.sampled_from(pairs), min_size=1, unique=True))
    return [(a, b, draw(st.integers(1, 9))) for a, b in chosen]


def travel(
    tables: Mapping[str, Mapping[str, Sequence[str]]], source: str, sink: str, cut: frozenset[str] = frozenset()
) -> list[str]:
    """The nodes that a packet passes, by the rule of the kernel's program, while one link is cut; bounded."""
    way, before = [source], ""
    while way[-1] != sink and len(way) <= 4 * len(NODES):
        node = way[-1]
        alive = [one for one in tables[node].get(sink, ()) if frozenset((node, one)) != cut]
        onward = [one for one in alive if one != before] or alive
        if not onward:
            break
        before = node
        way.append(onward[0])
    return way


def test_the_shorter_way_is_first_and_the_other_stays() -> None:
    assert next_hops(TWO_PATHS, "in") == {
        "north": ("north", "south"),
        "out": ("north", "south"),
        "south": ("south", "north"),
    }


def test_a_node_whose_link_failed_turns_packets_back() -> None:
    # From north the only other way to out leads back to in, which then takes south.
    assert next_hops(TWO_PATHS, "north")["out"] == ("out", "in")
    tables = {node: next_hops(TWO_PATHS, node) for node in TWO_PATHS}
    assert travel(tables, "in", "out", frozenset(("north", "out"))) == ["in", "north", "in", "south", "out"]


def test_who_can_only_lead_back_is_no_alternate() -> None:
    costs = graph(both(("a", "b", 1), ("a", "c", 1)))
    assert next_hops(costs, "a") == {"b": ("b",), "c": ("c",)}


def test_no_more_than_the_kernels_table_holds() -> None:
    costs = graph(both(*(("a", f"m{i}", i + 1) for i in range(8)), *((f"m{i}", "z", 1) for i in range(8))))
    assert next_hops(costs, "a")["z"] == ("m0", "m1", "m2", "m3")
    assert len(next_hops(costs, "a")["z"]) == NEXT_HOPS_MAX


def test_of_equal_ways_the_order_is_by_name() -> None:
    costs = graph(both(("a", "y", 1), ("a", "x", 1), ("y", "z", 1), ("x", "z", 1)))
    assert next_hops(costs, "a")["z"] == ("x", "y")


def test_links_of_one_direction_count_in_it_only() -> None:
    costs = graph([OverlayLink("a", "b", 1)])
    assert next_hops(costs, "a") == {"b": ("b",)}
    assert next_hops(costs, "b") == {}


@pytest.mark.parametrize("cost", [0, -1, float("inf"), float("nan")])
def test_a_cost_that_is_none_is_refused(cost: float) -> None:
    with pytest.raises(ValueError, match="overlay link a to b: the cost is to be above 0"):
        graph([OverlayLink("a", "b", cost)])


@given(graphs())
def test_packets_take_the_shortest_way(edges: list[tuple[str, str, float]]) -> None:
    costs = graph(both(*edges))
    tables = {node: next_hops(costs, node) for node in costs}
    for source, sink in itertools.permutations(costs, 2):
        least = distances(costs, source, "").get(sink)
        if least is None:
            assert sink not in tables[source]
            continue
        way = travel(tables, source, sink)
        assert way[-1] == sink
        assert sum(costs[a][b] for a, b in itertools.pairwise(way)) == least


@given(st.integers(3, 6), st.data())
def test_in_a_ring_any_cut_is_passed(size: int, data: st.DataObject) -> None:
    ring = [(NODES[i], NODES[(i + 1) % size], data.draw(st.integers(1, 9))) for i in range(size)]
    costs = graph(both(*ring))
    tables = {node: next_hops(costs, node) for node in costs}
    cut = frozenset(data.draw(st.sampled_from(ring))[:2])
    for source, sink in itertools.permutations(costs, 2):
        assert travel(tables, source, sink, cut)[-1] == sink


def test_paths_are_diverse_and_the_cheapest_is_first() -> None:
    assert diverse_paths(TWO_PATHS, "in", "out") == [("in", "north", "out"), ("in", "south", "out")]
    assert diverse_paths(TWO_PATHS, "in", "out", 1) == [("in", "north", "out")]
    assert diverse_paths(graph(both(("a", "b", 1))), "a", "b") == [("a", "b")]
    assert diverse_paths(TWO_PATHS, "in", "elsewhere") == []


def test_a_node_between_is_shared_only_where_it_must_be() -> None:
    # a - m - z and a - n - o - z, with a short cut m - o: the second path does not pass m.
    costs = graph(both(("a", "m", 1), ("m", "z", 1), ("a", "n", 5), ("n", "o", 5), ("o", "z", 5), ("m", "o", 1)))
    assert diverse_paths(costs, "a", "z")[:2] == [("a", "m", "z"), ("a", "n", "o", "z")]


@given(graphs())
def test_every_node_sends_a_colour_along_the_path_that_was_chosen(edges: list[tuple[str, str, float]]) -> None:
    costs = graph(both(*edges))
    for owner in costs:
        chosen = coloured_paths(costs, costs, owner)
        hops = {node: hops_at(node, chosen) for node in costs}
        for source, paths in chosen.items():
            assert len({path.colour for path in paths}) == len(paths) == len({path.nodes for path in paths})
            assert paths[0].nodes == diverse_paths(costs, source, owner)[0]
            for path in paths:
                assert path.colour in COLOURS
                way = [source]
                while way[-1] != owner:
                    way.append(hops[way[-1]][path.colour])
                    assert len(way) <= len(costs)
                assert tuple(way) == path.nodes


@given(graphs())
def test_two_paths_share_nothing_where_that_is_easily_so(edges: list[tuple[str, str, float]]) -> None:
    """Where without the first path's links and nodes between there is another one, the second has none of them."""
    costs = graph(both(*edges))
    for source, owner in itertools.permutations(costs, 2):
        found = diverse_paths(costs, source, owner, 2)
        if not found:
            continue
        first = found[0]
        used = {frozenset(step) for step in itertools.pairwise(first)}
        rest = {
            node: {
                other: cost
                for other, cost in beside.items()
                if frozenset((node, other)) not in used and other not in first[1:-1]
            }
            for node, beside in costs.items()
            if node not in first[1:-1]
        }
        if owner in distances(rest, source, ""):
            assert not used & {frozenset(step) for step in itertools.pairwise(found[1])}
            assert not set(first[1:-1]) & set(found[1][1:-1])
