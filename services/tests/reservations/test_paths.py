"""Paths to choose from: each kind is the best of all paths in its respect, seen by looking at all of them."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from chart.reservations.decisions.ledger import Ledger, LinkCommitment
from chart.reservations.decisions.network import Network, NetworkLink
from chart.reservations.decisions.paths import Found, alternatives
from chart.reservations.decisions.windows import FOREVER_US
from chart.v1.reservations_pb2 import PathKind

MEGA = 1_000_000
MIDDLE = "bcde"

nodes = st.sampled_from("abcdef")
# Capacity in Mb/s and delay in microseconds by ends.
links = st.dictionaries(
    st.tuples(nodes, nodes).filter(lambda pair: pair[0] != pair[1]),
    st.tuples(st.integers(1, 50), st.integers(1, 9)),
    max_size=22,
)


def network(stated: dict[tuple[str, str], tuple[int, int]]) -> Network:
    made = (NetworkLink(f"{a}:to-{b}", a, b, mbit * MEGA, delay_us=us) for (a, b), (mbit, us) in stated.items())
    return Network(dict.fromkeys("abcdef", ()), {one.id: one for one in made})


def found(graph: Network, load: Ledger | None = None, avoid: tuple[str, ...] = ()) -> dict[int, Found]:
    """The path of each kind from a to f."""
    listed = alternatives(graph, load or Ledger(), "a", "f", 0, FOREVER_US, avoid)
    assert len({one.links for one in listed}) == len(listed)
    return {kind: one for one in listed for kind in one.kinds}


def every_path(graph: Network) -> list[tuple[NetworkLink, ...]]:
    """All paths from a to f without a loop."""
    by_ends = {(one.from_node, one.to_node): one for one in graph.links.values()}
    paths = []
    for count in range(len(MIDDLE) + 1):
        for middle in itertools.permutations(MIDDLE, count):
            steps = list(itertools.pairwise(("a", *middle, "f")))
            if all(step in by_ends for step in steps):
                paths.append(tuple(by_ends[step] for step in steps))
    return paths


@given(links)
@settings(max_examples=150, deadline=None)
def test_each_kind_is_the_best_of_all_paths_in_its_respect(stated: dict[tuple[str, str], tuple[int, int]]) -> None:
    graph = network(stated)
    paths, kinds = every_path(graph), found(graph)
    if not paths:
        assert not kinds
        return

    def width(path: tuple[NetworkLink, ...]) -> int:
        return min(link.admissible_bps for link in path)

    first = kinds[PathKind.PATH_KIND_WIDEST_SHORTEST]
    assert (len(first.links), -first.free_bps) == min((len(path), -width(path)) for path in paths)
    assert len(kinds[PathKind.PATH_KIND_FEWEST_HOPS].links) == min(map(len, paths))
    shortest = kinds[PathKind.PATH_KIND_SHORTEST]
    assert shortest.delay_us == min(sum(link.delay_us for link in path) for path in paths)
    assert kinds[PathKind.PATH_KIND_WIDEST].free_bps == max(map(width, paths))
    apart = [path for path in paths if not set(path) & set(first.links)]
    disjoint = kinds.get(PathKind.PATH_KIND_DISJOINT)
    assert (disjoint is None) == (not apart)
    if disjoint is not None:
        assert not set(disjoint.links) & set(first.links)
        between = set(first.nodes[1:-1])
        if any(between.isdisjoint(link.to_node for link in path) for path in apart):
            assert between.isdisjoint(disjoint.nodes)


def test_what_is_committed_makes_a_path_narrow_and_what_is_avoided_is_left_out() -> None:
    graph = network({("a", "b"): (40, 1), ("b", "f"): (40, 1), ("a", "c"): (30, 5), ("c", "f"): (30, 5)})
    kinds = found(graph)
    assert kinds[PathKind.PATH_KIND_WIDEST_SHORTEST].nodes == ["a", "b", "f"]
    assert kinds[PathKind.PATH_KIND_DISJOINT].nodes == ["a", "c", "f"]
    load = Ledger()
    load.add([LinkCommitment("b:to-f", 20 * MEGA, 0, FOREVER_US)])
    kinds = found(graph, load)
    widest = kinds[PathKind.PATH_KIND_WIDEST]
    assert (widest.nodes, widest.free_bps) == (["a", "c", "f"], 24 * MEGA)
    # Nearer all the same, and what is free on it is said.
    nearest = kinds[PathKind.PATH_KIND_SHORTEST]
    assert (nearest.nodes, nearest.free_bps, nearest.bottleneck.id) == (["a", "b", "f"], 12 * MEGA, "b:to-f")
    assert {tuple(one.nodes) for one in found(graph, avoid=("b",)).values()} == {("a", "c", "f")}
    assert {tuple(one.nodes) for one in found(graph, avoid=("a:to-c",)).values()} == {("a", "b", "f")}
